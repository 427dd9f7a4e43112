"""Limits of a file that contradict those of the bridge: on what it brings, and on Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.markers import InvalidMarker

from petastorm_codemods._model import Edit

from . import limits as our_limits
from .manifests import Entry, Form
from .replacements import Change
from .wanted import Wanted

_PYTHON = re.compile(
    r"^[ \t]*(?:FROM[ \t]+(?:\S*/)?python:(?P<image>\d+\.\d+)"
    r"|\"?(?:requires-python|python_requires|python|python_version)\"?[ \t]*=[ \t]*['\"]?"
    r"(?P<limit>[\^~<>=!]*[ \t]*\d[^'\"\n#]*)"
    r"|-[ \t]+python[ \t]*(?P<conda>[=<>]+[ \t]*\d[\w.,<>=* ]*))",
    re.MULTILINE,
)
_SETUP_PYTHON = re.compile(r"python_requires\s*=\s*['\"](?P<limit>[^'\"]+)")


def conflicts(
    path: str, text: str, found: Sequence[Entry], want: Wanted, *, lift: bool
) -> Iterator[Change]:
    """Yield the limits that contradict those of what the file lists now."""
    for entry in found:
        ours = want.limits.get(entry.name)
        theirs = our_limits.parsed(entry.versions) if entry.versions else None
        if ours is None or theirs is None or not our_limits.contradict(theirs, ours):
            continue
        try:
            if entry.marker and our_limits.never_applies(entry.marker):
                continue
        except InvalidMarker:
            continue
        what = f"{entry.name} {entry.versions}"
        needs = f"{our_limits.bringer(entry.name, want.package)}, which needs {entry.name}{ours}"
        if lift and entry.name == "pyarrow" and entry.form not in {Form.KEY, Form.ELSEWHERE}:
            at = text.rindex(entry.versions, entry.start, entry.end)
            end = at + len(entry.versions)
            yield Change(
                entry.start, f"{what} contradicts {needs}: lifted", (Edit(at, end, str(ours)),)
            )
        else:
            advice = "raise it, or use --lift-pyarrow" if entry.name == "pyarrow" else "raise it"
            yield Change(entry.start, f"{what} contradicts {needs}: {advice}")
    yield from _pythons(path, text, want)


def _pythons(path: str, text: str, want: Wanted) -> Iterator[Change]:
    if not want.limits:
        return
    pattern = _SETUP_PYTHON if path.endswith(".py") else _PYTHON
    for match in pattern.finditer(text):
        groups = match.groupdict()
        which = next(name for name, value in groups.items() if value)
        given = groups[which].strip()
        limit = our_limits.parsed(f"={given}" if which == "image" else given)
        if limit is None:
            continue
        ours = f"{want.package} needs Python {our_limits.python_limit()}"
        if our_limits.excludes_all(limit):
            yield Change(match.start(which), f"Python {given} is too old, {ours}")
        elif which == "limit" and our_limits.supports_more(limit):
            yield Change(match.start(which), f"Python {given} lets older ones in, {ours}: raise it")
