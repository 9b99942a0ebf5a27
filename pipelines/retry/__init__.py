"""Messages a group failed on: sent back to wait, given up as dead letters, redriven."""
