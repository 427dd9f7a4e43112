"""``petastorm-bridge doctor``: what is found, as lines for people or as JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
import shlex
import sys
from collections.abc import Iterator, Sequence

from petastorm_codemods._options import Options, with_configuration
from petastorm_codemods._reports.closing import plural
from petastorm_codemods._reports.report import printable
from petastorm_codemods._settings import Settings

from .advice import Advice, advise
from .environment import Environment, look_around
from .repository import Repository, Way, look_into

_MOST = 5
_KINDS = {
    "far": "far: each read there is a request of 10 to 50 ms; shards are copied to the machine's own disk "
    "once and read there",
    "near": "near: shards are read where they are, unless a network file system is mounted there",
}
_WAYS = {
    "none": "Nothing to do",
    "bridge": "First the bridge",
    "streaming": "Then streaming",
    "stays": "Left to you",
}


def doctor(path: str, *, as_json: bool) -> int:
    """Print what there is and what to do, and return the exit code.

    1 says that something is in the way, or that no place can be rewritten; 2 that nothing could be said.
    """
    try:
        options = with_configuration(Options((path,)))
        found = look_into([path], options.exclude, Settings())
    except (ValueError, OSError) as error:
        sys.stderr.write(printable(f"petastorm-bridge doctor: {error}\n"))
        return 2
    environment, advice = look_around(), advise(found, options.to.value if options.to else None)
    if as_json:
        text = _json(environment, found, advice)
    else:
        text = "\n".join(_lines(environment, found, advice))
    text = printable(text) if sys.stdout.isatty() else text
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")
    return int(bool(_obstacles(found)) or advice.way == "stays")


def _obstacles(found: Repository) -> list[tuple[str, str]]:
    """Return what is in the way of either destination, each conflict once although both have it."""
    once: dict[tuple[str, str], str] = {}
    for place, text in (*found.bridge.obstacles, *found.streaming.obstacles):
        once.setdefault((place, text.partition(" contradicts ")[0].partition(", ")[0]), text)
    return [(place, text) for (place, _), text in once.items()]


def _json(environment: Environment, found: Repository, advice: Advice) -> str:
    document = {
        "version": 1,
        "environment": dataclasses.asdict(environment),
        "repository": dataclasses.asdict(found),
        "advice": dataclasses.asdict(advice),
    }
    return json.dumps(document, indent=2, default=_plain)


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else str(value)


def _lines(environment: Environment, found: Repository, advice: Advice) -> Iterator[str]:
    yield "Environment"
    yield from (f"  {name:<14} {text}" for name, text in _environment(environment))
    yield ""
    yield f"Code in {shlex.join(found.paths)}: {plural(found.scanned, 'file')} looked at"
    for kind in found.streaming.kinds:
        yield f"  {kind.name:<16} {plural(kind.places, 'place')} ({kind.code})"
    yield from _some("cache directory", [_cache(*each) for each in found.cache])
    yield from (f"  {_KINDS[kind]}" for kind in sorted({kind for *_, kind in found.cache if kind}))
    if found.own_format:
        yield f"  {plural(found.own_format, 'place')} with datasets in Petastorm's own format"
    yield ""
    if advice.way != "none":
        yield "Ways"
        yield from (f"  {_way(way)}" for way in (found.bridge, found.streaming))
        yield ""
        if found.bridge.stays:
            yield "Stays on Petastorm"
            yield from _some("", [f"{place}  {text}" for place, text in found.bridge.stays])
            yield ""
        obstacles = _obstacles(found)
        if obstacles:
            yield "In the way"
            yield from _some("", [f"{place}  {text}" for place, text in obstacles])
            yield ""
    yield f"{_WAYS[advice.way]}: {advice.reason}."
    if advice.command:
        yield f"Next: {advice.command}"


def _cache(place: str, line: str, kind: str) -> str:
    return f"{place}{f' ({kind})' if kind else ''}  {line}"


def _environment(found: Environment) -> Iterator[tuple[str, str]]:
    yield (
        "Python",
        found.python + ("" if found.python_fits else ", which petastorm-bridge does not run on"),
    )
    yield "petastorm", _petastorm(found)
    remote = f"; SPARK_REMOTE {found.spark_remote}" if found.spark_remote else ""
    yield "Spark", (found.spark or "not installed") + remote
    yield "Java", found.java or "not found"
    for extra in found.extras:
        state = ", ".join(extra.present)
        if extra.missing:
            state += f"{'; ' if state else ''}missing: {', '.join(extra.missing)}"
        yield f"[{extra.name}]", state + (f" (for {extra.purpose})" if extra.purpose else "")


def _petastorm(found: Environment) -> str:
    if not found.petastorm:
        return "not installed"
    if found.petastorm_problem:
        return f"{found.petastorm}, {found.petastorm_problem}"
    return f"{found.petastorm}, can be used"


def _way(way: Way) -> str:
    option = f"codemod --to {way.destination.value}"
    text = f"{plural(way.rewritten, 'place')} to rewrite in {plural(way.files, 'file')}, {way.left} left to you"
    if way.on_bridge:
        text += f"; {plural(way.on_bridge, 'call')} on the bridge, as streaming cannot express them"
    return f"{option:<22} {text}"


def _some(what: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines, and how many more there are."""
    for line in lines[:_MOST]:
        yield f"  {what}: {line}" if what else f"  {line}"
    if len(lines) > _MOST:
        yield f"  and {len(lines) - _MOST} more"
