"""``make_reader``, ``make_batch_reader`` and what they return (``petastorm/reader.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from petastorm_bridge._sources.open import normalize_dataset_url_or_urls, open_source

from ._arguments import ReaderOptions
from ._reader import Reader

if TYPE_CHECKING:
    from ._rows.reader import RowReader
    from ._typing import CacheType, PoolType

__all__ = [
    "LOCAL_DISK_CACHE",
    "NULL_CACHE",
    "Reader",
    "make_batch_reader",
    "make_reader",
    "normalize_dataset_url_or_urls",
]

LOCAL_DISK_CACHE = "local-disk"
NULL_CACHE = "null"


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
        reader_pool_type: ``'thread'``, ``'process'`` or ``'dummy'`` (the thread of the loop).
        workers_count: Threads or processes.
        pyarrow_serialize: No effect.
        results_queue_size: At most so many row groups are read ahead, but at least one for each worker.
        seed: Makes every order reproducible, whatever the number of workers.
        shuffle_rows: Shuffle the rows within each row group; with a seed alike in all of them, as
            Petastorm does.
        shuffle_row_groups: Shuffle the order of row groups, anew in every epoch.
        shuffle_row_drop_partitions: Visit each row group in so many parts.
        predicate: Keeps the rows, given as dictionaries, for which it is true.
        rowgroup_selector: Chooses row groups by the indexes stored beside the dataset.
        num_epochs: Passes over the data; None for endless.
        cur_shard: Which shard to read.
        shard_count: Number of shards, whose sizes differ by at most one row.
        shard_seed: Deprecated; orders the row groups of a shard in place of ``seed``.
        cache_type: As in :func:`~petastorm_bridge.make_batch_reader`, and the four that follow.
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
    given = dict(locals())
    # Who reads columns need not wait for what decodes rows.
    from ._rows.reader import RowReader

    options = ReaderOptions.from_arguments(given, make_reader)
    options.check_sequences()
    source = open_source(dataset_url, storage_options, options.cache_settings)
    return RowReader(source, options)


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
        reader_pool_type: ``'thread'``, ``'process'`` or ``'dummy'`` (the thread of the loop).
        workers_count: Threads or processes.
        results_queue_size: At most so many row groups are read ahead, but at least one for each worker.
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
        cache_type: ``'null'`` or ``'local-disk'``. Copies of far files are kept either way; ``'local-disk'`` says
            where, and how many.
        cache_location: The directory for them, in which they stay.
        cache_size_limit: Bytes that they may take.
        cache_row_size_estimate: Checked against the limit, as in Petastorm.
        cache_extra_settings: No effect.
        hdfs_driver: No effect.
        transform_spec: A :class:`~petastorm_bridge.TransformSpec`.
        filters: Parquet-style filters, applied to rows.
        storage_options: Options for remote file systems.
        zmq_copy_buffers: No effect.
        filesystem: No effect for local data.
        convert_early_to_numpy: No effect.
        shard_by_rank: Not in Petastorm: read the shard of this process among those that train
            together, with as many rows on every rank; see
            :func:`petastorm_bridge.reader._ranks.rank_and_world_size`.
        even_batches: Not in Petastorm: whether every shard has as many rows, and so as many batches.
            A shard that lacks a row reads one of its rows again, another one each epoch, as torch's ``DistributedSampler``.
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
    options = ReaderOptions.from_arguments(dict(locals()), make_batch_reader)
    source = open_source(dataset_url_or_urls, storage_options, options.cache_settings)
    return Reader(source, options)
