"""Columns in a form that torch takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from petastorm_bridge._blocks.columns import Block

if TYPE_CHECKING:
    from petastorm_bridge.reader._reader import Reader


def torch_column(name: str, values: Any) -> Any:
    """Return a column in a form torch takes: uint16 → int32, uint32 → int64, bool → uint8.

    datetime64 and timedelta64 stay as they are, for a user's own function to make numbers of.

    Raises:
        TypeError: Strings, bytes or objects (text of ``petastorm/pytorch.py``).
    """
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind in "SUO":
        raise TypeError(
            f"Pytorch does not support arrays of string or object classes. Found in field {name}."
        )
    if values.dtype == np.uint16:
        return values.astype(np.int32)
    if values.dtype == np.uint32:
        return values.astype(np.int64)
    return values.view(np.uint8) if values.dtype == np.bool_ else values


def refuse_datetimes(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks of which tensors are made without a function of the user's.

    Raises:
        TypeError: A column of datetime64 or timedelta64, of which torch has no type.
    """
    for block in blocks:
        for name, values in block.columns.items():
            if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
                raise TypeError(
                    f"can't convert np.ndarray of type {values.dtype.type.__module__}."
                    f"{values.dtype.type.__name__} in column {name!r} to a tensor. Convert it to a "
                    "number in a TransformSpec, or leave it out with schema_fields."
                )
        yield block


def torch_block(reader: Reader, block: Block) -> Block:
    """Return a block with every column in a form torch takes."""
    columns: dict[str, Any] = {}
    if not block.num_rows:  # no type matters, as in Petastorm, which drops what is empty
        return Block(columns, 0, block.ends_epoch)
    for name, column in block.columns.items():
        if isinstance(column, pa.Array) and _is_text(column.type):
            torch_column(name, np.empty(0, object))  # raises, without building the strings first
        columns[name] = torch_column(name, reader.shown(name, column))
    return Block(columns, block.num_rows, block.ends_epoch)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))
