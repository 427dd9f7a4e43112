"""What a repository and the environment have, which way of leaving Petastorm fits, and what stops it."""
