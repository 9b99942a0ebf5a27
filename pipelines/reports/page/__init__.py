"""One page about a store: what is in it, what waits, what went wrong. Aggregated in Spark, drawn in the browser."""
