"""What takes the place of Petastorm's calls, and how it fits into the file."""
