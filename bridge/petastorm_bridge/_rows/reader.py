"""``make_reader``: the rows of a dataset that Petastorm wrote, one by one (``petastorm/reader.py``)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._reading.arguments import ReaderOptions
from petastorm_bridge._reading.job import Job
from petastorm_bridge._reading.plan import Piece, Plan
from petastorm_bridge._reading.pool import BlockStream
from petastorm_bridge._reading.ranks import warn_if_all_ranks_read_all
from petastorm_bridge._reading.selection import Condition, Selection
from petastorm_bridge._sources.source import Source
from petastorm_bridge.mds.locks import ForkSafeLock
from petastorm_bridge.ngram import NGram
from petastorm_bridge.reader import Reader
from petastorm_bridge.unischema import Unischema, tuple_class

from .job import RowJob, separate_rows
from .ngrams import Layout, column_name
from .source import StoredSource

if TYPE_CHECKING:
    from petastorm_bridge.typing import CacheType, PoolType

__all__ = ["RowReader", "make_reader"]


def make_reader(  # noqa: PLR0917 – the signature of Petastorm
    dataset_url: Any,
    schema_fields: Any = None,
    reader_pool_type: PoolType = "thread",
    workers_count: int = 10,
    pyarrow_serialize: bool = False,
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
    drop_last: bool = False,
) -> RowReader:
    """Open a dataset that Petastorm wrote and return a reader of its rows.

    The signature is that of ``petastorm.make_reader``; what became of each argument stands on the
    guide's options page. A plain Parquet store, or an MDS dataset, is read with a warning.

    Args:
        dataset_url: A directory with ``_common_metadata``.
        schema_fields: Fields and regular expressions of whole names, None for all, or an
            :class:`~petastorm_bridge.ngram.NGram`.
        reader_pool_type: ``'thread'``, ``'process'`` or ``'dummy'`` (the consumer's own thread).
        workers_count: Threads or processes.
        pyarrow_serialize: No effect.
        results_queue_size: At most so many row groups are read ahead.
        seed: Makes every order reproducible, whatever the number of workers.
        shuffle_rows: Shuffle the rows within each row group.
        shuffle_row_groups: Shuffle the order of row groups, anew in every epoch.
        shuffle_row_drop_partitions: Visit each row group in so many parts.
        predicate: Keeps the rows, given as dictionaries, for which it is true.
        rowgroup_selector: Chooses row groups by the indexes stored beside the dataset.
        num_epochs: Passes over the data; None for endless.
        cur_shard: Which shard to read.
        shard_count: Number of shards, whose sizes differ by at most one row.
        shard_seed: Deprecated; orders the row groups of a shard in place of ``seed``.
        cache_type: ``'null'`` or ``'local-disk'`` (no effect).
        cache_location: See ``cache_type``.
        cache_size_limit: See ``cache_type``.
        cache_row_size_estimate: See ``cache_type``.
        cache_extra_settings: See ``cache_type``.
        hdfs_driver: No effect.
        transform_spec: A :class:`~petastorm_bridge.TransformSpec` whose function takes and returns
            a row as a dictionary.
        filters: Parquet-style filters, applied to stored values.
        storage_options: Options for remote file systems.
        zmq_copy_buffers: No effect.
        filesystem: No effect.
        convert_early_to_numpy: No effect.
        shard_by_rank: As in :func:`~petastorm_bridge.make_batch_reader`.
        drop_last: As in :func:`~petastorm_bridge.make_batch_reader`.

    Raises:
        FileNotFoundError, OSError: Nothing to read there.
        ValueError, TypeError: A wrong argument, as in Petastorm.
        NoDataAvailableError: More shards than rows.
        StoredSchemaError: The stored schema is damaged, or names what is no part of a schema.
        RuntimeError: No field is left to read.
    """
    given = {
        "schema_fields": schema_fields,
        "reader_pool_type": reader_pool_type,
        "workers_count": workers_count,
        "pyarrow_serialize": pyarrow_serialize,
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
        "drop_last": drop_last,
    }
    options = ReaderOptions.from_arguments(given, _DEFAULTS, "make_reader")
    _check_ngram(options)
    if options.shard_count is None:
        warn_if_all_ranks_read_all()
    return RowReader(StoredSource(dataset_url, storage_options), options)


_DEFAULTS = {
    name: parameter.default for name, parameter in inspect.signature(make_reader).parameters.items()
}


def _check_ngram(options: ReaderOptions) -> None:
    ngram = options.schema_fields
    if not isinstance(ngram, NGram) or ngram.timestamp_overlap:
        return
    if options.shuffle_row_drop_partitions > 1:
        raise NotImplementedError(
            "Using timestamp_overlap=False is not implemented with"
            " shuffle_options.shuffle_row_drop_partitions > 1"
        )
    if options.shard_by_rank:
        raise ValueError(
            "shard_by_rank=True promises as many sequences on every rank, which nobody knows where "
            "timestamp_overlap=False. Pass cur_shard and shard_count."
        )


class RowReader(Reader):
    """Iterates over rows as namedtuples, or over sequences of them as dictionaries of namedtuples.

    Attributes:
        ngram: The sequences asked for, or None.
    """

    is_batched_reader = False
    batched_output = False

    def __init__(self, source: StoredSource, options: ReaderOptions) -> None:
        self._lock = ForkSafeLock()
        self._rows: Iterator[Any] = iter(())
        self._block = Block({}, 0)
        self._taken = 0
        self._stored = source
        self.ngram = None
        if isinstance(options.schema_fields, NGram):
            self.ngram = options.schema_fields
            self.ngram.resolve_regex_field_names(source.schema)
        super().__init__(source, options)

    # What is different from a reader of row groups.

    def _selected_schema(self, source: Source) -> Unischema:
        if self.ngram is None:
            return super()._selected_schema(source)
        wanted = {field.name for field in self.ngram.get_field_names_at_all_timesteps()}
        fields = [field for name, field in source.schema.fields.items() if name in wanted]
        return source.schema.create_schema_view(fields)

    def _needed(self, schema: Unischema) -> list[str]:
        names = list(schema.fields)
        if self.ngram is not None and self.ngram.timestamp_field.name not in names:
            names.append(self.ngram.timestamp_field.name)
        return names

    def _select(
        self, source: Source, stored: Unischema, filters: Sequence[Sequence[Condition]]
    ) -> Selection:
        selection = super()._select(source, stored, filters)
        selector = self._options.rowgroup_selector
        if selector is None:
            return selection
        indexes = self._stored.indexes()
        wanted = selector.get_index_names()
        if not set(wanted) <= set(indexes):
            raise ValueError(
                f"Some of required indexes {wanted} are not available in {list(indexes)}"
            )
        selected = selector.select_row_groups(indexes)
        dropped = {i for i, group in enumerate(selection.groups) if group not in selected}
        return Selection(
            selection.groups, selection.dropped | dropped, selection.filters, selection.predicate
        )

    def _make_job(self, source: Source, stored: Unischema, selection: Selection) -> Job:
        layout = None if self.ngram is None else Layout.of(self.ngram, self.schema)
        return RowJob(
            source, stored, self.schema, self._options.transform_spec, selection.predicate,
            selection.filters, layout=layout, fields=self._needed(stored),
        )  # fmt: skip

    def _shard(self, selection: Selection) -> list[Piece]:
        options = self._options
        if self.ngram is None or self.ngram.timestamp_overlap or options.shard_count is None:
            return super()._shard(selection)
        # Which rows begin a sequence follows from all rows before: row groups stay whole.
        return [
            Piece(group, 0, self._source.row_counts[group])
            for i, group in enumerate(selection.groups)
            if i not in selection.dropped and i % options.shard_count == options.cur_shard
        ]

    @property
    def keeps_rows(self) -> bool:
        """Whether every stored row comes through by itself."""
        return self.ngram is None and super().keeps_rows

    def _start(self, plan: Plan, skipped: int = 0) -> BlockStream:
        if plan is self._plan:
            self._take(Block({}, 0))
        return super()._start(plan, skipped)

    # Rows.

    def __next__(self) -> Any:
        with self._lock:
            if self.stopped:
                super().next_block()  # raises
            while True:
                for row in self._rows:
                    self._taken += 1
                    return row
                self._take(super().next_block())

    def next_block(self) -> Block:
        """Return what is left of the rows that are being taken one by one, else the next block.

        Raises:
            StopIteration: The pass is over.
            RuntimeError: The reader was stopped.
        """
        with self._lock:
            block, taken = self._block, self._taken
            self._take(Block({}, 0))
            if taken < block.num_rows and not self.stopped:
                columns = {name: values[taken:] for name, values in block.columns.items()}
                return Block(columns, block.num_rows - taken, block.ends_epoch)
            return super().next_block()

    def _take(self, block: Block) -> None:
        self._block, self._taken = block, 0
        self._rows = iter(self.rows(block))

    def rows(self, block: Block) -> Iterator[Any]:
        """Yield the rows of a block as the reader's own iteration does."""
        if not block.num_rows:
            return iter(())
        if self.ngram is not None:
            return self._sequences(block)
        make = tuple_class(self.schema)._make
        return map(make, separate_rows(block.columns, self.schema.fields))

    def _sequences(self, block: Block) -> Iterator[dict[int, Any]]:
        assert self.ngram is not None
        steps = []
        for step in self.ngram.timesteps:
            schema = self.ngram.get_schema_at_timestep(self.schema, step)
            make = tuple_class(schema)._make
            names = [column_name(step, name) for name in schema.fields]
            rows = separate_rows(block.columns, names) if names else [()] * block.num_rows
            steps.append(map(make, rows))
        for sequence in zip(*steps, strict=True):
            yield dict(zip(self.ngram.timesteps, sequence, strict=True))

    def shown(self, name: str, column: Any) -> Any:  # noqa: ARG002 – of readers that show Arrow's
        """Return a column of a block: its values are those of the rows already."""
        return column
