"""Some of a pass's samples, gathered at once and cut into batches."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch

from petastorm_bridge.mds.errors import DatasetError, ShardCorruptedError
from petastorm_bridge.mds.layout import ShardLayout
from petastorm_bridge.mds.ragged import Int64
from petastorm_bridge.mds.shard import Shard

from ._index import ShardIndex, group_by_shard
from ._mapped import Column, Kind, columns_of
from ._parts import Part, gathered, viewed
from ._values import Format, Ragged, UndecodableError, batch_values, join, scatter, tensors

GetShards = Callable[[list[int]], list[Shard]]


@dataclass(frozen=True)
class OutputFormat:
    """How a user wants batches.

    Attributes:
        columns: Which columns; None for all.
        format: ``'numpy'`` for arrays and lists, ``'torch'`` for what torch's default collation
            makes of samples.
        ragged: ``'error'`` or ``'list'``, for arrays that each say their own shape.
    """

    columns: frozenset[str] | None
    format: Format
    ragged: Ragged

    @classmethod
    def checked(cls, columns: Sequence[str] | None, format: Any, ragged: Any) -> OutputFormat:  # noqa: A002
        """Return what a user asked for.

        Raises:
            TypeError: ``columns`` is a string.
            ValueError: Another word than those known, or no column.
        """
        if isinstance(columns, str):
            raise TypeError(f"columns is the string {columns!r}; give a list of names.")
        if columns is not None and not columns:
            raise ValueError("columns is empty; name at least one, or leave it out for all.")
        for name, value, known in (
            ("format", format, get_args(Format)),
            ("ragged", ragged, get_args(Ragged)),
        ):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(known)}.")
        return cls(None if columns is None else frozenset(columns), format, ragged)


class Window:
    """Gathered samples.

    Args:
        parts: Samples of one layout each.
        rows: Which rows of the window those of each part are: ascending positions, or the first of
            adjacent ones.
    """

    def __init__(self, parts: Sequence[Part], rows: Sequence[Int64 | int]) -> None:
        self._parts = parts
        self._rows = rows

    def batch(self, start: int, stop: int, wanted: OutputFormat) -> dict[str, Any]:
        """Return rows ``start`` to ``stop``: a column for each of the first row's columns.

        Raises:
            DatasetError: Shards differ in their columns, or a value cannot be decoded.
        """
        if len(self._parts) == 1:
            return _decoded(self._parts[0], start, stop, wanted)
        pieces = [
            (part, low, high, rows)
            for part, rows in self._near(start, stop)
            for low, high in [_bounds(part, rows, start, stop)]
            if low < high
        ]
        if len(pieces) > 1:
            return self._merged(pieces, start, stop, wanted)
        part, low, high, _ = pieces[0]
        return _decoded(part, low, high, wanted)

    def _near(self, start: int, stop: int) -> Iterator[tuple[Part, Int64 | int]]:
        """Yield the parts that may have some of rows ``start`` to ``stop``, of thousands of tiny shards a few."""
        first, last = 0, len(self._parts)
        if isinstance(self._rows[0], int):
            first = bisect.bisect_right(self._rows, start) - 1
            last = bisect.bisect_left(self._rows, stop)
        return zip(self._parts[first:last], self._rows[first:last], strict=True)

    def _merged(
        self, pieces: list[Any], start: int, stop: int, wanted: OutputFormat
    ) -> dict[str, Any]:
        firsts = [rows if isinstance(rows, int) else rows[low] for _, low, _, rows in pieces]
        leader = _choice(pieces[int(np.argmin(firsts))][0].layout, wanted.columns)
        names = leader.names
        plain = OutputFormat(frozenset(names), "numpy", wanted.ragged)
        parts = [_decoded(part, low, high, plain) for part, low, high, _ in pieces]
        for part in parts:
            if missing := [name for name in names if name not in part]:
                raise DatasetError(
                    f"Shards in one batch differ in their columns: {missing} are in some only. Name "
                    "those that all have with columns=[...]."
                )
        contiguous = isinstance(pieces[0][3], int)
        batch = {}
        for column in leader.columns:
            values = [part[column.name] for part in parts]
            if contiguous:
                merged = join(column.name, values)
            else:
                places = [rows[low:high] - start for _, low, high, rows in pieces]
                merged = scatter(column.name, values, places, stop - start)
            if wanted.format == "torch":
                merged = tensors(column, merged, wanted.ragged)
            batch[column.name] = merged
        return batch


@dataclass(frozen=True)
class _Choice:
    """The columns of one layout that a user wants; ``is_plain`` if all are numbers."""

    positions: tuple[int, ...]
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    is_plain: bool


@functools.lru_cache(maxsize=64)
def _choice(layout: ShardLayout, names: frozenset[str] | None) -> _Choice:
    all_columns = columns_of(layout)
    positions = tuple(i for i, c in enumerate(all_columns) if names is None or c.name in names)
    columns = tuple(all_columns[position] for position in positions)
    is_plain = all(column.kind is Kind.NUMBER for column in columns)
    return _Choice(positions, columns, tuple(column.name for column in columns), is_plain)


def _decoded(part: Part, start: int, stop: int, wanted: OutputFormat) -> dict[str, Any]:
    """Return rows of one part as a batch."""
    choice = _choice(part.layout, wanted.columns)
    stored = part.cells(choice.positions, start, stop)
    if choice.is_plain:
        values = map(torch.from_numpy, stored) if wanted.format == "torch" else stored
        return dict(zip(choice.names, values, strict=True))
    batch = {}
    for column, cells in zip(choice.columns, stored, strict=True):
        try:
            values = batch_values(column, cells, wanted.ragged)
        except UndecodableError as error:
            raise _undecodable(part, column, start, stop, error) from error
        if wanted.format == "torch":
            values = tensors(column, values, wanted.ragged)
        batch[column.name] = values
    return batch


def _undecodable(
    part: Part, column: Column, start: int, stop: int, error: UndecodableError
) -> DatasetError:
    """Return the error for values that cannot be decoded; it names the file of the first."""
    position = part.layout.names.index(column.name)
    origin = part.origin(start)
    for row in range(start, stop):
        try:
            batch_values(column, part.cells([position], row, row + 1)[0], "list")
        except UndecodableError as of_one:
            origin, error = part.origin(row), of_one
            break
    return ShardCorruptedError.because(
        origin, f"{column.encoding!r} values in column {column.name!r}", str(error)
    )


def _bounds(part: Part, rows: Int64 | int, start: int, stop: int) -> tuple[int, int]:
    """Return which of a part's rows are rows ``start`` to ``stop`` of the window."""
    if isinstance(rows, int):
        return max(start - rows, 0), min(stop - rows, len(part))
    low, high = np.searchsorted(rows, (start, stop)).tolist()
    return low, high


def gather(sample_ids: Int64, index: ShardIndex, shards_by_id: GetShards) -> tuple[Window, Int64]:
    """Return some samples, one at least, and the shards they are from."""
    run = _run(sample_ids)
    if run:
        return _gather_run(sample_ids, run, index, shards_by_id)
    shard_ids = index.shards_of(sample_ids)
    order, distinct_ids, bounds = group_by_shard(shard_ids, len(index.shard_sizes))
    rows = (sample_ids - index.shard_bounds[shard_ids])[order]
    shards = shards_by_id(distinct_ids)
    wanted = np.empty(len(order), np.int64)
    wanted[order] = np.arange(len(order))
    runs = [
        (shard, rows[a:b], slice(a, b))
        for shard, a, b in zip(shards, bounds, bounds[1:], strict=False)
    ]
    layouts = {id(shard.layout): shard.layout for shard in shards}  # equal ones are one object
    if len(layouts) == 1:
        window = Window([gathered([(s, r) for s, r, _ in runs], wanted)], [0])
        return window, np.array(distinct_ids)
    parts, places = [], []
    for layout in layouts.values():
        of_layout = [run for run in runs if run[0].layout is layout]
        targets = np.concatenate([order[where] for _, _, where in of_layout])
        by_place = np.argsort(targets)
        parts.append(gathered([(shard, r) for shard, r, _ in of_layout], by_place))
        places.append(targets[by_place])
    return Window(parts, places), np.array(distinct_ids)


def _run(sample_ids: Int64) -> int:
    """Return the step between the samples if it is always the same and forwards, else 0."""
    step = int(sample_ids[1] - sample_ids[0]) if len(sample_ids) > 1 else 1
    if step < 1 or sample_ids[-1] - sample_ids[0] != step * (len(sample_ids) - 1):
        return 0
    return step if (np.diff(sample_ids) == step).all() else 0


def _gather_run(
    sample_ids: Int64, step: int, index: ShardIndex, shards_by_id: GetShards
) -> tuple[Window, Int64]:
    """Return samples at a constant distance: views of the shards, nothing is copied."""
    first, last = int(sample_ids[0]), int(sample_ids[-1])
    low, high = index.shards_of(np.array([first, last])).tolist()
    parts: list[Part] = []
    begins: list[Int64 | int] = []
    used = []
    count = 0
    bounds = index.shard_bounds[low : high + 2].tolist()
    for shard_id, begin, end in zip(range(low, high + 1), bounds, bounds[1:], strict=False):
        start = first + count * step - begin
        stop = min(last + 1, end) - begin
        if start >= stop:
            continue  # no sample of this shard, or it is empty
        (shard,) = shards_by_id([shard_id])
        rows = slice(start, stop, step)
        parts.append(viewed(shard, rows))
        begins.append(count)
        used.append(shard_id)
        count += len(parts[-1])
    return Window(parts, begins), np.array(used)
