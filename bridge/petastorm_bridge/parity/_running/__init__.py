"""Running both sides of a live comparison, each in a process of its own."""
