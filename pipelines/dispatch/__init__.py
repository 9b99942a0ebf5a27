"""Following the log: consume queue entries, the key index, parked messages and claims, and their files."""
