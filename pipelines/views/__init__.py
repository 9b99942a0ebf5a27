"""Views: what a person asks of the tables, each written once as SQL."""
