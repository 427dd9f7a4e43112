"""What the log of a Delta or Iceberg table says, in one form: columns, live files, rows deleted in them.

Both formats store the positions of deleted rows as 64-bit Roaring bitmaps in the portable format. A few bytes of one
stand for billions of rows, and for positions that no file has. So they are kept as they are stored, and taken apart
when the number of rows of their file is known: in memory for these rows, whatever the bitmap says.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MAGIC = b"\xd1\xd3\x39\x64"
_NO_RUNS, _WITH_RUNS = 12346, 12347  # how a bitmap of 32 bits begins
_HAS_OFFSETS = 4  # containers, from which on a bitmap with runs says where each begins
_LARGEST_ARRAY = 4096  # positions; containers of more are bitmaps
_CONTAINER = 1 << 16


@dataclass(frozen=True)
class LiveColumn:
    """A column of a table, and how its data files call it.

    Attributes:
        name: Name in the table.
        type: Arrow type in the table; files may hold a narrower one.
        nullable: Whether it may hold nulls.
        stored_names: Names in files that are not found by ``field_id``; none if files hold it never.
        field_id: Parquet's field id in the data files, or None if columns go by name.
        default: Value in files that are older than the column.
    """

    name: str
    type: pa.DataType
    nullable: bool
    stored_names: tuple[str, ...]
    field_id: int | None = None
    default: pa.Scalar | None = None


@dataclass(frozen=True)
class LiveFile:
    """A data file that holds live rows.

    Attributes:
        path: As the table's file system understands it.
        size: Bytes, as the log has it.
        constants: Values, all over the file, of columns that it does not hold.
        deleted: Which of its rows are deleted; None for none.
    """

    path: str
    size: int
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    deleted: DeletedRows | None = None


@dataclass(frozen=True)
class LiveTable:
    """One version of a table.

    Attributes:
        columns: In the table's order.
        files: Those with live rows.
        version: Number of the version or snapshot; None for a table that has none yet.
        suffix: Behind the path without a version, names this very version.
    """

    columns: Sequence[LiveColumn]
    files: Sequence[LiveFile]
    version: int | None
    suffix: str


@dataclass(frozen=True)
class DeletedRows:
    """What a log says of the deleted rows of one file.

    Attributes:
        parts: Deletion vectors, each from its magic number on, and arrays of positions in any order.
        count: How many rows are deleted, where the log says so.
    """

    parts: Sequence[bytes | npt.NDArray[np.int64]]
    count: int | None = None

    def mask(self, rows: int) -> npt.NDArray[np.bool_]:
        """Return for each row of the file whether it is deleted.

        Args:
            rows: How many the file has; positions beyond are of no row.

        Raises:
            ValueError: A vector is damaged, or other than as many rows are deleted as the log says.
        """
        deleted = np.zeros(rows, bool)
        for part in self.parts:
            if isinstance(part, bytes):
                _mark(deleted, part)
            else:
                deleted[part[(part >= 0) & (part < rows)]] = True
        if self.count is not None and self.count != np.count_nonzero(deleted):
            raise ValueError(
                f"{np.count_nonzero(deleted)} of {rows} rows are deleted, where the log says {self.count}"
            )
        return deleted


def _mark(deleted: npt.NDArray[np.bool_], vector: bytes) -> None:
    if vector[:4] != _MAGIC:
        raise ValueError("a deletion vector is of another kind")
    stream = io.BytesIO(vector[4:])
    try:
        for _ in range(_number(stream, "<u8")):
            first = _number(stream, "<u4") << 32
            _mark_bitmap(deleted, first, stream)
    except ValueError as error:
        raise ValueError("a deletion vector is cut off") from error


def _mark_bitmap(deleted: npt.NDArray[np.bool_], first: int, stream: BinaryIO) -> None:
    """Mark the rows of a bitmap of 32 bits."""
    cookie = _number(stream, "<u4")
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = _taken(stream, "u1", (count + 7) // 8)
    elif cookie == _NO_RUNS:
        count = _number(stream, "<u4")
        flags = np.zeros(0, np.uint8)
    else:
        raise ValueError(f"a bitmap begins with {cookie}")
    described = _taken(stream, "<u2", 2 * count).reshape(count, 2)
    if not len(flags) or count >= _HAS_OFFSETS:
        _taken(stream, "<u4", count)
    for number, (key, last) in enumerate(described.tolist()):
        begin = first + key * _CONTAINER
        rows = deleted[begin : begin + _CONTAINER]  # none, behind the last row of the file
        if len(flags) and flags[number // 8] >> number % 8 & 1:
            runs = _taken(stream, "<u2", 2 * _number(stream, "<u2")).reshape(-1, 2)
            for start, length in runs.tolist() if len(rows) else ():
                rows[start : start + length + 1] = True
        elif last < _LARGEST_ARRAY:
            positions = _taken(stream, "<u2", last + 1)
            rows[positions[positions < len(rows)]] = True
        else:
            bits = _taken(stream, "u1", _CONTAINER // 8)
            rows |= np.unpackbits(bits, count=len(rows), bitorder="little").astype(bool)


def _number(stream: BinaryIO, dtype: str) -> int:
    return int(_taken(stream, dtype, 1)[0])


def _taken(stream: BinaryIO, dtype: str, count: int) -> npt.NDArray[Any]:
    """Return the next numbers of a stream; ValueError if it has fewer."""
    values = np.frombuffer(stream.read(count * np.dtype(dtype).itemsize), dtype)
    if len(values) < count:
        raise ValueError(f"{len(values)} numbers in place of {count}")
    return values
