"""Columns of rows in memory: their forms, cutting them into batches, shuffling them."""
