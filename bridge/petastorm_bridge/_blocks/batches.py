"""Cutting a stream of blocks into batches, across block and epoch boundaries."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import Block

Batch = dict[str, Any]


class Run(NamedTuple):
    """Rows that make whole batches, or at the end of everything a last, shorter one.

    Attributes:
        columns: Columns of which they are rows ``start`` to ``stop``.
        start: The first of them.
        stop: Behind the last one.
        is_joined: Whether ``columns`` are one batch in fresh arrays, put together of several blocks.
    """

    columns: Mapping[str, Any]
    start: int
    stop: int
    is_joined: bool


def runs(
    blocks: Iterable[Block], size: int, join: Callable[[Sequence[Batch]], Batch]
) -> Iterator[Run]:
    """Yield the rows of all blocks in runs of whole batches, as soon as they are complete.

    What is left over of a block waits for rows of the next ones, across epochs.

    Args:
        blocks: Any columns that can be sliced.
        size: Rows per batch.
        join: Puts the rows of one or more blocks together in fresh arrays, as :func:`concatenate`.
    """
    carried: list[Batch] = []
    rows = 0
    for block in blocks:
        total = block.num_rows
        columns = block.columns
        if not total:
            continue  # it may lack columns, too
        start = 0
        if rows:
            start = min(size - rows, total)
            carried.append(_part(columns, 0, start))
            rows += start
            if rows == size:
                yield Run(join(carried), 0, size, is_joined=True)
                carried, rows = [], 0
        whole = start + (total - start) // size * size
        if start < whole:
            yield Run(columns, start, whole, is_joined=False)
        if whole < total:
            # Copied, so that a few rows left over do not keep a whole block in memory.
            carried.append(join([_part(columns, whole, total)]) if whole else dict(columns))
            rows += total - whole
    if rows:
        yield Run(join(carried), 0, rows, is_joined=True)


def _part(columns: Mapping[str, Any], start: int, stop: int) -> Batch:
    return {name: column[start:stop] for name, column in columns.items()}


def cut(blocks: Iterable[Block], size: int | None) -> Iterator[Batch]:
    """Yield batches of ``size`` rows as freshly allocated, writable arrays.

    Args:
        blocks: Columns are arrays whose first axis is the rows, or lists.
        size: Rows per batch; only the last batch may have fewer. None for one batch of everything.

    Raises:
        RuntimeError: Values of different shape would have to go into one batch.
    """
    step = sys.maxsize if size is None else size

    def batches(run: Run) -> Iterator[Batch]:
        if run.is_joined:
            yield dict(run.columns)
            return
        columns = list(run.columns.items())
        for start in range(run.start, run.stop, step):
            stop = start + step
            yield {name: column[start:stop].copy() for name, column in columns}

    return divided(runs(blocks, step, concatenate), batches)


def divided(found: Iterator[Run], divide: Callable[[Run], Iterator[Batch]]) -> Iterator[Batch]:
    """Yield what each run is divided into; unlike a loop, this keeps no run until the next one."""
    return itertools.chain.from_iterable(map(divide, found))


def concatenate(parts: Sequence[Batch]) -> Batch:
    """Return the rows of several batches as one, in fresh arrays."""
    if len(parts) == 1:
        return {name: column.copy() for name, column in parts[0].items()}
    return {name: _join(name, [part[name] for part in parts]) for name in parts[0]}


def _join(name: str, columns: list[Any]) -> Any:
    if isinstance(columns[0], list):
        return [value for column in columns for value in column]
    shapes = {column.shape[1:] for column in columns}
    if len(shapes) > 1:
        raise different_shapes(name, columns)
    return np.concatenate(columns)


class BatchShapeError(RuntimeError, ValueError):
    """Values of different shape in one batch: torch's type of error, and what TensorFlow expects."""


def different_shapes(name: str, columns: Sequence[Any]) -> BatchShapeError:
    """Return the error for values of different shape in one batch (torch's own words first)."""
    first, other = columns[0], next(c for c in columns if c.shape[1:] != columns[0].shape[1:])
    return BatchShapeError(
        f"stack expects each tensor to be equal size, but got {list(first.shape[1:])} and "
        f"{list(other.shape[1:])} in column {name!r}. Pad or cut the values to one shape before "
        "converting or in a TransformSpec."
    )


def cut_groups(
    blocks: Iterable[Block], size: int, most_rows: int, most_bytes: int
) -> Iterator[Batch]:
    """Yield groups of equal batches: arrays of shape ``(batches, size, …)``.

    The batches are those of :func:`cut`; a group never waits for rows of a later block.

    Args:
        blocks: Columns are arrays whose first axis is the rows.
        size: Rows per batch.
        most_rows: Rows in a group, unless a single batch has more.
        most_bytes: Bytes in a group, unless a single batch has more.
    """

    def groups(run: Run) -> Iterator[Batch]:
        width = sum(map(_row_bytes, run.columns.values())) or 1
        step = max(1, min(most_rows, most_bytes // width) // size) * size
        for start in range(run.start, run.stop, step):
            part = _part(run.columns, start, min(start + step, run.stop))
            yield {name: _grouped(column, size) for name, column in part.items()}

    return divided(runs(blocks, size, concatenate), groups)


def _grouped(column: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    size = min(size, len(column))  # the last batch of all may be shorter
    return np.ascontiguousarray(column).reshape(len(column) // size, size, *column.shape[1:])


def _row_bytes(column: npt.NDArray[Any]) -> int:
    return column.dtype.itemsize * math.prod(column.shape[1:])
