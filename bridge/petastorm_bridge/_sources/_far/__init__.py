"""Files that are far away, in a store or behind a mount, and this machine's copies of them."""
