"""Compare two recordings, promise by promise."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from petastorm_bridge.parity import recorder
from petastorm_bridge.parity._recordings.recording import Recording, open_recording
from petastorm_bridge.parity._result import (
    ColumnResult,
    PromiseResult,
    Result,
    Side,
    State,
)

from .describe import describe_value, place_text
from .hints import column_hint, hint
from .judge import Judge, rank_counts
from .plan import Plan, make_plan
from .profile import profiled
from .rows import Comparison, Rows, compare_in_order, compare_shuffled
from .rules import ALLOWANCES, PADDING, Effect, Rules, shards_are_exact, why_any_order
from .samples import samples
from .walk import ColumnStats, Progress

# Effects that keep something from being compared, so that nobody can say whether they were met.
_NOT_COMPARED = {Effect.ORDER, Effect.SHARDS, Effect.TRAILING_NULS, Effect.ROUNDED_LONGS}


def compare(
    a: Any,
    b: Any,
    rules: Rules | None = None,
    *,
    labels: tuple[str, str] | None = None,
    profile: bool = False,
    progress: Progress | None = None,
    limit: int | None = None,
    rows: bool | None = None,
    epochs: int = 1,
) -> Result:
    """Compare two sides.

    Args:
        a: How it should be: the directory of a recording, or a loader (it is recorded first).
        b: What is judged, likewise.
        rules: How to compare; bit for bit and in order by default.
        labels: What to call the sides in reports.
        profile: Gather the ranges and histograms for the HTML report (two more passes).
        progress: Is called with what is being done, and how many rows of how many.
        limit: Read at most about so many rows of a loader; without, the second side is read until
            it has given twice as many rows as the first, because it may never end.
        rows: Whether a loader gives single rows; by default the first item tells.
        epochs: Passes over a loader.

    Raises:
        CannotCompareError: A recording is missing or damaged, or the rules make no sense.
        RecordingError: What a loader gives cannot be recorded.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        # Under a launcher of several ranks, this one's loaders are compared.
        options = {"rows": rows, "epochs": epochs, "rank": 0, "world_size": 1}
        first = _opened(a, os.path.join(folder, "first"), {**options, "limit": limit})
        limit = 2 * first.rows + 1 if limit is None else limit
        second = _opened(b, os.path.join(folder, "second"), {**options, "limit": limit})
        return compare_recordings(
            first, second, rules or Rules(), labels=labels, profile=profile, progress=progress
        )


def _opened(side: Any, folder: str, options: dict[str, Any]) -> Recording:
    if isinstance(side, Recording):
        return side
    if isinstance(side, (str, os.PathLike)):
        return open_recording(side)
    recorder.record(side, folder, **options)
    return open_recording(folder)


def compare_recordings(
    a: Recording,
    b: Recording,
    rules: Rules,
    *,
    labels: tuple[str, str] | None = None,
    profile: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Compare two opened recordings; see `compare`."""
    a.check()
    b.check()
    labels = labels or (("first", "second") if a.name == b.name else (a.name, b.name))
    shown = progress or (lambda *_: None)
    judge, promises = _judged(a, b, rules, labels, shown)

    def is_same(others: Rules) -> bool:
        tried = _judged(
            a, b, others, labels, lambda _, done, total: shown("trying a hint", done, total)
        )
        return all(promise.state is not State.DIFFERENT for promise in tried[1])

    columns = tuple(_columns(judge))
    names, rows = samples(judge) if profile else ((), ())
    return Result(
        _side(a, labels[0]),
        _side(b, labels[1]),
        tuple(promises),
        profiled(columns, a, b, shown) if profile else columns,
        (*judge.plan.notes, *judge.notes, *_notes(judge, promises)),
        rules.to_json(),
        hint(judge, promises, is_same),
        rows,
        names,
    )


def _judged(
    a: Recording, b: Recording, rules: Rules, labels: tuple[str, str], progress: Progress
) -> tuple[Judge, list[PromiseResult]]:
    first, second = (f"the {n} side" if n in {"first", "second"} else n for n in labels)
    plan = make_plan(a, b, rules, (first, second))
    rows = _compare_rows(a, b, plan, rules, progress)
    judge = Judge(a, b, rules, labels, (first, second), plan, rows)
    return judge, [
        plan.schema,
        judge.count(),
        judge.same_rows(),
        judge.order(),
        judge.batches(),
        judge.values(),
    ]


def _compare_rows(a: Recording, b: Recording, plan: Plan, rules: Rules, progress: Progress) -> Rows:
    if not plan.columns:
        return Rows({})
    comparison = Comparison(a, b, plan, progress)
    if not why_any_order(a, b, rules):
        return compare_in_order(comparison)
    if not shards_are_exact(a, b, rules):
        rules = replace(rules, shards="union")
    return compare_shuffled(comparison, rules)


def _notes(judge: Judge, promises: Sequence[PromiseResult]) -> Iterator[str]:
    """Say what was relaxed, and what was not needed."""
    rules = judge.rules
    for first in (True, False):
        padding = judge.padding_text(first=first)
        if padding:
            hint = "" if rules.allows(Effect.PADDING) else f" Allow it with {PADDING}."
            yield f"{padding[0].upper()}{padding[1:]}.{hint}"
    used = {f.allowed for result in promises for f in result.findings if f.allowed}
    used |= {name for name in rules.allow if ALLOWANCES[name] in _NOT_COMPARED}
    for name in rules.allow:
        if name not in used and not name.startswith("streaming-"):
            yield f"The difference {name} is allowed but was not met as such."
    for side, label in zip((judge.a, judge.b), judge.labels, strict=True):
        if any(manifest["limited"] for manifest in side.manifests):
            yield f"{label!r} may have more rows: it was read up to a limit."


def _columns(judge: Judge) -> Iterator[ColumnResult]:
    bad = {f.column: f.what for f in judge.plan.schema.findings if f.column and not f.allowed}
    for name in dict.fromkeys([*judge.a.names, *judge.b.names]):
        stats = judge.rows.stats.get(name, ColumnStats())
        schema = bad.get(name, "")
        state = State.DIFFERENT if name in bad or stats.differing else State.SAME
        if name in judge.rules.ignore:
            state = State.UNCHECKED
        yield ColumnResult(
            name,
            state,
            compared=stats.compared,
            differing=stats.differing,
            greatest=stats.distance.greatest if stats.distance.rows else None,
            how_far=stats.how_far,
            schema=schema,
            first=_first(judge, stats),
            accepted=column_hint(judge, name, stats, schema) if state is State.DIFFERENT else "",
        )


def _first(judge: Judge, stats: ColumnStats) -> tuple[str, str, str] | None:
    """Return where a column differs first, and both values."""
    if stats.first is None:
        return None
    row, _, one, other = stats.first
    return (place_text(judge.a, row), *describe_value(one, other))


def _side(side: Recording, label: str) -> Side:
    manifest = side.manifest
    return Side(
        label,
        side.path,
        manifest["source"],
        side.rows,
        sum(len(sizes) for sizes in side.batch_sizes),
        tuple(rank_counts(side)),
        manifest["versions"],
        manifest["seconds"],
    )
