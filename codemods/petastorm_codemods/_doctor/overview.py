"""What ``petastorm-bridge codemod`` shows as long as nobody has said where the code goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from petastorm_codemods._reports.closing import plural
from petastorm_codemods._settings import Settings

from .advice import advise
from .repository import Repository, Way, look_into

_CHANGES = {
    "bridge": "first: imports change, batches stay the same",
    "streaming": "then: calls become streaming's own, for a review",
}


def overview(
    paths: Sequence[str], exclude: Sequence[str], settings: Settings, jobs: int
) -> tuple[list[str], int]:
    """Return the lines, and the exit code: 0 if neither destination has anything to do, otherwise 1.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A selection matches no rule.
    """
    repository = look_into(paths, exclude, settings, jobs)
    concerned = any(way.kinds or way.obstacles for way in (repository.bridge, repository.streaming))
    return list(_lines(repository)), int(concerned)


def _lines(repository: Repository) -> Iterator[str]:
    yield (
        f"{plural(repository.scanned, 'file')} looked at, nothing changed; "
        f"{plural(repository.streaming.loaders, 'loader')} of converters"
    )
    yield from (_way(way) for way in (repository.bridge, repository.streaming))
    if repository.own_format:
        yield (
            f"{plural(repository.own_format, 'place')} with datasets in Petastorm's own format: their readers stay on the "
            "bridge, until petastorm-bridge convert SRC DST has made MDS of a dataset and --converted SRC=DST names it"
        )
    advice = advise(repository)
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


def _way(way: Way) -> str:
    name = way.destination.value
    text = (
        f"{f'--to {name}':<14}  {_CHANGES[name]}: {plural(way.rewritten, 'place')} in "
        f"{plural(way.files, 'file')}, {way.left} left to you"
    )
    if way.on_bridge:
        text += f"; {plural(way.on_bridge, 'loader')} on the bridge still"
    return text
