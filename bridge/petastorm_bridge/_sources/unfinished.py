"""Directories in which a conversion never came to its end: what marks them, and what to say of one."""

from __future__ import annotations

from petastorm_bridge.mds.dataset import INDEX_NAME

__all__ = ["MARKER_NAME", "unfinished_text"]

# The first file that a conversion writes; the last one is the index.
MARKER_NAME = "_petastorm_bridge_cache.json"


def unfinished_text(directory: str) -> str:
    """Return what to say of a directory that has the marker and no index."""
    return (
        f"{directory} is an unfinished conversion of petastorm-bridge: {INDEX_NAME} is missing. "
        "Either a program is still writing it, or the program that began was killed; then delete "
        "the directory and convert the DataFrame again."
    )
