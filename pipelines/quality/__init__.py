"""What must hold of a store's tables, told row by row: who breaks which promise, and why. Great Expectations counts."""
