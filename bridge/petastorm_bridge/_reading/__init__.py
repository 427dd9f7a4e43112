"""Which rows a reader reads, in which order, and the threads and processes that do it."""
