"""What the log of a Delta or Iceberg table says, in one form: columns, live files, rows deleted in them.

Both formats store the positions of deleted rows as 64-bit Roaring bitmaps in the portable format. A few bytes of one
stand for billions of rows, and for positions that no file has. So they are kept as they are stored, and taken apart
when the number of rows of their file is known: in memory for these rows, whatever the bitmap says.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MAGIC = b"\xd1\xd3\x39\x64"
_COUNT = struct.Struct("<Q")
_WORD = struct.Struct("<I")
_SHORT = struct.Struct("<H")
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
        vectors: Deletion vectors, each from its magic number on.
        positions: Positions of rows, int64, in any order.
        count: How many rows are deleted, where the log says so.
    """

    vectors: Sequence[bytes] = ()
    positions: Sequence[npt.NDArray[np.int64]] = ()
    count: int | None = None

    def mask(self, rows: int) -> npt.NDArray[np.bool_]:
        """Return for each row of the file whether it is deleted.

        Args:
            rows: How many the file has; positions beyond are of no row.

        Raises:
            ValueError: A vector is damaged, or other than as many rows are deleted as the log says.
        """
        deleted = np.zeros(rows, bool)
        for vector in self.vectors:
            _mark(deleted, vector)
        for positions in self.positions:
            deleted[positions[(positions >= 0) & (positions < rows)]] = True
        if self.count is not None and self.count != np.count_nonzero(deleted):
            raise ValueError(
                f"{np.count_nonzero(deleted)} of {rows} rows are deleted, where the log says {self.count}"
            )
        return deleted


def _mark(deleted: npt.NDArray[np.bool_], vector: bytes) -> None:
    if vector[:4] != _MAGIC:
        raise ValueError("a deletion vector is of another kind")
    try:
        (count,) = _COUNT.unpack_from(vector, 4)
        position = 12
        for _ in range(count):
            (high,) = _WORD.unpack_from(vector, position)
            position = _mark_bitmap(deleted, high << 32, vector, position + 4)
    except (struct.error, ValueError) as error:
        raise ValueError("a deletion vector is cut off") from error


def _mark_bitmap(deleted: npt.NDArray[np.bool_], first: int, vector: bytes, position: int) -> int:
    """Mark the rows of a bitmap of 32 bits; return where it ends."""
    (cookie,) = _WORD.unpack_from(vector, position)
    position += 4
    has_runs = np.zeros(0, bool)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(vector, np.uint8, (count + 7) // 8, position)
        has_runs = np.unpackbits(flags, bitorder="little").astype(bool)
        position += len(flags)
    elif cookie == _NO_RUNS:
        (count,) = _WORD.unpack_from(vector, position)
        position += 4
    else:
        raise ValueError(f"a bitmap begins with {cookie}")
    described = np.frombuffer(vector, "<u2", 2 * count, position).reshape(count, 2)
    position += described.nbytes
    if not len(has_runs) or count >= _HAS_OFFSETS:
        position += 4 * count
    for number, (key, last) in enumerate(described.tolist()):
        is_of_runs = bool(len(has_runs)) and bool(has_runs[number])
        begin = first + key * _CONTAINER
        rows = deleted[begin : begin + _CONTAINER]  # none, behind the last row of the file
        position = _mark_container(rows, vector, position, last + 1, is_of_runs=is_of_runs)
    return position


def _mark_container(
    rows: npt.NDArray[np.bool_], vector: bytes, position: int, count: int, *, is_of_runs: bool
) -> int:
    """Mark some of at most 65,536 rows; return where the container ends."""
    if is_of_runs:
        (count,) = _SHORT.unpack_from(vector, position)
        runs = np.frombuffer(vector, "<u2", 2 * count, position + 2).reshape(count, 2)
        for start, last in runs.tolist() if len(rows) else ():
            rows[start : start + last + 1] = True
        return position + 2 + runs.nbytes
    if count <= _LARGEST_ARRAY:
        positions = np.frombuffer(vector, "<u2", count, position)
        rows[positions[positions < len(rows)]] = True
        return position + positions.nbytes
    bits = np.frombuffer(vector, np.uint8, _CONTAINER // 8, position)
    rows |= np.unpackbits(bits, count=len(rows), bitorder="little").astype(bool)
    return position + bits.nbytes
