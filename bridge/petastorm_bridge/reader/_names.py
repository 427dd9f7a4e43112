"""Keyword arguments that nobody knows, refused in the name of the function that was called."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def refuse_unknown(caller: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first name that is not known, with the nearest one that is.

    Raises:
        TypeError: There is one.
    """
    names = list(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}.{hint}")
