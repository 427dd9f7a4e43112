"""Some of a pass's samples, gathered at once and cut into batches."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
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
from ._parts import Memory, Part, Rows, gathered
from ._values import Format, Ragged, UndecodableError, batch_values, joined, tensors

# In two shards: to copy them takes less than a window for each shard would.
_FEW_BATCHES = 8


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


@dataclass(frozen=True)
class Window:
    """Gathered samples.

    Attributes:
        parts: Samples of one layout each.
        places: Which rows of the window those of each part are, ascending; not looked at for a single part.
    """

    parts: Sequence[Part]
    places: Sequence[Int64] = ()

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def batch(self, start: int, stop: int, wanted: OutputFormat) -> dict[str, Any]:
        """Return rows ``start`` to ``stop``: a column for each of the first row's columns.

        Raises:
            DatasetError: Shards differ in their columns, or a value cannot be decoded.
        """
        if len(self.parts) == 1:
            return _decoded(self.parts[0], start, stop, wanted)
        pieces = []
        for part, places in zip(self.parts, self.places, strict=True):
            low, high = np.searchsorted(places, (start, stop)).tolist()
            if low < high:
                pieces.append((part, low, high, places[low:high] - start))
        if len(pieces) == 1:
            return _decoded(*pieces[0][:3], wanted)
        first = next(part for part, _, _, places in pieces if not places[0])
        leader = _choice(first.layout, wanted.columns)
        plain = OutputFormat(frozenset(leader.names), "numpy", wanted.ragged)
        batches = [_decoded(part, low, high, plain) for part, low, high, _ in pieces]
        for batch in batches:
            if missing := [name for name in leader.names if name not in batch]:
                raise DatasetError(
                    f"Shards in one batch differ in their columns: {missing} are in some only. Name "
                    "those that all have with columns=[...]."
                )
        order = np.argsort(np.concatenate([places for *_, places in pieces]))
        merged = {}
        for column in leader.columns:
            values = joined(column.name, [batch[column.name] for batch in batches], order)
            if wanted.format == "torch":
                values = tensors(column, values, wanted.ragged)
            merged[column.name] = values
        return merged


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


def gather(
    sample_ids: Int64,
    index: ShardIndex,
    open_shard: Callable[[int], Shard],
    memory: Memory,
    size: int | None = None,
) -> tuple[Window, Int64]:
    """Return some samples, one at least, and the shards they are from.

    Args:
        sample_ids: The samples.
        index: Knows their shards.
        open_shard: Opens one of these.
        memory: For what is copied from them.
        size: Rows of a batch. Of samples at a constant distance fewer may come then, whole batches: those that
            are in one shard are views of it, and not copied, unless shards hold only a few batches.
    """
    order = None
    rows: Sequence[Rows]
    if step := _step(sample_ids):
        if size is not None:
            shard_id = int(index.shards_of(sample_ids[:1])[0])
            next_ends = index.shard_bounds[shard_id + 1 : shard_id + 3]
            ends = np.searchsorted(sample_ids, next_ends).tolist()
            if ends[-1] >= _FEW_BATCHES * size:
                sample_ids = sample_ids[: max(ends[0] // size, 1) * size]
        shard_ids, rows = _runs(int(sample_ids[0]), int(sample_ids[-1]), step, index)
    else:
        all_ids = index.shards_of(sample_ids)
        order, shard_ids, bounds = group_by_shard(all_ids, len(index.shard_sizes))
        ordered = (sample_ids - index.shard_bounds[all_ids])[order]
        rows = [ordered[begin:end] for begin, end in itertools.pairwise(bounds)]
    shards = [open_shard(shard_id) for shard_id in shard_ids]
    return _window(list(zip(shards, rows, strict=True)), order, memory), np.array(shard_ids)


def _step(sample_ids: Int64) -> int:
    """Return the step between the samples if it is always the same and forwards, else 0."""
    step = int(sample_ids[1] - sample_ids[0]) if len(sample_ids) > 1 else 1
    if step < 1 or sample_ids[-1] - sample_ids[0] != step * (len(sample_ids) - 1):
        return 0
    return step if (np.diff(sample_ids) == step).all() else 0


def _runs(first: int, last: int, step: int, index: ShardIndex) -> tuple[list[int], list[range]]:
    """Return the shards of samples at a constant distance, and which of their rows these are."""
    low, high = index.shards_of(np.array([first, last])).tolist()
    shard_ids, rows = [], []
    bounds = index.shard_bounds[low : high + 2].tolist()
    for shard_id, (begin, end) in enumerate(itertools.pairwise(bounds), low):
        here = range(first - begin, min(last + 1, end) - begin, step)
        if here:  # otherwise no sample is of this shard, or it is empty
            shard_ids.append(shard_id)
            rows.append(here)
            first += len(here) * step
    return shard_ids, rows


def _window(sources: Sequence[tuple[Shard, Rows]], order: Int64 | None, memory: Memory) -> Window:
    """Return rows of some shards; ``order`` says which row of the window each is, None for that they come in."""
    # Equal layouts are one object.
    has_one_layout = len({id(shard.layout) for shard, _ in sources}) == 1
    if has_one_layout and order is None:
        return Window([gathered(sources, None, memory)])
    if has_one_layout:
        by_place = np.empty_like(order)
        by_place[order] = np.arange(len(by_place))
        return Window([gathered(sources, by_place, memory)])
    ends = np.cumsum([len(rows) for _, rows in sources])
    places = np.split(np.arange(ends[-1]) if order is None else order, ends[:-1])
    by_layout: dict[int, list[tuple[tuple[Shard, Rows], Int64]]] = defaultdict(list)
    for source, place in zip(sources, places, strict=True):
        by_layout[id(source[0].layout)].append((source, place))
    parts, ascending = [], []
    for runs in by_layout.values():
        targets = np.concatenate([place for _, place in runs])
        by_place = np.argsort(targets)
        parts.append(gathered([source for source, _ in runs], by_place, Memory()))
        ascending.append(targets[by_place])
    return Window(parts, ascending)
