"""Columns in a form that torch takes: of row groups, of our readers of rows, and of readers that are not ours.

A loader's columns are arrays of numbers, or arrays of objects where values are texts, decimals or
arrays of differing shape. Which of both a field is follows from the schema, so that it is the same all
over a dataset.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge.codecs import NdarrayCodec, ScalarCodec
from petastorm_bridge.mds.types import is_bytes, is_text
from petastorm_bridge.reader._reader import Reader
from petastorm_bridge.reader._rows.reader import RowReader

SEQUENCES = ""
"""Name of the one column of blocks of n-grams: dictionaries of dictionaries."""

_ROWS_AT_ONCE = 32  # of a reader that gives them one by one


def is_of_rows(reader: Any) -> bool:
    """Return whether a reader gives single rows."""
    return not getattr(reader, "batched_output", True)


def refuse_sequences(reader: Any, loader: str) -> None:
    """Refuse, with TypeError, a reader of n-grams, which only ``DataLoader`` knows."""
    if getattr(reader, "ngram", None) is not None:
        raise TypeError(f"{loader} takes no n-grams, as in Petastorm; DataLoader does.")


def torch_blocks(reader: Any) -> Iterator[Block]:
    """Yield the rest of a reader's pass with every column in a form torch takes.

    Raises:
        TypeError: A value that torch does not take (texts of ``petastorm/pytorch.py``).
    """
    if getattr(reader, "ngram", None) is not None:
        return _gathered(reader, _sequences)
    if isinstance(reader, RowReader):
        return map(_of_reader(reader), reader.blocks())
    if isinstance(reader, Reader):
        return (torch_block(reader, block) for block in reader.blocks())
    if is_of_rows(reader):
        return _gathered(reader, _columns)
    return map(_batch, reader)


def _of_reader(reader: RowReader) -> Callable[[Block], Block]:
    # What a transform makes need not be what it says.
    fields = reader.schema.fields.values()
    arrays = {f.name for f in fields if not reader.is_transformed and _is_regular(f)}

    def convert(block: Block) -> Block:
        columns = {
            name: _array(name, values) if name in arrays else _objects(name, values)
            for name, values in block.columns.items()
        }
        return Block(columns, block.num_rows, block.ends_epoch)

    return convert


def _is_regular(field: Any) -> bool:
    """Return whether a field holds numbers of one shape in every row."""
    try:
        kind = np.dtype(field.numpy_dtype).kind
    except TypeError:
        return False
    if kind not in "biuf":
        return False
    if type(field.codec) is NdarrayCodec:
        return not field.nullable and None not in field.shape and field.shape != ()
    return field.shape == () and (field.codec is None or type(field.codec) is ScalarCodec)


def _array(name: str, values: Any) -> npt.NDArray[Any]:
    if isinstance(values, list):
        if any(value is None for value in values):
            raise _null(name)
        values = np.stack(values)
    if values.ndim > 1:
        return torch_column(name, values)  # type: ignore[no-any-return]
    # Single numbers keep their type: torch's collate knows them all.
    array: npt.NDArray[Any] = values.view(np.uint8) if values.dtype == np.bool_ else values
    return array


def _objects(name: str, values: Any) -> npt.NDArray[np.object_]:
    return _object_array([torch_value(name, value) for value in values])


def _object_array(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), object)
    for i, value in enumerate(values):  # at once, NumPy would look into arrays
        array[i] = value
    return array


def torch_value(name: str, value: Any) -> Any:
    """Return one value of a row in a form torch takes; TypeError for None, or an array of strings or objects."""
    if value is None:
        raise _null(name)
    if isinstance(value, np.bool_):
        return np.uint8(value)
    if isinstance(value, np.ndarray):
        return torch_column(name, value)
    return value


def _null(name: str) -> TypeError:
    return TypeError(f"Pytorch does not support nullable fields. Found None in {name}")


def _gathered(reader: Any, columns: Callable[[list[Any]], dict[str, Any]]) -> Iterator[Block]:
    rows = iter(reader)
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        yield Block(columns(some), len(some))


def _columns(rows: list[Any]) -> dict[str, Any]:
    return {name: _objects(name, [getattr(row, name) for row in rows]) for name in rows[0]._fields}


def _sequences(rows: list[Any]) -> dict[str, Any]:
    plain = [
        {
            step: {name: torch_value(name, value) for name, value in row._asdict().items()}
            for step, row in sequence.items()
        }
        for sequence in rows
    ]
    return {SEQUENCES: _object_array(plain)}


def _batch(batch: Any) -> Block:
    columns = {name: torch_column(name, np.asarray(v)) for name, v in batch._asdict().items()}
    return Block(columns, len(next(iter(columns.values()))) if columns else 0)


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
    """Yield blocks; TypeError for datetime64 and timedelta64, of which only a user's function makes tensors."""
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
        if isinstance(column, pa.Array) and (is_text(column.type) or is_bytes(column.type)):
            torch_column(name, np.empty(0, object))  # raises, without building the strings first
        columns[name] = torch_column(name, reader.shown(name, column))
    return Block(columns, block.num_rows, block.ends_epoch)
