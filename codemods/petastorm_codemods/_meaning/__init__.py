"""What a program means: where names come from and what calls return. Nothing here edits."""
