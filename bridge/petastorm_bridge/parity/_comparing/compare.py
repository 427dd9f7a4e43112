"""Compare two recordings, promise by promise."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from petastorm_bridge.parity import recorder
from petastorm_bridge.parity._recordings.recording import Recording, open_recording
from petastorm_bridge.parity._result import (
    ColumnResult,
    Finding,
    PromiseResult,
    Result,
    Side,
    State,
)

from .describe import describe_value, place_text
from .hints import column_hint, hint
from .judge import Judge, rank_counts
from .order import shards_are_exact, why_any_order
from .plan import Plan, make_plan
from .profile import ColumnProfiles, profiles
from .rows import Comparison, Rows, compare_in_order, compare_shuffled
from .rules import ALLOWANCES, PADDING, Effect, Rules
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
    result, judge = _judged(a, b, rules, labels=labels, profile=profile, progress=progress)

    def tried(_: str, done: int, total: int) -> None:
        if progress:
            progress("trying a hint", done, total)

    def is_same(others: Rules) -> bool:
        return _judged(a, b, others, progress=tried)[0].same

    names, rows = samples(judge) if profile else ((), ())
    return replace(
        result,
        hint=hint(judge, list(result.promises), is_same),
        samples=rows,
        sample_columns=names,
    )


def _judged(
    a: Recording,
    b: Recording,
    rules: Rules,
    *,
    labels: tuple[str, str] | None = None,
    profile: bool = False,
    progress: Progress | None = None,
) -> tuple[Result, Judge]:
    labels = labels or (("first", "second") if a.name == b.name else (a.name, b.name))
    plan = make_plan(a, b, rules)
    judge = Judge(a, b, rules, labels, plan, _compare_rows(a, b, plan, rules, progress))
    promises = [
        plan.schema,
        judge.count(),
        judge.same_rows(),
        judge.order(),
        judge.batches(),
        judge.values(),
    ]
    notes = [*plan.notes, *judge.notes, *_notes(judge, promises)]
    column_profiles = profiles(a, b, progress) if profile else {}
    result = Result(
        _side(a, labels[0]),
        _side(b, labels[1]),
        tuple(_named(promise, labels) for promise in promises),
        tuple(_columns(judge, column_profiles)),
        tuple(notes),
        rules.to_json(),
    )
    return result, judge


def _compare_rows(
    a: Recording, b: Recording, plan: Plan, rules: Rules, progress: Progress | None
) -> Rows:
    if not plan.columns:
        return Rows({})
    comparison = Comparison(a, b, plan, progress)
    if not why_any_order(a, b, rules):
        return compare_in_order(comparison)
    if not shards_are_exact(a, b, rules):
        rules = replace(rules, shards="union")
    return compare_shuffled(comparison, rules)


def _named(result: PromiseResult, labels: tuple[str, str]) -> PromiseResult:
    """Call the sides by their labels in everything that is said of a promise."""

    def name(text: str) -> str:
        for words, label in zip(("the first side", "the second side"), labels, strict=True):
            text = text if label in {"first", "second"} else text.replace(words, label)
        return text

    def message(finding: Finding) -> str:
        column = repr(finding.column)  # which may hold these words as well
        return column.join(map(name, finding.message.split(column)))

    findings = tuple(replace(f, message=message(f)) for f in result.findings)
    return replace(result, summary=name(result.summary), findings=findings)


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
        if any(manifest.get("limited") for manifest in side.manifests):
            yield f"{label!r} may have more rows: it was read up to a limit."


def _columns(judge: Judge, column_profiles: Mapping[str, ColumnProfiles]) -> Iterator[ColumnResult]:
    bad = {f.column: f.what for f in judge.plan.schema.findings if f.column and not f.allowed}
    for name in dict.fromkeys([*judge.a.names, *judge.b.names]):
        stats = judge.rows.stats.get(name, ColumnStats())
        profile = column_profiles.get(name, ColumnProfiles(None, None, ""))
        schema = bad.get(name, "")
        state = State.DIFFERENT if name in bad or stats.differing else State.SAME
        if name in judge.rules.ignore:
            state = State.UNCHECKED
        yield ColumnResult(
            name,
            state,
            profile.a,
            profile.b,
            stats.compared,
            stats.differing,
            stats.greatest,
            profile.measures,
            stats.how_far,
            schema,
            _first(judge, stats),
            column_hint(judge, name, stats, schema) if state is State.DIFFERENT else "",
            profile.axis,
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
        str(manifest.get("source", "")),
        side.rows,
        sum(len(sizes) for sizes in side.batch_sizes),
        tuple(rank_counts(side)),
        dict(manifest.get("versions", {})),
        manifest.get("seconds"),
    )
