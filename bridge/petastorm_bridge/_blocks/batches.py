"""Cutting a stream of blocks into batches, across block and epoch boundaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .columns import Block

__all__ = ["concatenate", "cut", "cut_groups"]

Batch = dict[str, Any]


def cut(blocks: Iterable[Block], size: int | None) -> Iterator[Batch]:
    """Yield batches of ``size`` rows as freshly allocated, writable arrays.

    Args:
        blocks: Columns are arrays whose first axis is the rows, or lists.
        size: Rows per batch; only the last batch may have fewer. None for one batch of everything.

    Raises:
        RuntimeError: Values of different shape would have to go into one batch.
    """
    carried: list[Batch] = []
    rows = 0
    for block in blocks:
        total = block.num_rows
        columns = list(block.columns.items())
        start = 0
        if rows or size is None:
            start = total if size is None else min(size - rows, total)
            if start:
                carried.append({name: column[:start] for name, column in columns})
                rows += start
            if rows == size:
                yield concatenate(carried)
                carried, rows = [], 0
        if size is None:
            continue
        for begin in range(start, total - size + 1, size):
            end = begin + size
            yield {name: column[begin:end].copy() for name, column in columns}
            start = end
        if start < total:
            # Copied, so that a few rows left over do not keep a whole block in memory.
            carried.append({name: column[start:].copy() for name, column in columns})
            rows += total - start
    if rows:
        yield concatenate(carried)


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


def different_shapes(name: str, columns: Sequence[npt.NDArray[Any]]) -> BatchShapeError:
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
    carried: list[Batch] = []
    rows = 0
    for block in blocks:
        total = block.num_rows
        columns = list(block.columns.items())
        start = 0
        if rows:
            start = min(size - rows, total)
            carried.append({name: column[:start] for name, column in columns})
            rows += start
            if rows == size:
                yield {name: column[np.newaxis] for name, column in concatenate(carried).items()}
                carried, rows = [], 0
        width = sum(_row_bytes(column) for _, column in columns) or 1
        step = max(1, min(most_rows, most_bytes // width) // size) * size
        whole = start + (total - start) // size * size
        for begin in range(start, whole, step):
            end = min(begin + step, whole)
            yield {n: _grouped(column[begin:end], size) for n, column in columns}
        if whole < total and start <= whole:
            carried.append({name: column[whole:].copy() for name, column in columns})
            rows += total - whole
    if rows:
        yield {name: column[np.newaxis] for name, column in concatenate(carried).items()}


def _grouped(column: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    return np.ascontiguousarray(column).reshape(len(column) // size, size, *column.shape[1:])


def _row_bytes(column: npt.NDArray[Any]) -> int:
    return column.dtype.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
