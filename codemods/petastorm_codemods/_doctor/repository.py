"""What a repository has of Petastorm, and what becomes of it by each destination of the codemod."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from petastorm_bridge._workers.threads import usable_cores
from petastorm_codemods._model import MOUNTED, Destination, Fact, Failed, Result, State
from petastorm_codemods._options import Options, towards
from petastorm_codemods._petastorm.counterparts import is_support_file
from petastorm_codemods._project.dependency_files import CODE as REQUIREMENT
from petastorm_codemods._project.files import Gathered, gather, narrowed
from petastorm_codemods._registry import all_rules
from petastorm_codemods._reports.report import sites_of
from petastorm_codemods._rewriting.sites import LOADERS
from petastorm_codemods._run import run
from petastorm_codemods._settings import settings_for
from petastorm_codemods._text.sources import Source, read_source

_CACHE = re.compile(
    r"^[^\n]*(?:PARENT_CACHE_DIR_URL_CONF|petastorm\.spark\.converter\.parentCache)", re.MULTILINE
)
_LONGEST = 120
# A path or URL in quotes; of one that is put together, how it begins.
_PLACE = re.compile(r"""["'](/|[a-z][a-z0-9+.-]*:/)([^"'\n]*)""", re.IGNORECASE)
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
        loaders: Number of calls that open loaders, whatever becomes of them.
        on_bridge: How many of them run on the bridge although the way leads to streaming.
        kinds: The same by rule.
        stays: Code that stays as it is and needs a human: place and sentence.
        obstacles: What to see to before: place and sentence.
    """

    destination: Destination
    files: int
    rewritten: int
    left: int
    loaders: int
    on_bridge: int
    kinds: tuple[Kind, ...]
    stays: tuple[tuple[str, str], ...]
    obstacles: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Repository:
    """What a repository has.

    Attributes:
        paths: What was looked at.
        scanned: Number of files that may concern the codemod.
        cache: Where the cache directory is set: place, line of code, and ``far``, ``near`` or an empty
            string where the code does not tell.
        bridge: What becomes of it with ``--to bridge``.
        streaming: What becomes of it with ``--to streaming``.
        own_format: Lines that read or write datasets of Petastorm's own.
    """

    paths: tuple[str, ...]
    scanned: int
    cache: tuple[tuple[str, str, str], ...]
    bridge: Way
    streaming: Way
    own_format: int


def look_into(options: Options) -> Repository:
    """Return what a repository has, and what either destination would make of it; nothing is written.

    Args:
        options: How either is tried; their destination does not matter.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A selection matches no rule, or an option says nothing that can be understood.
    """
    settings = {
        destination: settings_for(towards(options, destination)) for destination in Destination
    }
    gathered = gather(options.paths, options.exclude, Destination.STREAMING)
    ours = {destination: narrowed(gathered, destination) for destination in Destination}
    results = {
        destination: run(
            options.paths,
            settings[destination],
            exclude=options.exclude,
            jobs=options.jobs or usable_cores(),
            gathered=ours[destination],
        )
        for destination in Destination
    }
    texts = list(_texts(ours[Destination.BRIDGE]))
    bridge = results[Destination.BRIDGE]
    return Repository(
        paths=options.paths,
        scanned=bridge.scanned,
        cache=tuple(_cache(texts)),
        bridge=_way(bridge, Destination.BRIDGE),
        streaming=_way(results[Destination.STREAMING], Destination.STREAMING),
        own_format=sum(len(_OWN_FORMAT.findall(source.text)) for _, source in texts),
    )


def _way(result: Result, destination: Destination) -> Way:
    places: Counter[str] = Counter()
    rewritten: Counter[str] = Counter()
    for outcome, site in sites_of(result):
        if site.state is not State.WORKS:
            places[site.code] += 1
            made = site.state is State.REWRITTEN and not isinstance(outcome, Failed)
            rewritten[site.code] += made
    kinds = tuple(
        Kind(rule.code, rule.name, places[rule.code], rewritten[rule.code])
        for rule in all_rules()
        if places[rule.code]
    )
    done = sum(rewritten.values())
    return Way(
        destination,
        sum(
            any(site.state is State.REWRITTEN for site in outcome.sites)
            for outcome in result.outcomes
        ),
        done,
        sum(places.values()) - done,
        sum(site.code in LOADERS for _, site in sites_of(result)),
        sum(Fact.ON_BRIDGE in site.facts for _, site in sites_of(result)),
        kinds,
        tuple(_staying(result)),
        tuple(_obstacles(result)),
    )


def _staying(result: Result) -> Iterator[tuple[str, str]]:
    """Yield the places in the code that are left to a human."""
    for outcome, site in sites_of(result):
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
    for name, data in gathered.sources:
        with contextlib.suppress(ValueError):  # it is reported as one that does not parse
            yield name, read_source(name, data)


def _cache(texts: Iterable[tuple[str, Source]]) -> Iterator[tuple[str, str, str]]:
    """Yield where Spark is told the directory of conversions."""
    for name, source in texts:
        if is_support_file(name):  # it reads the key
            continue
        for match in _CACHE.finditer(source.text):
            end = source.text.find("\n", match.end())
            line = source.text[match.start() : end if end >= 0 else None].strip()
            cell, number, _ = source.locate(match.start())
            place = f"{name}:cell {cell}:{number}" if cell else f"{name}:{number}"
            # The value may stand in the line below its key.
            below = source.text.find("\n", end + 1) if end >= 0 else -1
            kind = _kind(source.text[match.start() : below if below >= 0 else None])
            yield place, line if len(line) <= _LONGEST else f"{line[:_LONGEST]}...", kind


def _kind(text: str) -> str:
    """Return whether the first directory that is named in some code is far or near; empty if none is."""
    named = _PLACE.search(text)
    if named is None:
        return ""
    is_local = named[1].lower() in {"/", "file:/"}
    return "near" if is_local and not f"/{named[2].lstrip('/')}".startswith(MOUNTED) else "far"
