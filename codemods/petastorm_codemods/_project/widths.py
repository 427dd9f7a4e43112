"""How wide the lines of a repository are, as its formatter is told: Black's or Ruff's configuration."""

from __future__ import annotations

import os
import re

_FILES = ("ruff.toml", ".ruff.toml", "pyproject.toml")
_TABLE = re.compile(r"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*(?:black|ruff)\b[^\n]*\]", re.MULTILINE)
_LENGTH = re.compile(r"^[ \t]*[\"']?line[-_]length[\"']?[ \t]*=[ \t]*(\d{1,9})", re.MULTILINE)
_DEFAULT = 88


def width_for(directory: str, top: str) -> int | None:
    """Return the characters in a line of the files in a directory; None if no formatter is told about them.

    Args:
        directory: The directory, as an absolute path.
        top: The highest directory whose configuration counts, as an absolute path.
    """
    for name in _FILES:
        path = os.path.join(directory, name)
        if not os.path.isfile(path):  # a pipe would be waited for, and a device has no end
            continue
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError):
            continue
        table = name != "pyproject.toml" or _TABLE.search(text) is not None
        if table:
            match = _LENGTH.search(text)
            return int(match[1]) if match else _DEFAULT
    above = os.path.dirname(directory)
    return None if directory in {above, top} else width_for(above, top)
