"""``make_spark_converter`` and what it returns, with Petastorm's names and signatures.

This module is the face; the work is done by its private neighbours. Names that begin with an
underscore here exist because programs and tests import or patch them in Petastorm's module.
"""

from __future__ import annotations

import inspect
import logging
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar, overload

from petastorm_bridge._tables.missing import attribute_error, extend_path
from petastorm_bridge.fs_utils import (
    LocalFileSystem,
    get_filesystem_and_path_or_paths,
    masked,
    normalize_dir_url,
)
from petastorm_bridge.reader import make_batch_reader
from petastorm_bridge.reader._arguments import refuse_unknown
from petastorm_bridge.reader._ranks import launcher_rank_and_size

from . import _session
from ._directory import conversions, dataset, deletion, mounted, urls
from ._session import ArgumentTypeError
from ._writing import codecs, jobs
from ._writing.codecs import DEFAULT_ROW_GROUP_SIZE_BYTES
from ._writing.columns import Precision, checked_dtype, vectors_to_arrays
from ._writing.materialize import Options, materialize, new_directory_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Unpack

    from petastorm_bridge.pytorch import DataLoader
    from petastorm_bridge.reader._typing import ReaderArguments

__all__ = [
    "DEFAULT_ROW_GROUP_SIZE_BYTES",
    "SparkDatasetConverter",
    "TFDatasetContextManager",
    "TorchDatasetContextManager",
    "make_spark_converter",
    "register_delete_dir_handler",
]

__path__ = extend_path([])  # so that importing what is missing says why

logger = logging.getLogger(__name__)

CompressionCodec = Literal[
    "uncompressed", "bzip2", "gzip", "lz4", "snappy", "deflate",
    "UNCOMPRESSED", "BZIP2", "GZIP", "LZ4", "SNAPPY", "DEFLATE",
]  # fmt: skip

LoaderT = TypeVar("LoaderT")
"""What a ``data_loader_fn`` makes."""

_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS = 30

_DEFAULT_WORKERS = 4

_READER_ARGUMENTS = tuple(inspect.signature(make_batch_reader).parameters)

_delete_dir_handler: Callable[[str], object] = deletion.default_delete_handler

_cache_df_meta_list: list[conversions.CacheEntry] = []
_conversions = conversions.ConversionCache(_cache_df_meta_list)


def __getattr__(name: str) -> Any:
    raise attribute_error("spark.spark_dataset_converter", name)


def register_delete_dir_handler(handler: Callable[[str], object] | None) -> None:
    """Set the function that deletes a cache directory, given its URL.

    It serves ``converter.delete()`` and the deletion at exit, for directories that the bridge made.

    Args:
        handler: The function; None restores the default, which removes the directory's files.
    """
    global _delete_dir_handler  # noqa: PLW0603 - the name that Petastorm's users patch
    _delete_dir_handler = deletion.default_delete_handler if handler is None else handler


class _ReaderContext(ABC, Generic[LoaderT]):
    """Opens a reader; closes it on exit, and when making the loader fails."""

    _made_by: str  # the converter's method
    _own_arguments: tuple[str, ...]  # of that method
    parquet_file_url_list: list[str]
    batch_size: int | None
    petastorm_reader_kwargs: dict[str, Any]
    reader: Any

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"'{type(self).__name__}' object is not iterable: it opens the files when it is entered. "
            "Write: with converter.make_…(…) as batches: for batch in batches: …"
        )

    def __repr__(self) -> str:
        files = self.parquet_file_url_list
        where = f" in {masked(files[0].rpartition('/')[0])}" if files else ""
        return (
            f"<{type(self).__name__} of {len(files)} files{where}, batch_size={self.batch_size}; "
            "enter it with 'with'>"
        )

    def __enter__(self) -> LoaderT:
        unknown = [name for name in self.petastorm_reader_kwargs if name not in _READER_ARGUMENTS]
        refuse_unknown(self._made_by, unknown, [*self._own_arguments, *_READER_ARGUMENTS])
        _wait_file_available(self.parquet_file_url_list)
        self.reader = make_batch_reader(self.parquet_file_url_list, **self.petastorm_reader_kwargs)
        try:
            return self._loader_of(self.reader)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    @abstractmethod
    def _loader_of(self, reader: Any) -> LoaderT:
        """Return what the context gives."""

    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object) -> None:
        self.reader.stop()
        self.reader.join()


@dataclass(repr=False, eq=False)
class TFDatasetContextManager(_ReaderContext[Any]):
    """Opens a reader and gives a ``tf.data.Dataset`` on it until the context is left.

    Args:
        parquet_file_url_list: URLs of the files to read (MDS shards or Parquet files).
        batch_size: Rows per batch; None or 0 means 32.
        prefetch: Batches to prepare ahead; None lets TensorFlow decide.
        petastorm_reader_kwargs: For :func:`petastorm_bridge.make_batch_reader`.
        shuffling_queue_capacity: Rows to shuffle among; None or 0 for none.
    """

    _made_by = "make_tf_dataset"
    _own_arguments = ("batch_size", "prefetch", "shuffling_queue_capacity")

    parquet_file_url_list: list[str]
    batch_size: int | None
    prefetch: int | None
    petastorm_reader_kwargs: dict[str, Any]
    shuffling_queue_capacity: int | None

    def _loader_of(self, reader: Any) -> Any:
        from petastorm_bridge.tf_utils import make_batched_dataset

        return make_batched_dataset(
            reader,
            batch_size=self.batch_size or 32,
            shuffling_queue_capacity=self.shuffling_queue_capacity,
            prefetch=self.prefetch,
        )


@dataclass(repr=False, eq=False)
class TorchDatasetContextManager(_ReaderContext[LoaderT]):
    """Opens a reader and gives a loader of torch tensors on it until the context is left.

    Args:
        parquet_file_url_list: URLs of the files to read (MDS shards or Parquet files).
        batch_size: Rows per batch.
        petastorm_reader_kwargs: For :func:`petastorm_bridge.make_batch_reader`.
        shuffling_queue_capacity: Rows to shuffle among; 0 for none.
        data_loader_fn: Makes the loader; None means :class:`petastorm_bridge.pytorch.DataLoader`.
    """

    _made_by = "make_torch_dataloader"
    _own_arguments = ("batch_size", "shuffling_queue_capacity", "data_loader_fn")

    parquet_file_url_list: list[str]
    batch_size: int
    petastorm_reader_kwargs: dict[str, Any]
    shuffling_queue_capacity: int
    data_loader_fn: Callable[..., LoaderT] | None

    def _loader_of(self, reader: Any) -> LoaderT:
        from petastorm_bridge.pytorch import DataLoader

        make: Callable[..., Any] = self.data_loader_fn or DataLoader
        self.loader: LoaderT = make(
            reader=reader,
            batch_size=self.batch_size,
            shuffling_queue_capacity=self.shuffling_queue_capacity,
        )
        return self.loader


class SparkDatasetConverter:
    """A DataFrame written as MDS shards, from which TensorFlow datasets and torch loaders are made.

    Pickles to little more than its list of files, and works wherever those files are mounted: in
    Spark tasks, in spawned processes, after the Spark session has ended.

    Attributes:
        cache_dir_url: URL of the directory with the data.
        file_urls: URLs of its files in row order.
        dataset_size: Number of rows; also ``len(converter)``.
    """

    PARENT_CACHE_DIR_URL_CONF = "petastorm.spark.converter.parentCacheDirUrl"

    # Set on converters made from a path: their data is the user's own.
    _made_from_path = False

    def __init__(self, cache_dir_url: str, file_urls: list[str], dataset_size: int) -> None:
        self.cache_dir_url = cache_dir_url
        self.file_urls = file_urls
        self.dataset_size = dataset_size

    def __len__(self) -> int:
        return self.dataset_size

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {masked(self.cache_dir_url)}: {self.dataset_size} rows in "
            f"{len(self.file_urls)} files{dataset.size_and_columns(self.cache_dir_url)}>"
        )

    def make_tf_dataset(
        self,
        batch_size: int | None = None,
        prefetch: int | None = None,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int | None = None,
        **petastorm_reader_kwargs: Unpack[ReaderArguments],
    ) -> TFDatasetContextManager:
        """Return a context manager that gives a ``tf.data.Dataset`` of namedtuples of batches.

        Args:
            batch_size: Rows per batch; None means 32. The last batch may be smaller.
            prefetch: Batches to prepare ahead; None lets TensorFlow decide.
            num_epochs: Passes over the data; None never ends.
            workers_count: Threads that read; None means 4.
            shuffling_queue_capacity: Rows from which each next one is drawn; None or 0 for no
                shuffling of rows.
            **petastorm_reader_kwargs: For :func:`petastorm_bridge.make_batch_reader`. Checked when
                the context is entered, as in Petastorm.
        """
        return TFDatasetContextManager(
            self.file_urls,
            batch_size=batch_size,
            prefetch=prefetch,
            petastorm_reader_kwargs=_reader_kwargs(
                petastorm_reader_kwargs, num_epochs, workers_count
            ),
            shuffling_queue_capacity=shuffling_queue_capacity,
        )

    @overload
    def make_torch_dataloader(
        self,
        batch_size: int = 32,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        data_loader_fn: None = None,
        **petastorm_reader_kwargs: Unpack[ReaderArguments],
    ) -> TorchDatasetContextManager[DataLoader]: ...

    @overload
    def make_torch_dataloader(
        self,
        batch_size: int = 32,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        *,
        data_loader_fn: Callable[..., LoaderT],
        **petastorm_reader_kwargs: Unpack[ReaderArguments],
    ) -> TorchDatasetContextManager[LoaderT]: ...

    def make_torch_dataloader(
        self,
        batch_size: int = 32,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        data_loader_fn: Callable[..., Any] | None = None,
        **petastorm_reader_kwargs: Unpack[ReaderArguments],
    ) -> TorchDatasetContextManager[Any]:
        """Return a context manager that gives an iterable of dicts of torch tensors.

        Args:
            batch_size: Rows per batch. The last batch may be smaller.
            num_epochs: Passes over the data; None never ends.
            workers_count: Threads that read; None means 4.
            shuffling_queue_capacity: Rows from which each next one is drawn; 0 for no shuffling of
                rows.
            data_loader_fn: Called with ``reader=``, ``batch_size=`` and
                ``shuffling_queue_capacity=``; None means :class:`petastorm_bridge.pytorch.DataLoader`.
            **petastorm_reader_kwargs: For :func:`petastorm_bridge.make_batch_reader`. Checked when
                the context is entered, as in Petastorm.
        """
        return TorchDatasetContextManager(
            self.file_urls,
            batch_size=batch_size,
            petastorm_reader_kwargs=_reader_kwargs(
                petastorm_reader_kwargs, num_epochs, workers_count
            ),
            shuffling_queue_capacity=shuffling_queue_capacity,
            data_loader_fn=data_loader_fn,
        )

    def delete(self) -> None:
        """Delete the data at :attr:`cache_dir_url`, if the bridge wrote it; twice is fine.

        Other converters of the same DataFrame share the data and lose it, too. A directory that the
        bridge did not make is left alone, with a warning (Petastorm deletes the user's table).
        """
        if self._made_from_path or deletion.is_foreign(self.cache_dir_url):
            deletion.warn_left_alone(self.cache_dir_url)
            return
        _conversions.forget(self.cache_dir_url)
        deletion.note_deleted(self.cache_dir_url)
        _delete_dir_handler(self.cache_dir_url)


def _reader_kwargs(
    given: Mapping[str, Any], num_epochs: int | None, workers_count: int | None
) -> dict[str, Any]:
    workers = _DEFAULT_WORKERS if workers_count is None else workers_count
    kwargs = {**given, "num_epochs": num_epochs, "workers_count": workers}
    _check_rank_and_size_consistent_with_horovod(kwargs)
    return kwargs


def make_spark_converter(
    df: Any,
    parquet_row_group_size_bytes: Any = DEFAULT_ROW_GROUP_SIZE_BYTES,
    compression_codec: CompressionCodec | None = None,
    dtype: Precision | None = "float32",
    *,
    parent_cache_dir_url: str | None = None,
) -> SparkDatasetConverter:
    """Write a Spark DataFrame as MDS shards and return a converter on them.

    The shards go to a new directory below the one that ``parent_cache_dir_url``, the Spark conf
    ``petastorm.spark.converter.parentCacheDirUrl`` or the environment variable
    ``PETASTORM_BRIDGE_PARENT_CACHE_DIR_URL`` names; the first of them that is set counts. An equal
    DataFrame with equal options is written once per process. The directory is deleted when Python
    exits, at best effort, or by :meth:`SparkDatasetConverter.delete`.

    Args:
        df: A DataFrame (classic Spark or Spark Connect); or the path or URL of a Parquet file or
            directory or of an MDS directory, which is then read where it is, without Spark, and
            never deleted; the other arguments have no effect on it.
        parquet_row_group_size_bytes: Bytes per MDS shard, which takes the place of a row group.
        compression_codec: ``'uncompressed'``, ``'bzip2'``, ``'gzip'``, ``'lz4'``, ``'snappy'``,
            ``'deflate'`` or None; see the options page for the MDS compression each one means.
        dtype: Floating-point columns and arrays are written with this precision, ``'float32'`` or
            ``'float64'``; None leaves them. Integers stay as they are.
        parent_cache_dir_url: Not in Petastorm: the parent directory, for sessions that take no conf
            of their own (serverless compute).

    Raises:
        ValueError: The parent directory is not named or no usable URL, or ``dtype`` is unknown.
        RuntimeError: ``compression_codec`` is unknown; or called inside a Spark task, where only an
            MDS directory can be opened.
        AnalysisException: Spark cannot plan or write the DataFrame, or the path does not exist.
        MaterializationError: Writing failed; nothing was left behind.
    """
    if isinstance(df, str):
        return _converter_of_path(df)
    if not hasattr(df, "mapInArrow"):
        raise ArgumentTypeError(
            f"make_spark_converter needs a Spark DataFrame or a path as a str, not {type(df).__name__}: "
            "'_jdf' or 'mapInArrow' is missing. Turn a pandas DataFrame or an RDD into a Spark "
            "DataFrame with spark.createDataFrame(…)."
        )
    _session.refuse_on_executor()
    session = df.sparkSession
    parent_url = _get_parent_cache_dir_url(session, parent_cache_dir_url)
    options = Options(
        size_limit=codecs.shard_size(parquet_row_group_size_bytes),
        compression=codecs.mds_compression(compression_codec),
        dtype=checked_dtype(dtype),
    )

    written: list[dataset.DatasetFiles] = []

    def write() -> str:
        mounted.clear_unfinished(parent_url)
        url = _make_sub_dir_url(parent_url, new_directory_name(session))
        written.append(materialize(df, options, url))
        deletion.delete_at_exit(url, lambda: _delete_dir_handler)
        return url

    identity = jobs.run_job(session, lambda: conversions.identity_of(df, (parent_url, options)))
    cache_dir_url = _conversions.get_or_create(identity, write)
    files = written[0] if written else dataset.describe_converted(cache_dir_url)
    return SparkDatasetConverter(cache_dir_url, files.urls, files.num_rows)


def _converter_of_path(path: str) -> SparkDatasetConverter:
    # Rewritten code opens in its tasks what it has written. Petastorm, which knows no such directories, refuses all.
    if _session.is_on_executor() and not dataset.is_mds_directory(path):
        _session.refuse_on_executor()
    if "DATABRICKS_RUNTIME_VERSION" in os.environ and not urls.is_volume(path):
        path = _normalize_databricks_dbfs_url(
            path,
            "On databricks runtime, if `df` argument is a string, it must be a dbfs "
            "fuse path like 'file:/dbfs/xxx' or a dbfs path like 'dbfs:/xxx'.",
        )
    files = dataset.describe_path(path)
    converter = SparkDatasetConverter(path, files.urls, files.num_rows)
    converter._made_from_path = True  # noqa: SLF001 - our own class
    return converter


# Petastorm's private names.

_convert_vector = vectors_to_arrays


def _get_spark_session() -> Any:
    """Return the active Spark session; raises inside a Spark task."""
    return _session.spark_session()


def _get_parent_cache_dir_url(session: Any = None, given: str | None = None) -> str:
    session = _get_spark_session() if session is None else session
    key = SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF
    sources = {
        "the argument parent_cache_dir_url": given,
        key: _session.conf_value(session, key),
        urls.PARENT_VARIABLE: os.environ.get(urls.PARENT_VARIABLE),
    }
    for source, named in sources.items():
        if named is not None:
            urls.check_writable_place(named)
            url = urls.canonical_url(normalize_dir_url(named))
            _check_parent_cache_dir_url(url)
            logger.info("Read %s %s", source, masked(url))
            return url
    raise ValueError(
        f"Please set the spark config {key}. For example: "
        f"spark.conf.set({key!r}, 'file:///dbfs/tmp/petastorm_cache'). Where the session takes no "
        f"such key, set the environment variable {urls.PARENT_VARIABLE} or pass "
        "parent_cache_dir_url='file:///…' to make_spark_converter."
    )


def _check_parent_cache_dir_url(dir_url: str) -> None:
    """Check that a URL can be a parent cache directory; warn of one that workers may not see."""
    _check_url(dir_url)
    filesystem, path = get_filesystem_and_path_or_paths(dir_url)
    on_cluster = "DATABRICKS_RUNTIME_VERSION" in os.environ and not _is_spark_local_mode()
    is_local = isinstance(filesystem, LocalFileSystem) and not path.startswith(urls.SHARED_ROOTS)
    if on_cluster and is_local:
        logger.warning(
            "Usually, when running on databricks spark cluster, you should specify a dbfs fuse path "
            "for %s, like: 'file:/dbfs/path/to/cache_dir', otherwise, you should mount NFS to this "
            "directory '%s' on all nodes of the cluster, e.g. using EFS.",
            SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF,
            dir_url,
        )


def _is_spark_local_mode() -> bool:
    master = _session.conf_value(_get_spark_session(), "spark.master") or ""
    return master.strip().lower().startswith("local")


def _check_url(dir_url: str) -> None:
    urls.check_scheme(dir_url)


def _make_sub_dir_url(dir_url: str, name: str) -> str:
    return urls.sub_url(dir_url, name)


def _normalize_databricks_dbfs_url(url: str, err_msg: str) -> str:
    return urls.normalize_dbfs_url(url, err_msg)


def _get_horovod_rank_and_size() -> tuple[int | None, int | None]:
    return launcher_rank_and_size() or (None, None)


def _check_rank_and_size_consistent_with_horovod(
    petastorm_reader_kwargs: Mapping[str, Any],
) -> bool:
    """Return whether ``cur_shard`` and ``shard_count`` are the launcher's; warn if not.

    Petastorm formats the warning with ``%d`` and fails to print it in the very case it is meant
    for, shard arguments left out. The reader goes on either way and reads what it was asked to.
    """
    rank, size = _get_horovod_rank_and_size()
    if rank is None or size is None:
        return True
    cur_shard, shard_count = map(petastorm_reader_kwargs.get, ("cur_shard", "shard_count"))
    if cur_shard == rank and shard_count == size:
        return True
    logger.warning(
        "The petastorm reader arguments cur_shard(%s) and shard_count(%s) is not consistent with "
        "horovod environments hvd_rank(%d) and hvd_size(%d), If you want each horovod worker train "
        "on one corresponding shard data, you should set argument `cur_shard` to be `hvd.rank()` "
        "and argument `shard_count` to be `hvd.size()`.",
        cur_shard,
        shard_count,
        rank,
        size,
    )
    return False


def _wait_file_available(url_list: list[str]) -> None:
    dataset.wait_for_files(url_list, _FILE_AVAILABILITY_WAIT_TIMEOUT_SECS)


def _check_dataset_file_median_size(url_list: list[str]) -> None:
    dataset.warn_if_small(url_list)
