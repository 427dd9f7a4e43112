"""What the readers share: passes over row groups, and the rows of one shard (``petastorm/reader.py``)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from petastorm_bridge._blocks.columns import (
    Block,
    NullFacts,
    harmonise,
    harmonise_null_lists,
    to_numpy,
)
from petastorm_bridge._sources.source import Source
from petastorm_bridge.cache import NullCache
from petastorm_bridge.transform import transform_schema
from petastorm_bridge.unischema import Unischema, name_of

from ._arguments import ReaderOptions
from ._job import Job, SharedGroups
from ._passes import Passes
from ._pool import Pool
from ._selection import Condition, Selection, filter_fields, parse_filters, select_groups
from ._sharding import Piece, odd_rows, shard_pieces, split_pieces

if TYPE_CHECKING:
    from typing_extensions import Self

_FIELDS_SHOWN = 8
_PLACE_SHOWN = 200  # characters
_RESET_TOO_EARLY = (
    "Currently do not support resetting a reader while in the middle of iteration. "
    "You can call reset only after all samples were consumed."
)


class Reader:
    """Iterates over row groups as namedtuples of NumPy arrays with one entry per row.

    Attributes:
        schema: Fields of the rows, after the transform.
        num_epochs: As asked for.
        batched_output: Always True, as of Petastorm's batch readers.
        ngram: Always None.
        passes: The pass under way, and how others begin.
        rows_repeated: Rows that are read twice in an epoch so that shards are even, of all shards.
        rows_dropped: Rows that no shard reads so that shards are even.
    """

    is_batched_reader = True
    batched_output = True
    ngram: Any = None

    def __init__(
        self, source: Source, options: ReaderOptions, schema: Unischema | None = None
    ) -> None:
        self._options = options
        self.num_epochs = options.num_epochs
        chosen = self._selected_schema(schema or source.schema, source.description)
        filters = parse_filters(options.filters, schema or source.schema)
        self._source = source = source.narrowed({*chosen.fields, *filter_fields(filters)})
        # Only now are the types those of all files.
        fields = (schema or source.schema).fields
        stored = Unischema(name_of(chosen), [fields[name] for name in chosen.fields])
        self.schema = (
            stored
            if options.transform_spec is None
            else transform_schema(stored, options.transform_spec)
        )
        selection = self._select(source, stored, filters)
        if selection.predicate is not None:
            options.check_row_predicate()
        if selection.predicate is not None or selection.filters is not None:
            options.check_rows_are_known()
        self._job = self._make_job(source, stored, selection)
        self.rows_repeated = self.rows_dropped = self._odd_rows = 0
        pieces = self._shard(selection)
        if not pieces:
            warnings.warn(
                "No matching data is available for loading after rowgroup selector were applied "
                "and the data was sharded.",
                stacklevel=3,
            )
        self._pieces = split_pieces(pieces, options.shuffle_row_drop_partitions)
        self._pool: Pool = options.make_pool()
        self.passes = Passes(self._pieces, self._odd_rows, self._job, self._pool, options)

    def _select(
        self, source: Source, stored: Unischema, filters: Sequence[Sequence[Condition]]
    ) -> Selection:
        return select_groups(source, stored, filters, self._options.predicate)

    def _make_job(self, source: Source, stored: Unischema, selection: Selection) -> Job:
        in_parts = self._options.transform_batch_size is not None
        groups = SharedGroups(source) if in_parts else None
        return Job(
            source, stored, self.schema, self._options.transform_spec, selection.predicate,
            selection.filters, groups=groups,
        )  # fmt: skip

    def _shard(self, selection: Selection) -> list[Piece]:
        options = self._options
        groups = selection.groups
        if options.has_separate_sequences and options.shard_count is not None:
            # Which rows begin a sequence follows from all rows before: row groups stay whole.
            return [
                Piece(group, 0, self._source.row_counts[group])
                for i, group in enumerate(groups)
                if i not in selection.dropped and i % options.shard_count == options.cur_shard
            ]
        counts = [self._source.row_counts[group] for group in groups]
        pieces = shard_pieces(
            counts, options.cur_shard, options.shard_count, options.shard_seed, selection.dropped
        )
        if options.even_batches and options.shard_count is not None:
            rows = sum(n for i, n in enumerate(counts) if i not in selection.dropped)
            size = sum(map(len, pieces))
            self._odd_rows = odd_rows(size, rows, options.shard_count, drop_last=options.drop_last)
            added = (size + self._odd_rows) * options.shard_count - rows
            self.rows_repeated, self.rows_dropped = max(added, 0), max(-added, 0)
        return [Piece(groups[piece.group], piece.start, piece.stop) for piece in pieces]

    def _selected_schema(self, schema: Unischema, description: str) -> Unischema:
        asked = self._options.schema_fields
        selected = schema.create_schema_view(asked) if asked else schema
        if not selected.fields:
            raise RuntimeError(
                f"No fields matching the criteria '{asked or None}' were found in the dataset "
                f"{description}."
            )
        return selected

    # What the loaders use.

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Arrow types of the fields read, before the transform."""
        return self._source.types

    @property
    def is_transformed(self) -> bool:
        """Whether a transform stands between the stored columns and the blocks."""
        return self._options.transform_spec is not None

    @property
    def keeps_rows(self) -> bool:
        """Whether every stored row comes through: no predicate, filters or transform."""
        job = self._job
        return job.transform is None and job.predicate is None and job.filters is None

    @property
    def rows_per_pass(self) -> int | None:
        """Rows of a whole pass; None where it is endless or rows may go missing on the way."""
        if self.num_epochs is None or not self.keeps_rows:
            return None
        return self.rows_per_epoch * self.num_epochs

    @property
    def rows_per_epoch(self) -> int:
        """Rows of an epoch as they are stored, before a predicate, filters or a transform."""
        return self.passes.rows_per_epoch

    @property
    def place(self) -> str:
        """Where the rows are, for people."""
        place = self._source.description
        return place[:_PLACE_SHOWN] + "…" if len(place) > _PLACE_SHOWN else place

    def nulls(self, name: str) -> NullFacts:
        """Return what is known of nulls in a field; nothing for one a transform may have made."""
        return NullFacts() if self.is_transformed else self._source.nulls[name]

    def next_block(self) -> Block:
        """Return the next block of the current pass.

        Raises:
            StopIteration: The pass is over.
            RuntimeError: The reader was stopped.
        """
        return next(self.passes.current)

    def blocks(self) -> Iterator[Block]:
        """Yield the rest of the pass."""
        while True:
            try:
                block = self.next_block()
            except StopIteration:
                return
            yield block

    def shown(self, name: str, column: Any) -> Any:
        """Return a column of a block as Petastorm's reader shows it."""
        values = to_numpy(name, column)
        if self.is_transformed:
            return values
        return harmonise(values, self._source.types[name], self._source.nulls[name])

    def _yielded(self, name: str, column: Any) -> Any:
        """Return a column as it stands in the reader's own batches."""
        values = self.shown(name, column)
        # Null lists that a predicate drops spoil nothing. For loaders, which take no objects, the
        # row groups without null lists stay usable.
        if not self.keeps_rows:
            return values
        return harmonise_null_lists(values, self._source.types[name], self._source.nulls[name])

    # Petastorm's reader.

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            block = self.next_block()
            if block.num_rows:
                break
        columns = {name: self._yielded(name, column) for name, column in block.columns.items()}
        return self.schema.make_namedtuple(*(columns[name] for name in self.schema.fields))

    def next(self) -> Any:
        """Return the next row group."""
        return self.__next__()

    def reset(self) -> None:
        """Begin a new pass; no effect after :meth:`stop`.

        Raises:
            NotImplementedError: The current pass is not over.
        """
        if not self.last_row_consumed:
            raise NotImplementedError(_RESET_TOO_EARLY)
        if self.stopped:
            self.passes.current.is_over = False
        else:
            self.passes.begin()

    @property
    def last_row_consumed(self) -> bool:
        """Whether the current pass is over."""
        return self.passes.current.is_over

    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self.passes.stopped.is_set()

    def stop(self) -> None:
        """Stop all workers."""
        self.passes.stopped.set()
        self._source.stop()
        self._pool.close()
        if self._job.groups is not None:
            self._job.groups.forget()

    def join(self) -> None:
        """Wait until all workers have ended."""
        self._pool.close()

    @property
    def cache(self) -> NullCache:
        """Petastorm's cache that keeps nothing, whatever ``cache_type``."""
        return NullCache()

    def cleanup_cache(self) -> None:
        """Do nothing: there is no cache to clean."""

    @property
    def dataset(self) -> Any:
        """Nothing: always an AttributeError, which says what to ask instead."""
        raise AttributeError(
            "Readers of petastorm_bridge have no attribute 'dataset': what they read need not be "
            "Parquet. reader.rows_per_epoch is the number of rows; for files and row groups, "
            "pyarrow.parquet.ParquetDataset opens a Parquet directory."
        )

    @property
    def diagnostics(self) -> dict[str, Any]:
        """How far the workers are: numbers under Petastorm's names, others for each kind of pool."""
        pool = self._pool
        if self._options.reader_pool_type == "dummy":
            return {}
        if self._options.reader_pool_type == "thread":
            return {"output_queue_size": pool.ready}
        return {
            "items_consumed": pool.begun,
            "items_produced": pool.taken,
            "items_inprocess": pool.begun - pool.taken,
            "zmq_copy_buffers": self._options.zmq_copy_buffers,
        }

    def __copy__(self) -> Self:
        """Return another handle on the same pass."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __getstate__(self) -> object:
        raise TypeError(
            f"A {type(self).__name__} cannot be pickled or copied deeply: it has threads and open files. "
            "Pickle the converter, or the url, and open a reader where it is used."
        )

    def __repr__(self) -> str:
        place, names = self.place, list(self.schema.fields)
        fields = ", ".join(names[:_FIELDS_SHOWN]) + (", …" if len(names) > _FIELDS_SHOWN else "")
        rows, groups = self.rows_per_epoch, len({piece.group for piece in self._pieces})
        shard = ""
        if (self._options.shard_count or 1) > 1:
            shard = f", shard {self._options.cur_shard} of {self._options.shard_count}"
            shard += f", {self.rows_repeated} rows repeated" if self.rows_repeated else ""
            shard += f", {self.rows_dropped} rows dropped" if self.rows_dropped else ""
        kind = "near"
        if self._source.ahead is not None:
            kind = f"far, {self._source.ahead.copies.bytes() / 1e6:.1f} MB of it here"
        end = ", stopped" if self.stopped else ""
        return f"<Reader of {place}: {rows} rows, {groups} row groups, {kind}, fields {fields}{shard}{end}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()
