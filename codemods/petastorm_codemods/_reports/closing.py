"""The last lines of a run: what has changed, what is left, and what to do next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from petastorm_codemods._model import Destination, Fact, Result, Rewritten, Site, State, pending
from petastorm_codemods._registry import all_rules

from .report import counts

_FACTS = {
    Fact.RANKS: (
        "Ranks: in {} streaming finds them itself, by the variable RANK: start with torchrun, TorchDistributor or "
        "Ray's TorchTrainer, as Lightning's own launcher does not set it. TorchDistributor(local_mode=False) needs a "
        "machine for each of its processes. Each rank gets as many batches; some rows come twice where ranks do not "
        "divide them."
    ),
    Fact.SHORT_BATCHES: (
        "Short batches: in {} each epoch may end with a smaller batch, where Petastorm's ran on into "
        "the next epoch."
    ),
    Fact.LEFT_OUT: (
        "Rows left out: {} in the stored order, in full batches: rows that do not fill the last one of a "
        "pass are never read, where Petastorm's batches ran on."
    ),
}

_LISTED = 5  # places that a line names


def closing_lines(
    result: Result,
    arguments: Sequence[str],
    destination: Destination,
    *,
    fast: bool,
    written: bool,
    requirement: str,
) -> Iterator[str]:
    """Yield the lines, each a sentence or a command.

    Args:
        result: What came of the run.
        arguments: Paths and options that the run was given, but for what it writes.
        destination: Where call sites were taken.
        fast: Whether rows are read in whole batches.
        written: Whether the changes are written.
        requirement: What is required of petastorm-bridge.
    """
    sites = [site for outcome in result.outcomes for site in outcome.sites]
    changes = sum(map(pending, result.outcomes))
    yield _numbers(result, changes, written=written)
    yield from _left(sites)
    if destination is Destination.STREAMING:
        yield from _facts(sites)
        yield from _without_loaders(result, sites)
        yield from _bridged(sites)
        yield from _speed(sites) if not fast else ()
    yield from _source(sites, requirement)
    yield from _texts(result.shown)
    if changes:
        command = shlex.join(["petastorm-bridge", "codemod", *arguments])
        if written:
            yield f"Next: git diff -w shows what moved; {command} --check keeps it so in CI."
        else:
            yield f"Next: {command} --write to write the changes."
        if destination is Destination.BRIDGE:
            yield "Then, on another day: --to streaming takes the calls to streaming's own."


def _numbers(result: Result, changes: int, *, written: bool) -> str:
    numbers = counts(result)
    human, remaining = numbers["needs a human"], numbers["sites left"]
    done = "rewritten" if written else "to rewrite"
    return (
        f"{plural(numbers['scanned'], 'file')} looked at: {changes} {done}, "
        f"{human} {'needs' if human == 1 else 'need'} a human, {numbers['failed']} failed; "
        f"{plural(numbers['sites rewritten'], 'place')} {done}, {remaining} left to you"
    )


def _left(sites: Sequence[Site]) -> Iterator[str]:
    """Yield how many places are left of each rule, and what that is about."""
    remaining = Counter(
        site.code for site in sites if site.state not in {State.REWRITTEN, State.WORKS}
    )
    for rule in all_rules():
        if remaining[rule.code]:
            places = plural(remaining[rule.code], "place")
            yield (
                f"Left to you: {places} of {rule.code} ({rule.summary}); {rule.command} says what to do."
            )


def _facts(sites: Sequence[Site]) -> Iterator[str]:
    """Yield what a reviewer has to know of rewritten calls, each once."""
    for fact, sentence in _FACTS.items():
        number = sum(fact in site.facts for site in sites)
        if number:
            yield sentence.format(plural(number, "call"))
    yield from _whole(sites)


def _whole(sites: Sequence[Site]) -> Iterator[str]:
    """Yield how many calls take no shard, where others take one: their files may not show that ranks run them."""
    native = [site for site in sites if Fact.NATIVE in site.facts]
    whole = [site for site in native if Fact.RANKS not in site.facts]
    if 0 < len(whole) < len(native):
        yield (
            f"Whole datasets: {plural(len(whole), 'call')} without a shard, which gave every rank all rows; streaming "
            "divides them wherever the process is a rank."
        )


def _without_loaders(result: Result, sites: Sequence[Site]) -> Iterator[str]:
    """Yield that what a converter became has no loader here: those in files that were not given would break."""
    files = [each for each in result.outcomes if isinstance(each, Rewritten) and each.before]
    made = any(b"write_mds" in each.after and b"write_mds" not in each.before for each in files)
    opened = any(site.code in {"PM102", "PM103"} for site in sites)
    if made and not opened:
        yield (
            "No loaders: no call of make_torch_dataloader or make_tf_dataset was looked at. If other files of the "
            "repository have some, give them too: these calls fail on what is made here now."
        )


def _bridged(sites: Sequence[Site]) -> Iterator[str]:
    stay = [site for site in sites if Fact.ON_BRIDGE in site.facts]
    horovod = [site for site in stay if Fact.HOROVOD in site.facts]
    if horovod:
        yield (
            f"On the bridge: {plural(len(horovod), 'call')} with Horovod's ranks, which streaming "
            "does not know; TorchDistributor sets those that it does."
        )
    if len(stay) > len(horovod):
        others = plural(len(stay) - len(horovod), "call")
        yield f"On the bridge: {others} not rewritten to streaming."


def _speed(sites: Sequence[Site]) -> Iterator[str]:
    """Yield what the moved calls would take to be fast."""
    slow = [site for site in sites if Fact.ROW_BY_ROW in site.facts]
    if slow:
        yield (
            f"Speed: {plural(len(slow), 'loader')} {'reads' if len(slow) == 1 else 'read'} row by row, as streaming does; --fast reads "
            "whole batches, num_workers= on a loader spreads the rows over processes."
        )


def _source(sites: Sequence[Site], requirement: str) -> Iterator[str]:
    """Yield where what is written into lists of dependencies has to come from."""
    if not any(
        site.code == "PM010"
        and site.state is State.REWRITTEN
        and "petastorm-bridge" in site.message
        for site in sites
    ):
        return
    _, _, address = requirement.partition(" @ ")
    if address:
        yield f"Install: petastorm-bridge comes from {address}, where every installation has to reach it."
    else:
        yield (
            f"Install: publish {requirement} in the package index that pip asks, or name another source: "
            "--requirement 'petastorm-bridge @ file:///Volumes/path/to/the.whl'."
        )


def _texts(shown: Sequence[str]) -> Iterator[str]:
    if shown:
        more = len(shown) - _LISTED
        places = ", ".join(shown[:_LISTED]) + (f" and {more} more" if more > 0 else "")
        yield f"Texts: code that imports petastorm stands in {places} too, where nothing is rewritten."


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular for one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
