"""How often, and how long at a time, a store is asked for a file, and how many copies are kept."""

from __future__ import annotations

import os
import re

CACHE_VARIABLE = "PETASTORM_BRIDGE_LOCAL_CACHE"
LIMIT_VARIABLE = "PETASTORM_BRIDGE_LOCAL_CACHE_LIMIT"
ATTEMPTS_VARIABLE = "PETASTORM_BRIDGE_REMOTE_ATTEMPTS"
TIMEOUT_VARIABLE = "PETASTORM_BRIDGE_REMOTE_TIMEOUT"


def attempts() -> int:
    """Return the most attempts to fetch a file; ValueError if the variable is no whole number above zero."""
    return int(_number(ATTEMPTS_VARIABLE, "5", int))


def timeout() -> float:
    """Return for how many seconds a store may be silent; ValueError if the variable is no number above zero."""
    return _number(TIMEOUT_VARIABLE, "60", float)


def patience() -> float:
    """Return after how many seconds whoever fetches a file must be taken for stuck; raises as these do."""
    return attempts() * timeout()


def cache_limit() -> int | None:
    """Return the most bytes of copies; None for what the disk has.

    Raises:
        ValueError: The variable is no number of bytes.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return None
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise ValueError(
            f"{LIMIT_VARIABLE} is {text!r}; it must be a number of bytes, like 50000000000 or 50gb."
        )
    return int(match[1]) << 10 * " kmgt".index(match[2] or " ")


def _number(variable: str, default: str, kind: type[int | float]) -> float:
    text = os.environ.get(variable) or default
    try:
        number = kind(text)
    except ValueError:
        number = kind(0)
    if not 0 < number < float("inf"):
        raise ValueError(
            f"{variable} is {text!r}; it must be {'a whole' if kind is int else 'a'} number above 0."
        )
    return number
