"""What a worker does with one visit of a dataset's rows: read, choose, decode, transform, group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._reading.job import Job
from petastorm_bridge._reading.plan import Visit
from petastorm_bridge._reading.sharding import Piece
from petastorm_bridge._sources.source import RowGroup
from petastorm_bridge._stored.decoding import Values, decode_column
from petastorm_bridge.mds.shard import Rows

from .ngrams import Layout

__all__ = ["RowJob", "separate_rows"]


@dataclass(frozen=True)
class RowJob(Job):
    """As :class:`Job`, with predicates and transforms of single rows.

    Attributes:
        layout: The sequences to make of rows, or None.
        fields: Names of the fields to decode: those of the schema, and an n-gram's timestamp.
    """

    layout: Layout | None = None
    fields: Sequence[str] = ()

    def is_cheap(self, visit: Visit) -> bool:
        """Return False: values are decoded."""
        return visit.piece is None

    def run(self, visit: Visit) -> Block:
        """Return the block of one visit; raises whatever the user's functions raise."""
        piece = visit.piece
        if piece is None:
            return Block({}, 0, visit.ends_epoch)
        group = self.source.open(piece.group)
        decoded, count = self._decoded(group, piece.group, self._rows(piece, visit))
        if self.transform is not None and count:
            decoded, count = self._transformed_rows(decoded, count)
        if not count:
            return Block({}, 0, visit.ends_epoch)
        if self.layout is not None:
            decoded, count = self._sequences(decoded)
        else:
            decoded = {name: decoded[name] for name in self.result_schema.fields}
        return Block(decoded, count, visit.ends_epoch)

    def _rows(self, piece: Piece, visit: Visit) -> Rows:
        """Return the rows to read; sequences that begin in a piece may end behind it."""
        stop = piece.stop
        if self.layout is not None:
            rows = self.source.row_counts[piece.group]
            stop = min(stop + self.layout.ngram.length - 1, rows)
        if visit.order is None:
            return slice(piece.start, stop)
        behind = np.arange(piece.stop, stop, dtype=np.int64)
        found: Rows = np.concatenate([visit.order + piece.start, behind])
        return found

    def _decoded(self, group: RowGroup, position: int, rows: Rows) -> tuple[dict[str, Values], int]:
        """Return the values of the rows that filters and predicate leave."""
        predicate = self.predicate
        rows = self._within_filters(group, position, rows)
        if predicate is None:
            return self._values(group, self.fields, rows), _length(rows)
        names = self._predicate_fields()
        asked = self._values(group, names, rows)
        mask = [bool(predicate.do_include(row)) for row in rows_of(asked, names)]
        kept = np.flatnonzero(mask)
        if not len(kept):
            return {}, 0
        whole = len(kept) == len(mask)
        found = asked if whole else {name: _take(values, kept) for name, values in asked.items()}
        left = rows if whole else _chosen(rows, kept)
        others = [name for name in self.fields if name not in found]
        return found | self._values(group, others, left), len(kept)

    def _values(self, group: RowGroup, names: Sequence[str], rows: Rows) -> dict[str, Values]:
        fields = self.source.schema.fields
        group.prefetch(names)
        return {name: decode_column(fields[name], group.load(name, rows)) for name in names}

    def _transformed_rows(
        self, columns: Mapping[str, Values], count: int
    ) -> tuple[dict[str, Values], int]:
        """Return the columns of the rows that the transform makes (``py_dict_reader_worker.py``)."""
        assert self.transform is not None
        rows: Any = rows_of(columns, list(columns))
        if self.transform.func is not None:
            rows = [self.transform.func(row) for row in rows]
        wanted = self._wanted()
        kept: dict[str, list[Any]] = {name: [] for name in wanted}
        for row in rows:
            for name in self.transform.removed_fields:
                row.pop(name, None)
            if not row.keys() >= wanted or (self.layout is None and row.keys() > wanted):
                self.result_schema.make_namedtuple(**row)  # raises, and says what is wrong
            for name in wanted:
                kept[name].append(row[name])
        return dict(kept), count

    def _wanted(self) -> set[str]:
        """Return the names of the fields that rows need in the end."""
        if self.layout is None:
            return set(self.result_schema.fields)
        return {n for names in self.layout.fields.values() for n in names} | {
            self.layout.ngram.timestamp_field.name
        }

    def _sequences(self, columns: Mapping[str, Values]) -> tuple[dict[str, Values], int]:
        assert self.layout is not None
        ngram = self.layout.ngram
        starts = ngram.starts(columns[ngram.timestamp_field.name])
        return self.layout.columns(columns, starts), len(starts)


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


def _length(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _chosen(rows: Rows, kept: Any) -> Rows:
    if isinstance(rows, slice):
        return kept + np.int64(rows.start)  # type: ignore[no-any-return]
    found: Rows = rows[kept]
    return found


def _take(values: Values, kept: Any) -> Values:
    if isinstance(values, np.ndarray):
        found: Values = values[kept]
        return found
    return [values[i] for i in kept.tolist()]
