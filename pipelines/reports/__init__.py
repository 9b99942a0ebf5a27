"""Read-only answers: messages by id, key, place or time, pages of a queue, copies of a message, lag."""
