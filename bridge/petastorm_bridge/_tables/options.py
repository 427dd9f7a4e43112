"""The options table: every argument of Petastorm's API and what became of it here.

Read by the argument checks (which warn of ignored arguments), by the tests (each row is exercised)
and by the guide's options page.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    """What happens to an argument of the old API."""

    HONOURED = "honoured"
    EMULATED = "emulated"
    IGNORED = "ignored with a warning"
    REFUSED = "refused"


@dataclass(frozen=True)
class Option:
    """One argument.

    Attributes:
        api: Function or method that takes it.
        name: Keyword.
        fate: What happens to it; of what is ignored, any value but the default gives an
            ``IgnoredArgumentWarning``.
        meaning: What it does here, in one or two sentences.
    """

    api: str
    name: str
    fate: Fate
    meaning: str


def _rows(api: str, *rows: tuple[str, Fate, str]) -> list[Option]:
    return [Option(api, name, fate, text) for name, fate, text in rows]


def _as_batch_reader(fate: Fate, *names: str) -> list[tuple[str, Fate, str]]:
    return [(name, fate, "As for `make_batch_reader`.") for name in names]


_H, _E, _I, _R = Fate.HONOURED, Fate.EMULATED, Fate.IGNORED, Fate.REFUSED

OPTIONS: tuple[Option, ...] = (
    *_rows(
        "make_spark_converter",
        ("df", _H, "A DataFrame (Spark classic or Connect), or the path of a Parquet or MDS "
         "directory."),
        ("parquet_row_group_size_bytes", _E, "Largest size of a shard before compression; a single "
         "row may be larger. Shards of less than 1 MiB have up to 100 rows whatever the limit, so `0` and less "
         "mean 100 small rows. `None` means 128 MiB, Parquet's own default. A string of digits is taken as a number."),
        ("compression_codec", _E, "Compression of the shards: `snappy` → `snappy`, `gzip` and "
         "`deflate` → `gz`, `bzip2` → `bz2`, `lz4` → `zstd:1` (MDS has no LZ4)."),
        ("dtype", _H, "`'float32'`, `'float64'` or `None`, for floating-point columns, arrays of "
         "them and vectors."),
        ("parent_cache_dir_url", _H, "Not in Petastorm: the URL of the cache directory's parent. "
         "For sessions that take no such Spark conf, as on serverless compute. Without it, "
         "`petastorm.spark.converter.parentCacheDirUrl` of Spark's conf is used, then the environment "
         "variable `PETASTORM_BRIDGE_PARENT_CACHE_DIR_URL`."),
    ),
    *_rows(
        "make_torch_dataloader",
        ("batch_size", _H, "Rows per batch. A value that is no positive integer gives one batch with all "
         "rows, as in Petastorm; with endless epochs it is a `ValueError`."),
        ("num_epochs", _H, "Passes over the data, endless for `None`."),
        ("workers_count", _H, "Threads (or processes) that read ahead and run the transform; 4 "
         "for `None`."),
        ("shuffling_queue_capacity", _H, "Rows in the shuffle buffer, rounded up to whole row "
         "groups, as in Petastorm. `seed` decides its order. It is emptied at the end of every epoch."),
        ("data_loader_fn", _H, "A class or function called with `reader`, `batch_size` and "
         "`shuffling_queue_capacity`."),
    ),
    *_rows(
        "make_tf_dataset",
        ("batch_size", _H, "Rows per batch; 32 for `None` and `0`."),
        ("prefetch", _H, "Batches `tf.data` keeps ready; auto-tuned for `None`."),
        ("num_epochs", _H, "Passes over the data, endless for `None`."),
        ("workers_count", _H, "As for `make_torch_dataloader`."),
        ("shuffling_queue_capacity", _H, "Rows in the shuffle buffer. A row moves forward by less "
         "than the capacity, as with `tf.data.Dataset.shuffle`. `seed` decides the order."),
    ),
    *_rows(
        "make_batch_reader",
        ("dataset_url_or_urls", _H, "An MDS or Parquet directory, or a list of files of one."),
        ("schema_fields", _H, "Regular expressions that match whole column names. Columns come in the "
         "order of the table."),
        ("reader_pool_type", _H, "`'thread'`, `'process'` or `'dummy'`."),
        ("workers_count", _H, "Threads or processes; 10 by default, 4 through a converter."),
        ("results_queue_size", _H, "At most so many row groups are read ahead, but at least one and at most "
         "two for each worker."),
        ("seed", _H, "Reproduces every order, whatever the number of workers; `0` is a seed too. "
         "With shards it also sets the order of their row groups, as in Petastorm."),
        ("shuffle_rows", _H, "Shuffles the rows within each row group."),
        ("shuffle_row_groups", _H, "Shuffles the order of the row groups, anew in every epoch."),
        ("shuffle_row_drop_partitions", _H, "Visits each row group in so many parts."),
        ("predicate", _H, "Keeps rows; all of `petastorm.predicates` work on row groups."),
        ("rowgroup_selector", _R, "Needs the indexes of `petastorm.etl`, which `make_reader` reads; "
         "use `predicate` or `filters`."),
        ("num_epochs", _H, "Passes over the data, endless for `None`."),
        ("cur_shard", _H, "Which shard to read."),
        ("shard_count", _H, "Shards differ by at most one row; any count up to the rows works."),
        ("shard_seed", _H, "Deprecated, with Petastorm's warning. Sets the order of the row "
         "groups of a shard, as `seed` does. As in Petastorm, no row goes to another shard by it."),
        ("cache_type", _H, "Files in stores and on mounts are always copied to this machine; with `'local-disk'` you say "
         "where, and how many. Files on its own disks need no copies."),
        ("cache_location", _H, "With `cache_type='local-disk'`: the directory for copies, in which they stay."),
        ("cache_size_limit", _H, "With `cache_type='local-disk'`: the bytes that copies may take. Files that find no room are fetched "
         "in every epoch."),
        ("cache_row_size_estimate", _H, "With `cache_type='local-disk'` it is checked against the limit, as in Petastorm."),
        ("cache_extra_settings", _I, "They are for the package that Petastorm's cache uses. Only `shards` is used, in the check "
         "of the limit."),
        ("hdfs_driver", _I, "There is one HDFS driver, Arrow's."),
        ("transform_spec", _H, "The transform, called once per row group and epoch."),
        ("filters", _H, "On partition columns they choose files before sharding; on others they choose rows."),
        ("storage_options", _H, "Passed to the remote file system."),
        ("zmq_copy_buffers", _I, "Process pools use pipes."),
        ("filesystem", _I, "The url decides."),
        ("convert_early_to_numpy", _I, "Numbers are NumPy arrays from the start."),
        ("shard_by_rank", _H, "Not in Petastorm: `True` reads the shard of this process's rank. The rank comes from the "
         "process group of `torch.distributed`, `RANK` and `WORLD_SIZE`, Horovod's and MPI's variables, or "
         "TensorFlow's `TF_CONFIG`. Every rank has as many rows, and so as many steps. A process that trains alone reads all rows."),
        ("even_batches", _H, "Not in Petastorm: `True` gives every shard as many rows, and so as many batches, "
         "also with `cur_shard` and `shard_count`. A shard that lacks a row reads one of its rows again, another one each epoch, as torch's "
         "`DistributedSampler` does. `None` means `True` with `shard_by_rank` and `False` without."),
        ("drop_last", _H, "Not in Petastorm: `True` drops the odd rows where shards are made even, instead of "
         "repeating some."),
        ("transform_batch_size", _H, "Not in Petastorm: the transform, and a predicate beside it, gets at most so "
         "many rows at once instead of whole row groups, as with `batch_size` of Hugging Face's `Dataset.map`. The rows and "
         "their order are the same, the first batch comes sooner, and less is decoded ahead. "
         "Not for a function that looks at its whole frame, such as one that normalises by its mean."),
    ),
    *_rows(
        "make_reader",
        ("dataset_url", _H, "A directory that `materialize_dataset` wrote. A plain Parquet store, or MDS, "
         "is read with a warning."),
        ("schema_fields", _H, "Fields, regular expressions that match whole names, or an `NGram`. Fields come in "
         "the order given. Those that a pattern matches come in the order of the schema."),
        *_as_batch_reader(_H, "reader_pool_type", "workers_count"),
        ("pyarrow_serialize", _I, "Process pools use pipes."),
        *_as_batch_reader(_H, "results_queue_size", "seed"),
        ("shuffle_rows", _H, "Shuffles the rows within each row group; with a `seed` alike in all of them, "
         "as in Petastorm."),
        *_as_batch_reader(_H, "shuffle_row_groups"),
        ("shuffle_row_drop_partitions", _H, "Visits each row group in so many parts. A sequence of an `NGram` "
         "that begins in a part may end in the next."),
        ("predicate", _H, "Keeps rows, each given as a dictionary of decoded values."),
        ("rowgroup_selector", _H, "Chooses row groups by the indexes that `build_rowgroup_index` stored beside the "
         "dataset."),
        *_as_batch_reader(_H, "num_epochs", "cur_shard"),
        ("shard_count", _H, "Shards differ by at most one row, also in the rows where the sequences of an `NGram` "
         "begin; with `timestamp_overlap=False` they are whole row groups."),
        *_as_batch_reader(_H, "shard_seed", "cache_type", "cache_location", "cache_size_limit"),
        *_as_batch_reader(_H, "cache_row_size_estimate"),
        *_as_batch_reader(_I, "cache_extra_settings", "hdfs_driver"),
        ("transform_spec", _H, "The transform, called with each row as a dictionary."),
        ("filters", _H, "On partition columns they choose files before sharding; on others they choose rows by "
         "what is stored."),
        *_as_batch_reader(_H, "storage_options"),
        *_as_batch_reader(_I, "zmq_copy_buffers", "filesystem", "convert_early_to_numpy"),
        *_as_batch_reader(_H, "shard_by_rank", "drop_last"),
    ),
)  # fmt: skip
