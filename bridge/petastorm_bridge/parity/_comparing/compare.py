"""Compare two recordings, promise by promise."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from petastorm_bridge.parity import recorder
from petastorm_bridge.parity._recordings.recording import Recording, open_recording
from petastorm_bridge.parity._result import (
    ColumnResult,
    Promise,
    PromiseResult,
    Result,
    Side,
    State,
)

from .comparison import Comparison, Progress
from .describe import describe_value, place_text
from .hints import column_hint, hint
from .judge import judged, notes, rank_counts
from .pictures import profiled, samples
from .rows import ColumnStats, Rows, compare_rows
from .rules import Rules
from .schema import compare_schemas

_Promises = Mapping[Promise, PromiseResult]


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
    c, rows, promises = _compared(Comparison((a, b), rules, labels, shown))

    def is_same(others: Rules) -> bool:
        tried = Comparison(
            (a, b), others, labels, lambda _, done, total: shown("trying a hint", done, total)
        )
        return not any(p.state is State.DIFFERENT for p in _compared(tried)[2].values())

    columns = tuple(_columns(c, rows, promises[Promise.SCHEMA]))
    names, examples = samples(c, rows) if profile else ((), ())
    return Result(
        _side(a, labels[0]),
        _side(b, labels[1]),
        tuple(promises.values()),
        profiled(columns, c) if profile else columns,
        tuple(notes(c, rows, promises)),
        rules.to_json(),
        hint(c, rows, promises, is_same),
        examples,
        names,
    )


def _compared(c: Comparison) -> tuple[Comparison, Rows, _Promises]:
    """Return the comparison with the columns that can be compared, what became of the rows, and the promises."""
    schema, columns = compare_schemas(c)
    c = replace(c, columns=columns)
    rows = compare_rows(c)
    return c, rows, {result.promise: result for result in [schema, *judged(c, rows)]}


def _columns(c: Comparison, rows: Rows, schema: PromiseResult) -> Iterator[ColumnResult]:
    a, b = c.sides
    bad = {f.column: f.what for f in schema.findings if f.column and not f.allowed}
    for name in dict.fromkeys([*a.names, *b.names]):
        stats = rows.stats.get(name, ColumnStats())
        what = bad.get(name, "")
        state = State.DIFFERENT if name in bad or stats.differing else State.SAME
        if name in c.rules.ignore:
            state = State.UNCHECKED
        first = None
        if stats.first is not None:
            row, _, one, other = stats.first
            first = (place_text(a, row), *describe_value(one, other))
        yield ColumnResult(
            name,
            state,
            compared=stats.compared,
            differing=stats.differing,
            greatest=stats.distance.greatest if stats.distance.rows else None,
            how_far=stats.how_far,
            schema=what,
            first=first,
            accepted=column_hint(c, name, stats, what) if state is State.DIFFERENT else "",
        )


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
