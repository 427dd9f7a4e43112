"""Readers of row groups (``petastorm/reader.py``): ``make_batch_reader`` and what it returns."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ._blocks.columns import Block, NullFacts, harmonise, harmonise_null_lists, to_numpy
from ._reading.arguments import ReaderOptions
from ._reading.groups import SharedGroups
from ._reading.job import Job
from ._reading.parts import Part, rows_of_part, visits_of_part
from ._reading.plan import (
    Piece,
    Plan,
    Randomness,
    checksum,
    even_pieces,
    in_runs,
    shard_pieces,
    split_pieces,
    without_rows,
)
from ._reading.pool import BlockStream, Pool
from ._reading.ranks import warn_if_all_ranks_read_all
from ._reading.selection import Condition, Selection, filter_fields, parse_filters, select_groups
from ._sources.open import open_source
from ._sources.source import Source
from ._tables.missing import attribute_error, extend_path
from .transform import transform_schema
from .unischema import Unischema, name_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from .typing import CacheType, PoolType

__all__ = ["Reader", "make_batch_reader"]

__path__ = extend_path([])  # so that importing what is missing says why


def __getattr__(name: str) -> Any:
    if name == "make_reader":  # which stands on this module
        from ._rows.reader import make_reader

        return make_reader
    raise attribute_error("reader", name)


_STOPPED = (
    "Trying to read a sample after a reader created by make_reader/make_batch_reader has stopped. "
    "This may happen if the make_reader/make_batch_reader context manager has exited but you try to "
    "fetch a sample from it anyway"
)
_FIELDS_SHOWN = 8
_PLACE_SHOWN = 200  # characters
_RESET_TOO_EARLY = (
    "Currently do not support resetting a reader while in the middle of iteration. "
    "You can call reset only after all samples were consumed."
)


def make_batch_reader(  # noqa: PLR0917 – the signature of Petastorm
    dataset_url_or_urls: str | list[str],
    schema_fields: Any = None,
    reader_pool_type: PoolType = "thread",
    workers_count: int = 10,
    results_queue_size: int = 50,
    seed: int | None = None,
    shuffle_rows: bool = False,
    shuffle_row_groups: bool = True,
    shuffle_row_drop_partitions: int = 1,
    predicate: Any = None,
    rowgroup_selector: Any = None,
    num_epochs: int | None = 1,
    cur_shard: int | None = None,
    shard_count: int | None = None,
    shard_seed: int | None = None,
    cache_type: CacheType | None = "null",
    cache_location: str | None = None,
    cache_size_limit: int | None = None,
    cache_row_size_estimate: int | None = None,
    cache_extra_settings: Mapping[str, Any] | None = None,
    hdfs_driver: str = "libhdfs3",
    transform_spec: Any = None,
    filters: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    zmq_copy_buffers: bool = True,
    filesystem: Any = None,
    convert_early_to_numpy: bool = False,
    *,
    shard_by_rank: bool = False,
    even_batches: bool | None = None,
    drop_last: bool = False,
    transform_batch_size: int | None = None,
) -> Reader:
    """Open an MDS dataset or a Parquet store and return a reader of its row groups.

    The signature is that of ``petastorm.make_batch_reader``; what became of each argument stands on
    the guide's options page.

    Args:
        dataset_url_or_urls: A directory (MDS or Parquet) or a list of files of one dataset.
        schema_fields: Regular expressions; only columns whose whole name matches one are read.
        reader_pool_type: ``'thread'``, ``'process'`` or ``'dummy'`` (the consumer's own thread).
        workers_count: Threads or processes.
        results_queue_size: At most so many row groups are read ahead.
        seed: Makes every order reproducible, whatever the number of workers.
        shuffle_rows: Shuffle the rows within each row group.
        shuffle_row_groups: Shuffle the order of row groups, anew in every epoch.
        shuffle_row_drop_partitions: Visit each row group in so many parts.
        predicate: Keeps the rows for which it is true.
        rowgroup_selector: Refused: it needs Petastorm's own indexes.
        num_epochs: Passes over the data; None for endless.
        cur_shard: Which shard to read.
        shard_count: Number of shards, whose sizes differ by at most one row.
        shard_seed: Deprecated; orders the row groups of a shard in place of ``seed``.
        cache_type: ``'null'`` or ``'local-disk'`` (no effect: shards are local files).
        cache_location: See ``cache_type``.
        cache_size_limit: See ``cache_type``.
        cache_row_size_estimate: See ``cache_type``.
        cache_extra_settings: See ``cache_type``.
        hdfs_driver: No effect.
        transform_spec: A :class:`~petastorm_bridge.TransformSpec`.
        filters: Parquet-style filters, applied to rows.
        storage_options: Options for remote file systems.
        zmq_copy_buffers: No effect.
        filesystem: No effect for local data.
        convert_early_to_numpy: No effect.
        shard_by_rank: Not in Petastorm: read the shard of this process among those that train
            together, with as many rows on every rank; see
            :func:`petastorm_bridge._reading.ranks.rank_and_world_size`.
        even_batches: Not in Petastorm: whether every shard has as many rows, and so as many batches.
            A shard that lacks a row reads its first one again, as torch's ``DistributedSampler``.
            None is True with ``shard_by_rank`` and False without.
        drop_last: Not in Petastorm: drop the rows that would make shards uneven instead of repeating
            some.
        transform_batch_size: Not in Petastorm: the transform gets at most so many rows at once. None
            gives it whole row groups. Smaller frames mean an earlier first batch and less memory.

    Raises:
        FileNotFoundError, OSError: Nothing to read there.
        ValueError, TypeError: A wrong argument, as in Petastorm.
        NoDataAvailableError: More shards than rows.
        RuntimeError: No column is left to read.
    """
    given = {
        "schema_fields": schema_fields,
        "reader_pool_type": reader_pool_type,
        "workers_count": workers_count,
        "results_queue_size": results_queue_size,
        "seed": seed,
        "shuffle_rows": shuffle_rows,
        "shuffle_row_groups": shuffle_row_groups,
        "shuffle_row_drop_partitions": shuffle_row_drop_partitions,
        "predicate": predicate,
        "rowgroup_selector": rowgroup_selector,
        "num_epochs": num_epochs,
        "cur_shard": cur_shard,
        "shard_count": shard_count,
        "shard_seed": shard_seed,
        "cache_type": cache_type,
        "cache_location": cache_location,
        "cache_size_limit": cache_size_limit,
        "cache_row_size_estimate": cache_row_size_estimate,
        "cache_extra_settings": cache_extra_settings,
        "hdfs_driver": hdfs_driver,
        "transform_spec": transform_spec,
        "filters": filters,
        "storage_options": storage_options,
        "zmq_copy_buffers": zmq_copy_buffers,
        "filesystem": filesystem,
        "convert_early_to_numpy": convert_early_to_numpy,
        "shard_by_rank": shard_by_rank,
        "even_batches": even_batches,
        "drop_last": drop_last,
        "transform_batch_size": transform_batch_size,
    }
    options = ReaderOptions.from_arguments(given, _DEFAULTS)
    if options.shard_count is None:
        warn_if_all_ranks_read_all()
    source = open_source(dataset_url_or_urls, storage_options=storage_options)
    return Reader(source, options)


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(make_batch_reader).parameters.items()
}


class Reader:
    """Iterates over row groups as namedtuples of NumPy arrays with one entry per row.

    Attributes:
        schema: Fields of the rows, after the transform.
        num_epochs: As asked for.
        batched_output: Always True, as of Petastorm's batch readers.
        ngram: Always None.
        last_row_consumed: Whether the current pass is over.
        pass_start: What the order of the current pass follows from.
        is_at_start: Whether nothing of the current pass was read.
        stopped: Whether :meth:`stop` was called.
        rows_repeated: Rows that are read twice in an epoch so that shards are even, of all shards.
        rows_dropped: Rows that no shard reads so that shards are even.
    """

    is_batched_reader = True
    batched_output = True
    ngram: Any = None

    def __init__(self, source: Source, options: ReaderOptions) -> None:
        self._options = options
        self.num_epochs = options.num_epochs
        self.stopped = False
        self.last_row_consumed = False
        chosen = self._selected_schema(source)
        filters = parse_filters(options.filters, source)
        self._source = source = source.narrowed({*chosen.fields, *filter_fields(filters)})
        # Only now are the types those of all files.
        stored = Unischema(name_of(chosen), [source.schema.fields[name] for name in chosen.fields])
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
        self.randomness = Randomness(options.seed)
        self.rows_repeated = self.rows_dropped = 0
        pieces = self._shard(selection)
        if not pieces:
            warnings.warn(
                "No matching data is available for loading after rowgroup selector were applied "
                "and the data was sharded.",
                stacklevel=3,
            )
        self._pieces = split_pieces(pieces, options.shuffle_row_drop_partitions)
        self._own_randomness = self.randomness
        self._fresh_passes = 0
        self._part: Part | None = None
        self._plan = self._make_plan(self.randomness)
        self._pool: Pool = options.make_pool()
        self._stream = self._start(self._plan)

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
        counts = [self._source.row_counts[group] for group in groups]
        pieces = shard_pieces(
            counts, options.cur_shard, options.shard_count, options.shard_seed, selection.dropped
        )
        if options.even_batches and options.shard_count is not None:
            rows = sum(n for i, n in enumerate(counts) if i not in selection.dropped)
            pieces = even_pieces(pieces, rows, options.shard_count, drop_last=options.drop_last)
            added = sum(map(len, pieces)) * options.shard_count - rows
            self.rows_repeated, self.rows_dropped = max(added, 0), max(-added, 0)
        return [Piece(groups[piece.group], piece.start, piece.stop) for piece in pieces]

    def _selected_schema(self, source: Source) -> Unischema:
        schema, asked = source.schema, self._options.schema_fields
        selected = schema.create_schema_view(asked) if asked else schema
        if not selected.fields:
            raise RuntimeError(
                f"No fields matching the criteria '{asked or None}' were found in the dataset "
                f"{source.description}."
            )
        return selected

    def _make_plan(self, randomness: Randomness) -> Plan:
        return Plan(
            self._pieces,
            shuffle_pieces=self._options.shuffle_row_groups,
            shuffle_rows=self._options.shuffle_rows,
            randomness=randomness,
        )

    def _start(self, plan: Plan, skipped: int = 0) -> BlockStream:
        epochs = self._options.num_epochs
        if plan is self._plan:
            self.pass_start = plan.state
            self.is_at_start = True
        visits = plan.visits(epochs)
        if self._part is not None:
            visits = visits_of_part(visits, self._part_rows(self._part))
        visits = without_rows(visits, skipped) if skipped else visits
        if self._options.transform_batch_size is not None:
            visits = in_runs(visits, self._options.transform_batch_size)
        return BlockStream(self._job, visits, self._pool, endless=epochs is None)

    def take_part(self, part: Part) -> None:
        """Read only a part of the pass; others read the rest from readers that are made alike.

        Raises:
            ValueError: The pass has not exactly one epoch.
        """
        if self.num_epochs != 1:
            raise ValueError(
                f"Only a pass of one epoch has parts; num_epochs is {self.num_epochs}."
            )
        self._part = part
        self._stream = self._start(self._plan)

    def _part_rows(self, part: Part) -> range:
        return rows_of_part(part, sum(map(len, self._pieces)))

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
    def is_seeded(self) -> bool:
        """Whether the reader's orders come from a seed."""
        return self._options.seed is not None

    @property
    def is_shuffled(self) -> bool:
        """Whether chance decides on the order of blocks or of the rows in them."""
        return bool(self._options.shuffle_row_groups or self._options.shuffle_rows)

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
        if self._part is not None:
            return len(self._part_rows(self._part))
        return sum(map(len, self._pieces))

    @property
    def facts(self) -> dict[str, Any]:
        """What the order of a pass depends on besides its start; JSON-able."""
        part = {} if self._part is None else {"part": [self._part.number, self._part.count]}
        return {
            "rows": self.rows_per_epoch,
            "row_groups": checksum([(p.group, p.start, p.stop) for p in self._pieces]),
            "shuffle_row_groups": bool(self._options.shuffle_row_groups),
            "shuffle_rows": bool(self._options.shuffle_rows),
            "transform_batch_size": self._options.transform_batch_size,  # decides what a shuffle buffer takes
            **part,
        }

    @property
    def place(self) -> str:
        """Where the rows are, for people."""
        place = self._source.description
        return place[:_PLACE_SHOWN] + "…" if len(place) > _PLACE_SHOWN else place

    @property
    def next_start(self) -> dict[str, Any]:
        """What :attr:`pass_start` would be if a pass began now."""
        return self._plan.state

    def restart(self, pass_start: dict[str, Any], skipped: int) -> None:
        """Begin a pass as one that began with :attr:`pass_start`, without its first rows."""
        self._plan.state = pass_start
        self.last_row_consumed = False
        self._stream = self._start(self._plan, skipped)

    def begin_again(self) -> None:
        """Begin a pass whose order does not depend on how far the one before was read."""
        self._fresh_passes += 1
        self.randomness = self._own_randomness.of_pass(self._fresh_passes)
        self._plan = self._make_plan(self.randomness)
        self.last_row_consumed = False
        self._stream = self._start(self._plan)

    def nulls(self, name: str) -> NullFacts:
        """Return what is known of nulls in a field; nothing for one a transform may have made."""
        return NullFacts() if self.is_transformed else self._source.nulls[name]

    def next_block(self) -> Block:
        """Return the next block of the current pass.

        Raises:
            StopIteration: The pass is over.
            RuntimeError: The reader was stopped.
        """
        if self.stopped:
            raise RuntimeError(_STOPPED)
        self.is_at_start = False
        try:
            return next(self._stream)
        except StopIteration:
            self.last_row_consumed = True
            raise

    def blocks(self) -> Iterator[Block]:
        """Yield the rest of the pass."""
        while True:
            try:
                block = self.next_block()
            except StopIteration:
                return
            yield block

    def fresh_pass(self) -> Iterator[Block]:
        """Yield all blocks of a pass of its own, beside any other that is under way.

        Raises:
            RuntimeError: The reader was stopped.
        """
        # Passes may run side by side or be left early, which must not change the next one's order.
        self._fresh_passes += 1
        stream = self._start(self._make_plan(self._own_randomness.of_pass(self._fresh_passes)))
        while True:
            if self.stopped:
                raise RuntimeError(_STOPPED)
            try:
                yield next(stream)
            except StopIteration:
                return

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
        self.last_row_consumed = False
        if not self.stopped:
            self._stream = self._start(self._plan)

    def stop(self) -> None:
        """Stop all workers."""
        self.stopped = True
        self._pool.close()
        if self._job.groups is not None:
            self._job.groups.forget()

    def join(self) -> None:
        """Wait until all workers have ended."""
        self._pool.close()

    def cleanup_cache(self) -> None:
        """Do nothing: there is no cache to clean."""

    @property
    def diagnostics(self) -> dict[str, int]:
        """Petastorm's dictionary; the queue is always reported empty."""
        return {"output_queue_size": 0}

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
        rows, groups = sum(map(len, self._pieces)), len({piece.group for piece in self._pieces})
        shard = ""
        if (self._options.shard_count or 1) > 1:
            shard = f", shard {self._options.cur_shard} of {self._options.shard_count}"
            shard += f", {self.rows_repeated} rows repeated" if self.rows_repeated else ""
            shard += f", {self.rows_dropped} rows dropped" if self.rows_dropped else ""
        end = ", stopped" if self.stopped else ""
        return f"<Reader of {place}: {rows} rows, {groups} row groups, fields {fields}{shard}{end}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()
