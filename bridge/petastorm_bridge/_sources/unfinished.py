"""Directories in which a conversion never came to its end: what marks them, and what to say of one."""

from __future__ import annotations

from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.entry import INDEX_NAME

# The first file that a conversion writes; the last one is the index.
MARKER_NAME = "_petastorm_bridge_cache.json"
# The directory of notes that `petastorm-bridge convert` keeps until its dataset is whole.
CONVERSION_NAME = "_petastorm_bridge_conversion"


def unfinished_text(directory: str, marker: str = MARKER_NAME) -> str:
    """Return what to say of a directory that has the marker and no index."""
    again = (
        "repeat its `petastorm-bridge convert`, which goes on where it ended"
        if marker == CONVERSION_NAME
        else "delete the directory and convert the DataFrame again"
    )
    return (
        f"{masked(directory)} is an unfinished conversion of petastorm-bridge: {INDEX_NAME} is missing. "
        f"Either a program is still writing it, or the program that began was killed; then {again}."
    )
