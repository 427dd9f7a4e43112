"""Datasets of Petastorm's that were converted to MDS, as ``--converted URL=DIR`` says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from petastorm_codemods._model import Converted

_SCHEME = "file://"


def conversions(values: Iterable[str]) -> tuple[Converted, ...]:
    """Return the datasets that some ``URL=DIR`` name.

    The directory need not be on this machine. If it is, its index says how columns are stored.

    Raises:
        ValueError: One has no URL or no directory, or two say different things of one URL.
    """
    found: dict[str, Converted] = {}
    for value in values:
        # Paths of partitions have the sign as well, those of conversions hardly ever.
        url, sign, directory = value.strip().rpartition("=")
        if not (sign and url and directory):
            raise ValueError(
                f"--converted takes URL=DIR, what `petastorm-bridge convert URL DIR` was given, not {value!r}"
            )
        one = Converted(url.rstrip("/"), directory, _columns(directory))
        if found.setdefault(one.url, one) != one:
            both = f"{found[one.url].directory} and {directory}"
            raise ValueError(f"--converted names two directories for {one.url}: {both}; choose one")
    return tuple(found.values())


def _columns(directory: str) -> tuple[tuple[str, str], ...]:
    """Return the names of a conversion's columns with their encodings; nothing if its index is not here."""
    path = directory.removeprefix(_SCHEME)
    try:
        with open(os.path.join(path, "index.json"), encoding="utf-8") as file:
            first = json.load(file)["shards"][0]
        return tuple(zip(first["column_names"], first["column_encodings"], strict=True))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ()
