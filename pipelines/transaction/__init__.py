"""Half messages: held until their producer commits, rolls back, or does not answer."""
