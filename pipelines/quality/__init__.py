"""What must hold of a store's tables, row by row: which rows break which promise, and why. Great Expectations counts."""
