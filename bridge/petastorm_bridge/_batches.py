"""Cutting a stream of blocks into batches, across block and epoch boundaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._columns import Block

__all__ = ["concatenate", "cut"]

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


def different_shapes(name: str, columns: Sequence[npt.NDArray[Any]]) -> RuntimeError:
    """Return the error for values of different shape in one batch (torch's own words first)."""
    first, other = columns[0], next(c for c in columns if c.shape[1:] != columns[0].shape[1:])
    return RuntimeError(
        f"stack expects each tensor to be equal size, but got {list(first.shape[1:])} and "
        f"{list(other.shape[1:])} in column {name!r}. Pad or cut the values to one shape before "
        "converting or in a TransformSpec."
    )
