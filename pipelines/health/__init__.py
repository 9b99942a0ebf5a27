"""What is wrong with a machine, a session or a store, and how to mend it. Looks, and changes nothing."""
