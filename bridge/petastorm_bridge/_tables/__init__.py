"""Facts that the code, its tests and the guide read: one row, one place."""
