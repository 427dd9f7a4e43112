"""What is found in a repository and what comes next, for people or as JSON: by ``doctor``, and by ``codemod`` without a destination."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from petastorm_codemods._model import Destination
from petastorm_codemods._options import Options, arguments, with_configuration
from petastorm_codemods._reports.closing import plural
from petastorm_codemods._reports.report import printable

from .environment import Environment, look_around
from .repository import Repository, Way, look_into

_MOST = 5
# In the requirement that a destination writes.
_EXTRAS = re.compile(r"(?<=petastorm-bridge)\[[\w,-]+\]")
_KINDS = {
    "far": "far: each read there is a request of 10 to 50 ms; shards are copied to the machine's own disk "
    "once and read there",
    "near": "near: shards are read where they are, unless a network file system is mounted there",
}
_CHANGES = {
    "bridge": "first: imports change, batches stay the same",
    "streaming": "then: calls become streaming's own, for a review",
}
_WAYS = {
    "none": "Nothing to do",
    "bridge": "First the bridge",
    "streaming": "Then streaming",
    "stays": "Left to you",
}


@dataclass(frozen=True)
class Advice:
    """What comes next, in a word and a sentence, and the command for it.

    Attributes:
        way: ``none``, ``bridge``, ``streaming`` or ``stays``.
        reason: Why.
        command: What to do next; empty if there is nothing to do.
    """

    way: str
    reason: str
    command: str


def advise(repository: Repository, asked: Options, decided: str | None = None) -> Advice:
    """Return what comes next.

    Args:
        repository: The repository.
        asked: Paths and options that were given.
        decided: The destination in its ``pyproject.toml``, ``bridge`` or ``streaming``; None if there is none.
    """
    bridge, streaming = repository.bridge, repository.streaming
    if not (bridge.kinds or streaming.kinds or bridge.obstacles):
        return Advice("none", "nothing here needs Petastorm", "")
    if not bridge.rewritten and not streaming.rewritten:
        reason = "no place can be rewritten; the report says why for each"
        to = decided or "bridge"
        return Advice("stays", reason, _command(asked, decided, to, "--report", "markdown"))
    if decided == "bridge" and not bridge.rewritten:
        reason = "everything has moved to the bridge, which is where pyproject.toml wants it"
        return Advice("none", reason, "")
    if decided == "streaming" or not bridge.rewritten:
        reason = "pyproject.toml says so"
        if not decided:
            reason = "the code runs on the bridge, where it may stay; the second step makes calls streaming's own"
        return Advice("streaming", reason, _command(asked, decided, "streaming"))
    reason = "only imports change, and the batches stay the same"
    if bridge.stays:
        reason += "; what is listed above stays on Petastorm"
    if streaming.loaders > streaming.on_bridge:
        reason += "; streaming's own calls are the second step"
    if repository.own_format:
        reason += "; datasets in Petastorm's own format stay as they are, or `petastorm-bridge convert` makes MDS of them"
    return Advice("bridge", reason, _command(asked, decided, "bridge"))


def _command(asked: Options, decided: str | None, to: str, *options: str) -> str:
    asked = asked if decided else dataclasses.replace(asked, to=Destination(to))
    return shlex.join(["petastorm-bridge", "codemod", *arguments(asked), *options])


def doctor(path: str, *, as_json: bool) -> int:
    """Print what there is and what to do, and return the exit code.

    1 says that something is in the way, or that no place can be rewritten; 2 that nothing could be said.
    """
    asked = Options((path,))
    try:
        options = with_configuration(asked)
        repository = look_into(options)
    except (ValueError, OSError) as error:
        sys.stderr.write(printable(f"petastorm-bridge doctor: {error}\n"))
        return 2
    environment, advice = (
        look_around(),
        advise(repository, asked, options.to.value if options.to else None),
    )
    if as_json:
        text = _json(environment, repository, advice)
    else:
        text = "\n".join(_lines(environment, repository, advice))
    text = printable(text) if sys.stdout.isatty() else text
    sys.stdout.write(text.encode(errors="backslashreplace").decode() + "\n")
    return int(bool(_obstacles(repository)) or advice.way == "stays")


def overview(asked: Options, options: Options) -> tuple[list[str], int]:
    """Return what ``codemod`` shows as long as nobody has said where the code goes, and the exit code.

    It is 0 if neither destination has anything to do, otherwise 1.

    Args:
        asked: Paths and options that were given.
        options: These with what ``pyproject.toml`` says.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A selection matches no rule, or an option says nothing that can be understood.
    """
    repository = look_into(options)
    concerned = any(way.kinds or way.obstacles for way in (repository.bridge, repository.streaming))
    return list(_in_short(repository, advise(repository, asked))), int(concerned)


def _in_short(repository: Repository, advice: Advice) -> Iterator[str]:
    yield (
        f"{plural(repository.scanned, 'file')} looked at, nothing changed; "
        f"{plural(repository.streaming.loaders, 'loader')} of converters"
    )
    for way in (repository.bridge, repository.streaming):
        name = way.destination.value
        text = f"{f'--to {name}':<14}  {_CHANGES[name]}: {_places(way, 'in')}"
        yield (
            f"{text}; {plural(way.on_bridge, 'loader')} on the bridge still"
            if way.on_bridge
            else text
        )
    if repository.own_format:
        yield (
            f"{plural(repository.own_format, 'place')} with datasets in Petastorm's own format: their readers stay on the "
            "bridge, until petastorm-bridge convert SRC DST has made MDS of a dataset and --converted SRC=DST names it"
        )
    if not advice.command:
        yield f"Nothing to do: {advice.reason}."
        return
    yield f"Next: {advice.command}"
    to = 'to = "bridge"'
    if advice.way == "streaming":  # the first step is done
        to += ' (it may stay there) or to = "streaming"'
    yield (
        f"To decide it once, write {to} into [tool.petastorm-bridge] of pyproject.toml: hooks, CI and doctor follow it."
    )


def _places(way: Way, within: str) -> str:
    files = plural(way.files, "file")
    return f"{plural(way.rewritten, 'place')} {within} {files}, {way.left} left to you"


def _obstacles(repository: Repository) -> list[tuple[str, str]]:
    """Return what is in the way of either destination, each once although both have it with other extras."""
    once: dict[tuple[str, str], str] = {}
    for place, text in (*repository.bridge.obstacles, *repository.streaming.obstacles):
        what = _EXTRAS.sub("", text).partition(" contradicts ")[0].partition(", ")[0]
        once.setdefault((place, what), text)
    return [(place, text) for (place, _), text in once.items()]


def _json(environment: Environment, repository: Repository, advice: Advice) -> str:
    document = {
        "version": 1,
        "environment": dataclasses.asdict(environment),
        "repository": dataclasses.asdict(repository),
        "advice": dataclasses.asdict(advice),
    }
    return json.dumps(document, indent=2, default=_plain)


def _plain(value: object) -> object:
    return value.value if isinstance(value, enum.Enum) else str(value)


def _lines(environment: Environment, repository: Repository, advice: Advice) -> Iterator[str]:
    yield "Environment"
    yield from (f"  {name:<14} {text}" for name, text in _environment(environment))
    yield ""
    yield f"Code in {shlex.join(repository.paths)}: {plural(repository.scanned, 'file')} looked at"
    for kind in repository.streaming.kinds:
        yield f"  {kind.name:<16} {plural(kind.places, 'place')} ({kind.code})"
    yield from _some("cache directory", [_cache(*each) for each in repository.cache])
    yield from (
        f"  {_KINDS[kind]}" for kind in sorted({kind for *_, kind in repository.cache if kind})
    )
    if repository.own_format:
        yield f"  {plural(repository.own_format, 'place')} with datasets in Petastorm's own format"
    yield ""
    if advice.way != "none":
        yield "Ways"
        yield from (f"  {_way(way)}" for way in (repository.bridge, repository.streaming))
        yield ""
        stays, obstacles = repository.bridge.stays, _obstacles(repository)
        for title, places in (("Stays on Petastorm", stays), ("In the way", obstacles)):
            if places:
                yield title
                yield from _some("", [f"{place}  {text}" for place, text in places])
                yield ""
    yield f"{_WAYS[advice.way]}: {advice.reason}."
    if advice.command:
        yield f"Next: {advice.command}"


def _cache(place: str, line: str, kind: str) -> str:
    return f"{place}{f' ({kind})' if kind else ''}  {line}"


def _environment(environment: Environment) -> Iterator[tuple[str, str]]:
    yield (
        "Python",
        environment.python
        + ("" if environment.python_fits else ", which petastorm-bridge does not run on"),
    )
    yield "petastorm", _petastorm(environment)
    remote = f"; SPARK_REMOTE {environment.spark_remote}" if environment.spark_remote else ""
    yield "Spark", (environment.spark or "not installed") + remote
    yield "Java", environment.java or "not found"
    for extra in environment.extras:
        state = ", ".join(extra.present)
        if extra.missing:
            state += f"{'; ' if state else ''}missing: {', '.join(extra.missing)}"
        yield f"[{extra.name}]", state + (f" (for {extra.purpose})" if extra.purpose else "")


def _petastorm(environment: Environment) -> str:
    if not environment.petastorm:
        return "not installed"
    if environment.petastorm_problem:
        return f"{environment.petastorm}, {environment.petastorm_problem}"
    return f"{environment.petastorm}, can be used"


def _way(way: Way) -> str:
    option = f"codemod --to {way.destination.value}"
    text = _places(way, "to rewrite in")
    if way.on_bridge:
        text += f"; {plural(way.on_bridge, 'call')} on the bridge, each with its reason"
    return f"{option:<22} {text}"


def _some(what: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_MOST]:
        yield f"  {what}: {line}" if what else f"  {line}"
    if len(lines) > _MOST:
        yield f"  and {len(lines) - _MOST} more"
