"""Read-only answers: messages by id, key, offset or time, pages of a queue, copies of a message, lag."""
