"""What a run found, as the services that show it beside the code want to have it."""

from __future__ import annotations

import enum
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from petastorm_codemods._model import Failed, Result, Site, State

from .report import place_of, sites_of

# The rule of files that are left as they were.
_FAILED = "PM000"


class Level(enum.Enum):
    """How much of a reader's attention a problem wants."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Problem:
    """One site, or one file that failed.

    Attributes:
        path: Path of the file, relative to the working directory if it is below that, with slashes.
        code: Code of the rule.
        message: What was found; of a notebook, with the cell.
        level: How bad it is.
        line: Line in the file, from 1; None for whole files, and in notebooks, whose cells have lines of
            their own.
        column: Column in characters, from 1; None where there is no line.
        fingerprint: Tells the problem from all others of the run, and is the same in the next run,
            also if lines have moved; 64 hexadecimal digits.
    """

    path: str
    code: str
    message: str
    level: Level
    line: int | None
    column: int | None
    fingerprint: str


def problems(result: Result) -> Iterator[Problem]:
    """Yield the sites in the order of files and lines, then the files that failed."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for outcome, site in sites_of(result):
        path = shown_path(outcome.path)
        level = Level.WARNING if site.state is State.MANUAL else Level.NOTE
        message = f"{place_of(site)}: {site.message}" if site.cell else site.message
        line, column = (None, None) if site.cell else (site.line, site.column)
        digest = _fingerprint(seen, path, site)
        yield Problem(path, site.code, message, level, line, column, digest)
    for outcome in result.outcomes:
        if isinstance(outcome, Failed):
            path = shown_path(outcome.path)
            digest = _digest(path, _FAILED, "failed")
            yield Problem(path, _FAILED, outcome.reason, Level.ERROR, None, None, digest)


def shown_path(path: str) -> str:
    """Return a path as services know it: from the working directory where that is possible."""
    if os.path.isabs(path):
        below = os.path.relpath(path)
        path = path if below.startswith(os.pardir) else below
    return os.path.normpath(path).replace(os.sep, "/")


def _fingerprint(seen: Counter[tuple[str, str, str]], path: str, site: Site) -> str:
    what = (path, site.code, site.message)
    seen[what] += 1
    return _digest(*what, *([str(seen[what])] if seen[what] > 1 else []))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="surrogateescape")).hexdigest()
