"""What the log of a Delta or Iceberg table says, in one form: columns, live files, rows deleted in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from .deleted_rows import DeletedRows


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
