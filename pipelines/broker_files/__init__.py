"""A real broker's directory: its log, its queues, its config, read as a restarted broker would read them."""
