"""What a worker does with one visit of a dataset's rows: read, choose, decode, transform, group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._sources.source import RowGroup, number_of
from petastorm_bridge.mds.shard import Rows
from petastorm_bridge.ngram import NGram
from petastorm_bridge.reader._job import Job, chosen_rows
from petastorm_bridge.reader._plan import Visit
from petastorm_bridge.reader._sharding import Piece
from petastorm_bridge.unischema import Unischema

from .decoding import Values, decode_column


def column_name(step: int, field: str) -> str:
    """Return what a block calls a field at a timestep; no field's own name has a slash."""
    return f"{field}/{step}"


@dataclass(frozen=True)
class Layout:
    """Which fields stand at which timestep of sequences, by their names in the order of the schema."""

    ngram: NGram
    fields: Mapping[int, tuple[str, ...]]

    @property
    def timestamp(self) -> str:
        """Name of the field that holds the timestamp; it may be at no timestep."""
        return str(self.ngram.timestamp_field.name)

    @classmethod
    def of(cls, ngram: NGram, schema: Unischema) -> Layout:
        """Return the layout of sequences of rows of a schema."""
        return cls(
            ngram,
            {s: tuple(ngram.get_schema_at_timestep(schema, s).fields) for s in ngram.timesteps},
        )

    def columns(self, columns: Mapping[str, Values], starts: list[int]) -> dict[str, Values]:
        """Return the columns of the sequences that begin at some rows."""
        rows = np.asarray(starts, np.int64)
        return {
            column_name(step, name): values_at(columns[name], rows + i)
            for i, (step, names) in enumerate(self.fields.items())
            for name in names
        }


def values_at(values: Values, rows: npt.NDArray[np.int64]) -> Values:
    """Return the values of a column in some rows."""
    if isinstance(values, np.ndarray):
        taken: Values = values[rows]
        return taken
    return [values[row] for row in rows.tolist()]


@dataclass(frozen=True)
class RowJob(Job):
    """As :class:`Job`, with predicates and transforms of single rows.

    Attributes:
        layout: The sequences to make of rows, or None.
        shuffle_seed: Shuffles the rows of each piece, alike in all row groups and epochs, as in
            Petastorm; None for the order of the visit.
    """

    layout: Layout | None = None
    shuffle_seed: int | None = None

    @property
    def shuffles_rows(self) -> bool:
        """Whether there is a seed."""
        return self.shuffle_seed is not None

    def is_cheap(self, visit: Visit) -> bool:  # noqa: ARG002 - of jobs that do not decode
        """Return False: values are decoded."""
        return False

    def run(self, visit: Visit) -> Block:
        """Return the block of one visit; raises whatever the user's functions raise."""
        piece = visit.piece
        group = self.source.open(piece.group)
        decoded, count = self._decoded(group, piece.group, self._rows(piece, visit))
        if self.transform is not None and count:
            decoded, count = self._transformed_rows(decoded, count)
        if not count:
            return Block({}, 0, visit.ends_epoch)
        if self.layout is not None:
            decoded, count = self._sequences(decoded, count)
        else:
            decoded = {name: decoded[name] for name in self.result_schema.fields}
        return Block(decoded, count, visit.ends_epoch)

    def _rows(self, piece: Piece, visit: Visit) -> Rows:
        """Return the rows to read; sequences that begin in a piece may end behind it."""
        stop = piece.stop
        if self.layout is not None:
            count = self.source.row_counts[piece.group]
            stop = min(stop + self.layout.ngram.length - 1, count)
        if self.shuffle_seed is None and visit.order is None:
            return slice(piece.start, stop)
        first, end = piece.cut_from or (piece.start, piece.stop)
        rows = np.arange(first, max(end, stop))
        if self.shuffle_seed is not None:
            # As `DataFrame.sample(frac=1, random_state=seed)` orders so many rows.
            random = np.random.RandomState(self.shuffle_seed)
            rows[: end - first] = random.permutation(end - first) + first
        inner, behind = np.split(rows[piece.start - first : stop - first], [len(piece)])
        if visit.order is not None:  # shuffled, or a row is left out or read twice
            inner = inner[visit.order]
        order: Rows = np.concatenate([inner, behind])
        return order

    def _decoded(self, group: RowGroup, position: int, rows: Rows) -> tuple[dict[str, Values], int]:
        """Return the values of the rows that filters and predicate leave."""
        predicate = self.predicate
        rows = self._within_filters(group, position, rows)
        if predicate is None:
            return self._values(group, position, list(self.schema.fields), rows), number_of(rows)
        names = self._predicate_fields()
        asked = self._values(group, position, names, rows)
        mask = [bool(predicate.do_include(row)) for row in rows_of(asked, names)]
        kept = np.flatnonzero(mask)
        if not len(kept):
            return {}, 0
        columns = asked
        if len(kept) < len(mask):
            columns = {name: values_at(values, kept) for name, values in asked.items()}
        remaining = chosen_rows(rows, kept)
        others = [name for name in self.schema.fields if name not in columns]
        return columns | self._values(group, position, others, remaining), len(kept)

    def _values(
        self, group: RowGroup, position: int, names: Sequence[str], rows: Rows
    ) -> dict[str, Values]:
        def place(row: int) -> str:
            stored = rows.start + row if isinstance(rows, slice) else rows[row]
            return f"in row {stored} of row group {position}, both counted from 0"

        fields, columns = self.schema.fields, group.load(names, rows)
        return {name: decode_column(fields[name], columns.pop(name), place) for name in names}

    def _transformed_rows(
        self, columns: Mapping[str, Values], count: int
    ) -> tuple[dict[str, Values], int]:
        """Return the columns of the rows that the transform makes (``py_dict_reader_worker.py``)."""
        assert self.transform is not None
        rows: Any = rows_of(columns, list(columns))
        if self.transform.func is not None:
            rows = [_checked(self.transform.func(row)) for row in rows]
        wanted = self._wanted()
        for row in rows:
            for name in self.transform.removed_fields:
                row.pop(name, None)
            if not row.keys() >= wanted or (self.layout is None and row.keys() > wanted):
                self.result_schema.make_namedtuple(**row)  # raises, and says what is wrong
        if self.layout is not None and all(self.layout.timestamp in row for row in rows):
            wanted.add(self.layout.timestamp)
        return {name: [row[name] for row in rows] for name in wanted}, count

    def _wanted(self) -> set[str]:
        """Return the names of the fields that rows need in the end."""
        if self.layout is None:
            return set(self.result_schema.fields)
        return {name for names in self.layout.fields.values() for name in names}

    def _sequences(
        self, columns: Mapping[str, Values], count: int
    ) -> tuple[dict[str, Values], int]:
        assert self.layout is not None
        starts = self.layout.ngram.starts(count, columns.get(self.layout.timestamp))
        return self.layout.columns(columns, starts), len(starts)


def _checked(row: Any) -> Any:
    """Return what a transform made of a row; Petastorm's error where that is no dictionary."""
    if not hasattr(row, "keys"):
        raise TypeError(
            f"The function of transform_spec returned {row!r:.100}, a {type(row).__name__}, for a row; "
            "it must return the row as a dictionary."
        )
    return row


def rows_of(columns: Mapping[str, Values], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows as dictionaries whose arrays belong to nobody else."""
    return [dict(zip(names, row, strict=True)) for row in separate_rows(columns, names)]


def separate_rows(columns: Mapping[str, Values], names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """Return rows as tuples of the columns named, with arrays that belong to nobody else."""
    return zip(*(_separate(columns[name]) for name in names), strict=True)


def _separate(values: Values) -> Any:
    """Return the values one by one: who keeps a row does not keep its whole row group."""
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return (value.copy("K") for value in values)
    return values
