"""How wide the lines of a repository are, as its formatter is told: Black's or Ruff's configuration."""

from __future__ import annotations

import functools
import os
import re

_FILES = ("ruff.toml", ".ruff.toml", "pyproject.toml")
_TABLE = re.compile(r"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*(?:black|ruff)\b[^\n]*\]", re.MULTILINE)
_LENGTH = re.compile(r"^[ \t]*[\"']?line[-_]length[\"']?[ \t]*=[ \t]*(\d+)", re.MULTILINE)
_DEFAULT = 88


def width_for(path: str, top: str) -> int | None:
    """Return the characters in a line of a file; None if no formatter is told about the repository.

    Args:
        path: The file.
        top: The highest directory whose configuration counts.
    """
    return _width_in(os.path.dirname(os.path.abspath(path)), os.path.abspath(top))


@functools.cache
def _width_in(directory: str, top: str) -> int | None:
    for name in _FILES:
        try:
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError):
            continue
        table = name != "pyproject.toml" or _TABLE.search(text) is not None
        if table:
            found = _LENGTH.search(text)
            return int(found[1]) if found else _DEFAULT
    above = os.path.dirname(directory)
    return None if directory in {above, top} else _width_in(above, top)
