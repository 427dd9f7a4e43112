"""Single values of Petastorm's own datasets: array files and images, and what they may take of memory."""
