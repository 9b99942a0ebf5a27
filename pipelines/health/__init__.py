"""What is wrong with a machine, a session or a store, and how to fix it. It reads, and changes nothing."""
