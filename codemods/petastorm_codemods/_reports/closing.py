"""The last lines of a run: what has changed, what is left, and what to do next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from petastorm_codemods._model import Destination, Result, Site, State, pending
from petastorm_codemods._registry import GUIDE, all_rules

from .report import counts

_SPEED = f"{GUIDE or 'migration_guide/'}speed.md"
_LOADERS = frozenset({"PM102", "PM103"})
_STAYS = "stays on the bridge"


def closing_lines(
    result: Result,
    arguments: Sequence[str],
    destination: Destination,
    *,
    fast: bool,
    written: bool,
) -> Iterator[str]:
    """Yield the lines, each a sentence or a command.

    Args:
        result: What came of the run.
        arguments: Paths and options that the run was given, but for what it writes.
        destination: Where call sites were taken.
        fast: Whether rows are read in whole batches.
        written: Whether the changes are written.
    """
    sites = [site for outcome in result.outcomes for site in outcome.sites]
    changes = sum(map(pending, result.outcomes))
    yield _numbers(result, changes, written=written)
    yield from _left(sites)
    if destination is Destination.STREAMING:
        yield from _bridged(sites)
        yield from _speed(sites, fast=fast)
    if changes:
        yield _other(destination)
        command = shlex.join(["petastorm-bridge", "codemod", *arguments])
        if written:
            yield f"Next: git diff -w shows what moved; {command} --check keeps it so in CI."
        else:
            yield f"Next: {command} --write to write the changes."


def _numbers(result: Result, changes: int, *, written: bool) -> str:
    numbers = counts(result)
    human, left = numbers["needs a human"], numbers["sites left"]
    done = "rewritten" if written else "to rewrite"
    return (
        f"{plural(numbers['scanned'], 'file')} looked at: {changes} {done}, "
        f"{human} {'needs' if human == 1 else 'need'} a human, {numbers['failed']} failed; "
        f"{plural(numbers['sites rewritten'], 'place')} {done}, {left} left"
    )


def _left(sites: Sequence[Site]) -> Iterator[str]:
    """Yield how many places are left of each rule, and what that is about."""
    left = Counter(site.code for site in sites if site.state not in {State.REWRITTEN, State.WORKS})
    for rule in all_rules():
        if left[rule.code]:
            places = plural(left[rule.code], "place")
            yield f"Left: {places} of {rule.code} ({rule.summary})."


def stays_on_bridge(site: Site) -> bool:
    """Say whether a call that was to go to streaming runs on the bridge."""
    return site.code in _LOADERS and site.message.startswith(_STAYS)


def _bridged(sites: Sequence[Site]) -> Iterator[str]:
    """Yield how many calls run on the bridge, over the directories that streaming reads."""
    stay = [site for site in sites if stays_on_bridge(site)]
    horovod = [site for site in stay if "Horovod" in site.message]
    if horovod:
        yield (
            f"On the bridge: {plural(len(horovod), 'call')} with Horovod's ranks, which streaming "
            "does not know; TorchDistributor sets those that it does."
        )
    if len(stay) > len(horovod):
        others = plural(len(stay) - len(horovod), "call")
        yield f"On the bridge: {others} that were not rewritten to streaming."


def _speed(sites: Sequence[Site], *, fast: bool) -> Iterator[str]:
    """Yield what the moved calls would take to be fast."""
    moved = [
        site
        for site in sites
        if site.code == "PM102" and "StreamingDataset" in site.message and not fast
    ]
    slow = [site for site in moved if "ColumnarStreamingDataset" not in site.message]
    if slow:
        yield (
            f"Speed: {plural(len(slow), 'loader')} read row by row, as streaming does; --fast reads "
            "whole batches, num_workers= on a loader spreads the rows over processes."
        )


def _other(destination: Destination) -> str:
    """Return what the other destination would give."""
    if destination is Destination.STREAMING:
        return (
            "--to bridge instead would change imports only: the same batches as before, and for "
            f"narrow tables many times as fast as row by row, see {_SPEED}"
        )
    return (
        "--to streaming instead would rewrite the calls to streaming's own: its split over ranks, "
        f"its elastic shuffling and resumption in mid-epoch; see {_SPEED} for what that costs"
    )


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular for one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
