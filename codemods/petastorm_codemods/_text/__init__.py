"""Files as text: encodings, notebooks, edits, and reading the result back."""
