"""What a repository has of Petastorm, and what becomes of it by each destination of the codemod."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from petastorm_codemods._config import Config
from petastorm_codemods._model import Destination, Failed, Outcome, Result, Site, State
from petastorm_codemods._project.gathering import Gathered, gather, narrowed
from petastorm_codemods._project.install_commands import CODE as REQUIREMENT
from petastorm_codemods._registry import all_rules
from petastorm_codemods._reports.closing import stays_on_bridge
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.sources import Source, read_source

_CACHE = re.compile(r"[^\n]*(?:PARENT_CACHE_DIR_URL_CONF|petastorm\.spark\.converter\.parentCache)")
_LONGEST = 120
# Calls that read or write datasets of Petastorm's own.
_OWN_FORMAT = re.compile(r"^[^#\n]*\b(?:make_reader|materialize_dataset)\s*\(", re.MULTILINE)


@dataclass(frozen=True)
class Kind:
    """Call sites of one rule: its code, its name, how many there are, and how many are rewritten."""

    code: str
    name: str
    places: int
    rewritten: int


@dataclass(frozen=True)
class Way:
    """A way to leave Petastorm.

    Attributes:
        destination: Where it leads.
        files: Number of files that change.
        rewritten: Number of places that are rewritten.
        left: Number of places that are left.
        on_bridge: Of those that are rewritten, calls that run on the bridge although the way leads
            to streaming.
        kinds: The same by rule.
        stays: Code that stays as it is and needs a human: place and sentence.
        obstacles: What to see to before: place and sentence.
    """

    destination: Destination
    files: int
    rewritten: int
    left: int
    on_bridge: int
    kinds: tuple[Kind, ...]
    stays: tuple[tuple[str, str], ...]
    obstacles: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Repository:
    """What a repository has.

    Attributes:
        path: What was looked at.
        scanned: Number of files that may concern the codemod.
        cache: Where the cache directory is set: place and line of code.
        bridge: What becomes of it with ``--to bridge``.
        streaming: What becomes of it with ``--to streaming``.
        own_format: Lines that read or write datasets of Petastorm's own.
    """

    path: str
    scanned: int
    cache: tuple[tuple[str, str], ...]
    bridge: Way
    streaming: Way
    own_format: int


def look_into(path: str, config: Config) -> Repository:
    """Return what a repository has; nothing is written.

    Args:
        path: Directory or file.
        config: What the repository says of the codemod; its patterns of files to pass over count.

    Raises:
        FileNotFoundError: The path does not exist.
    """
    gathered = gather([path], config.exclude, Destination.STREAMING)
    ours = {destination: narrowed(gathered, destination) for destination in Destination}
    results = {
        destination: run(
            [path],
            Settings(destination=destination),
            exclude=config.exclude,
            jobs=os.cpu_count() or 1,
            gathered=ours[destination],
        )
        for destination in Destination
    }
    texts = list(_texts(ours[Destination.BRIDGE]))
    bridge = results[Destination.BRIDGE]
    return Repository(
        path=path,
        scanned=bridge.scanned,
        cache=tuple(_cache(texts)),
        bridge=_way(bridge, Destination.BRIDGE),
        streaming=_way(results[Destination.STREAMING], Destination.STREAMING),
        own_format=sum(len(_OWN_FORMAT.findall(source.text)) for _, source in texts),
    )


def _sites(result: Result) -> Iterator[tuple[Outcome, Site]]:
    for outcome in result.outcomes:
        for site in outcome.sites:
            yield outcome, site


def _way(result: Result, destination: Destination) -> Way:
    found: Counter[str] = Counter()
    rewritten: Counter[str] = Counter()
    for outcome, site in _sites(result):
        if site.state is not State.WORKS:
            found[site.code] += 1
            made = site.state is State.REWRITTEN and not isinstance(outcome, Failed)
            rewritten[site.code] += made
    kinds = tuple(
        Kind(rule.code, rule.name, found[rule.code], rewritten[rule.code])
        for rule in all_rules()
        if found[rule.code]
    )
    done = sum(rewritten.values())
    return Way(
        destination,
        sum(_changes(outcome) for outcome in result.outcomes),
        done,
        sum(found.values()) - done,
        sum(stays_on_bridge(site) for _, site in _sites(result)),
        kinds,
        tuple(_staying(result)),
        tuple(_obstacles(result)),
    )


def _changes(outcome: Outcome) -> bool:
    return any(site.state is State.REWRITTEN for site in outcome.sites)


def _staying(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the places in the code that are left to a human."""
    for outcome, site in _sites(result):
        if site.code != REQUIREMENT and site.state in {State.MANUAL, State.NEEDS_UNSAFE}:
            cell = f":cell {site.cell}" if site.cell else ""
            yield f"{outcome.path}{cell}:{site.line}", site.message


def _obstacles(result: Result) -> Iterator[tuple[str, str]]:
    """Yield what keeps the result from being installed or looked at."""
    for outcome in result.outcomes:
        if isinstance(outcome, Failed):
            yield outcome.path, outcome.reason
        for site in outcome.sites:
            if site.code == REQUIREMENT and site.state is not State.REWRITTEN:
                yield f"{outcome.path}:{site.line}", site.message


def _texts(gathered: Gathered) -> Iterator[tuple[str, Source]]:
    """Yield the name and the code of each source."""
    for name, data in gathered.sources:
        with contextlib.suppress(ValueError):  # it is reported as one that does not parse
            yield name, read_source(name, data)


def _cache(texts: Iterable[tuple[str, Source]]) -> Iterator[tuple[str, str]]:
    """Yield where Spark is told the directory of conversions."""
    for name, source in texts:
        for match in _CACHE.finditer(source.text):
            end = source.text.find("\n", match.end())
            line = source.text[match.start() : end if end >= 0 else None].strip()
            cell, number, _ = source.locate(match.start())
            place = f"{name}:cell {cell}:{number}" if cell else f"{name}:{number}"
            yield place, line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def by_code(kinds: Sequence[Kind], *codes: str) -> int:
    """Return how many places there are of some rules."""
    return sum(kind.places for kind in kinds if kind.code in codes)
