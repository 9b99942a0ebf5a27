"""Views: what SQL users read of the tables; each query is written once."""
