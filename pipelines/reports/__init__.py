"""Read-only queries: messages by id, key, offset or time, pages of a queue, copies of a message, lag."""
