"""What becomes of the columns of a Parquet store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.schema import Field
from petastorm_bridge.mds.types import is_storable, plain_type

Encoder = Callable[[pa.Array], pa.Array]
"""From the column of a batch, as the source stores it, to what the writer takes."""


class UnsupportedColumnsError(TypeError):
    """MDS cannot hold some columns of the source."""


@dataclass(frozen=True)
class ColumnPlan:
    """The columns that are read and those that are written, in the same order.

    Attributes:
        types: Arrow type that each column is read as.
        schema: What the writer gets.
        declared: Columns of encoded values: what these are.
        encoders: How the others differ from what is read; columns without one are written as read.
        origin: What kind of dataset it is, for the summary and the sidecar.
    """

    types: Mapping[str, pa.DataType]
    schema: pa.Schema
    declared: Mapping[str, Field] = field(default_factory=dict)
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    origin: str = "Parquet"

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return what the writer gets of a batch that was read with :attr:`types`.

        Raises:
            DatasetError: Values are not what the dataset's schema says.
        """
        columns = zip(batch.schema.names, batch.columns, strict=True)
        arrays = [self._encoded(name, column) for name, column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _encoded(self, name: str, column: pa.Array) -> pa.Array:
        if name not in self.encoders:
            return column
        try:
            return self.encoders[name](column)
        except (DatasetError, MemoryError):
            raise
        except Exception as error:  # Arrow's, NumPy's and OpenCV's, which do not know the column
            raise DatasetError(
                f"Column {name!r} holds values, stored as {column.type}, that are not what the dataset's "
                f"schema says of it: {error}. Leave it out, or write the dataset anew."
            ) from error


def plan_columns(source: ParquetSource, wanted: Sequence[str] | None) -> ColumnPlan:
    """Return the plan for a plain Parquet store.

    Raises:
        UnsupportedColumnsError: MDS cannot hold some of them.
        ValueError: There is no column of a name.
        DatasetError: The files disagree about one.
    """
    stored = source.types_of(choose(source.columns, wanted))
    types = {name: plain_type(type_) for name, type_ in stored.items()}
    refused = {name: type_ for name, type_ in types.items() if not is_storable(type_)}
    if refused:
        raise _unsupported(refused, [name for name in types if name not in refused])
    return ColumnPlan(types, pa.schema([pa.field(name, type_) for name, type_ in types.items()]))


def choose(names: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """Return the columns that are wanted, in the order of the table.

    Raises:
        ValueError: There is none of a name, or no name is given.
    """
    if wanted is not None and not wanted:
        raise ValueError(f"No column is named. There are: {', '.join(names)}.")
    missing = sorted(set(wanted or ()) - set(names))
    if missing:
        raise ValueError(
            f"There is no column {', '.join(map(repr, missing))}. There are: {', '.join(names)}."
        )
    return [name for name in names if wanted is None or name in wanted]


def _unsupported(
    refused: Mapping[str, pa.DataType], rest: Sequence[str]
) -> UnsupportedColumnsError:
    named = ", ".join(f"{name!r} ({type_})" for name, type_ in refused.items())
    way = f"leave them out: --columns {','.join(rest)}" if rest else "flatten them first"
    return UnsupportedColumnsError(
        f"MDS has no place for these columns: {named}. Cast or flatten them in the source, or {way}."
    )
