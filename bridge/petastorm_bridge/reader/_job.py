"""What a worker does with one visit: read, filter, transform; and row groups that visits share.

One :class:`Job` is made per reader and pickles (for process pools) apart from the user's functions,
which are pickled by cloudpickle.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge._blocks.columns import Block, Column, pooled, to_frame, to_numpy
from petastorm_bridge._sources.source import RowGroup, Source, number_of
from petastorm_bridge._workers.locks import ForkSafeLock
from petastorm_bridge.mds.shard import Rows
from petastorm_bridge.transform import TransformSpec
from petastorm_bridge.unischema import Unischema

from ._plan import Visit
from ._selection import RowFilters

# Visits come row group by row group: threads are at the end of one while others begin with the next.
_KEPT = 2


class SharedGroups:
    """The row groups of a source that were opened last, for threads to share.

    Pickles without them.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._shared = functools.lru_cache(_KEPT)(functools.partial(_SharedGroup, source))
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedGroups, (self._source,)

    def open(self, position: int) -> RowGroup:
        """Return a row group, which is opened when its first column is asked for."""
        with self._lock:  # without, threads that ask at the same time would get two
            return self._shared(position)

    def forget(self) -> None:
        """Drop what is kept; visits under way keep theirs."""
        self._shared.cache_clear()


@dataclass(eq=False)
class _SharedGroup:
    """A row group that one thread at a time loads columns from."""

    source: Source
    position: int
    group: RowGroup | None = None
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)

    def load(self, names: Sequence[str], rows: Rows) -> dict[str, Column]:
        with self.lock:
            if self.group is None:
                self.group = self.source.open(self.position)
            return self.group.load(names, rows)


@dataclass(frozen=True)
class Job:
    """Everything that turns a visit into a block.

    Attributes:
        schema: Fields to read, before the transform.
        result_schema: Fields after it.
        filters: What rows must satisfy besides the predicate, or None.
        groups: Row groups that are read in several visits, or None to open one for each visit.
    """

    source: Source
    schema: Unischema
    result_schema: Unischema
    transform: TransformSpec | None = None
    predicate: Any = None
    filters: RowFilters | None = None
    groups: SharedGroups | None = None

    @property
    def shuffles_rows(self) -> bool:
        """Whether the rows of a visit are shuffled here, and not by its order."""
        return False

    def is_cheap(self, visit: Visit) -> bool:
        """Return whether the visit is done faster than it is handed to another thread."""
        if self.transform is not None or self.predicate is not None or self.filters is not None:
            return False
        return self.source.is_cheap(visit.piece.group)

    def run(self, visit: Visit) -> Block:
        """Return the block of one visit; raises whatever the user's functions raise."""
        piece = visit.piece
        group = (self.groups or self.source).open(piece.group)
        rows: Rows = slice(piece.start, piece.stop)
        if visit.order is not None:
            rows = visit.order + piece.start
        rows = self._filtered(group, piece.group, rows)
        columns = group.load(list(self.schema.fields), rows)
        count = number_of(rows)
        if self.transform is not None:
            if count == 0 and (self.predicate is not None or self.filters is not None):
                return Block({}, 0, visit.ends_epoch)
            columns, count = self._transformed(columns)
        return Block(columns, count, visit.ends_epoch)

    def _filtered(self, group: RowGroup, position: int, rows: Rows) -> Rows:
        rows = self._within_filters(group, position, rows)
        if self.predicate is not None:
            frame = self._frame(group.load(self._predicate_fields(), rows))
            rows = chosen_rows(rows, np.flatnonzero(self._mask(frame)))
        return rows

    def _within_filters(self, group: RowGroup, position: int, rows: Rows) -> Rows:
        filters = self.filters
        expression = filters and filters.expressions[self.source.key(position)]
        if filters is not None and expression is not None:
            columns = group.load(filters.fields, rows)
            table = pa.table(
                {
                    name: pa.array(np.ascontiguousarray(c)) if isinstance(c, np.ndarray) else c
                    for name, c in columns.items()
                }
            )
            positions = pa.array(np.arange(number_of(rows)))
            kept = table.append_column("", positions).filter(expression).column("").to_numpy()
            rows = chosen_rows(rows, kept)
        return rows

    def _predicate_fields(self) -> list[str]:
        wanted = set(self.predicate.get_fields())
        if not wanted:
            raise ValueError(
                "At least one field name must be returned by predicate's get_field() method"
            )
        unknown = wanted - set(self.schema.fields)
        if unknown:
            raise ValueError(
                f"At least some column names requested by the predicate ({', '.join(sorted(unknown))}) "
                f"are not valid schema names: ({', '.join(self.schema.fields)})"
            )
        return [name for name in self.schema.fields if name in wanted]

    def _mask(self, frame: Any) -> npt.NDArray[np.bool_]:
        answer = self.predicate.do_include(frame)
        mask = np.asarray(answer)
        if mask.shape != (len(frame),):
            # Petastorm maps over a Series and fails with this type for a scalar.
            raise AttributeError(
                f"The predicate returned {type(answer).__name__} of shape {mask.shape} for "
                f"{len(frame)} rows; it must return a boolean Series with one entry per row."
            )
        return mask.astype(bool)

    def _frame(self, columns: Mapping[str, Column]) -> Any:
        source = self.source
        # Partition columns come last, as in the tables that Petastorm makes frames of.
        ordered = sorted(columns, key=lambda name: name in source.partitions)
        return to_frame(
            {name: columns[name] for name in ordered},
            source.types,
            source.nulls,
            source.pandas_metadata,
        )

    def _transformed(self, columns: dict[str, Column]) -> tuple[dict[str, Column], int]:
        assert self.transform is not None
        frame = self._frame(columns)
        if self.transform.func is not None:
            frame = self.transform.func(frame)
        if not hasattr(frame, "columns"):
            raise AttributeError(
                f"The transform returned {type(frame).__name__}, which has no attribute 'columns'; "
                "it must return a pandas DataFrame."
            )
        removed = [name for name in self.transform.removed_fields if name in frame.columns]
        if removed:
            frame = frame.drop(columns=removed)
        returned, required = set(frame.columns), set(self.result_schema.fields)
        if returned != required:
            raise ValueError(
                f"Transformed result columns ({','.join(map(str, frame.columns))}) do not match "
                f"required schema columns({','.join(self.result_schema.fields)})"
            )
        return self._columns_of(frame), len(frame)

    def _columns_of(self, frame: Any) -> dict[str, Column]:
        fields = self.result_schema.fields
        ready: dict[str, Column] = {
            n: _stack(frame[n], f) for n, f in fields.items() if len(f.shape) > 1
        }
        for name, partition in self.source.partitions.items():
            categories = partition.dtype.categories
            dtype = getattr(frame[name], "dtype", None) if name in fields else None
            if getattr(dtype, "categories", None) is categories:
                ready[name] = frame[name].array  # Arrow would convert all categories each time
        plain = frame[[name for name in fields if name not in ready]]
        table = pa.Table.from_pandas(plain, preserve_index=False)
        for name in table.column_names:
            chunks = table.column(name)
            array = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
            if str(frame[name].dtype) == "str":  # pandas 3 gives it to texts without another
                array = array.cast(pa.string())  # as pandas 2 gave them, which had objects
            # Numbers as NumPy now, so that batches are cut from arrays.
            is_text = pa.types.is_string(array.type) or pa.types.is_binary(array.type)
            ready[name] = array if is_text else to_numpy(name, array)
        return {name: ready[name] for name in fields}


def _stack(series: Any, field: Any) -> npt.NDArray[Any]:
    """Return the values of a multi-dimensional field, shape ``(rows, *field.shape)``.

    The checks and their messages are those of ``petastorm/arrow_reader_worker.py``.
    """
    shape = tuple(field.shape)
    values = series.tolist()
    for value in values:
        if not isinstance(value, np.ndarray):
            raise ValueError(  # noqa: TRY004 – the type Petastorm raises
                f"field {field.name} must be numpy array type."
            )
        if None in shape:
            raise ValueError(
                f"All dimensions of a shape: {field.shape} in: {field.name} field must be constant."
                " If a dimension is variable, we won't be able to coalesce rows when preparing a"
                " batch."
            )
        if value.shape != shape:
            raise ValueError(
                f"field {field.name} must be the shape {field.shape}, not {value.shape}"
            )
    if not values:
        return np.empty((0, *shape), field.numpy_dtype)
    # Stacked transposed values would not be contiguous, and another copy is as large again.
    dtype = np.result_type(*{value.dtype for value in values})
    return np.stack(values, out=pooled((len(values), *shape), dtype))


def chosen_rows(rows: Rows, kept: npt.NDArray[Any]) -> Rows:
    """Return the rows at some positions among others, in ascending order."""
    if len(kept) == number_of(rows):
        return rows
    if isinstance(rows, slice):
        return np.asarray(kept, np.int64) + np.int64(rows.start)
    return np.asarray(rows[kept])
