"""Types for programs that are checked: the arguments of readers, and what the torch loaders give.

They exist for mypy, pyright and editors; nothing here is needed when a program runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

if TYPE_CHECKING:
    from typing import TypeAlias

    import torch

__all__ = [
    "CacheType",
    "CompressionCodec",
    "DatasetArguments",
    "LoaderT",
    "PoolType",
    "Precision",
    "ReaderArguments",
    "StreamingArguments",
    "TorchBatch",
]

PoolType = Literal["thread", "process", "dummy"]
CacheType = Literal["null", "local-disk"]
Precision = Literal["float32", "float64"]
CompressionCodec = Literal[
    "uncompressed", "bzip2", "gzip", "lz4", "snappy", "deflate",
    "UNCOMPRESSED", "BZIP2", "GZIP", "LZ4", "SNAPPY", "DEFLATE",
]  # fmt: skip

LoaderT = TypeVar("LoaderT")
"""What a ``data_loader_fn`` makes."""

# A tensor, or a list where torch has no dtype (texts, dates, bytes). `Any` beside it, as typeshed has it in
# such places: old code calls `batch["x"].float()` without a check, and is right wherever x is a number.
TorchBatch: TypeAlias = "dict[str, torch.Tensor | Any]"
"""A batch of a torch loader by column name, ``(rows, …)`` each."""


class _CommonArguments(TypedDict, total=False):
    schema_fields: Any
    reader_pool_type: PoolType
    results_queue_size: int
    shuffle_rows: bool
    shuffle_row_groups: bool
    shuffle_row_drop_partitions: int
    predicate: Any
    rowgroup_selector: Any
    shard_seed: int | None
    cache_type: CacheType | None
    cache_location: str | None
    cache_size_limit: int | None
    cache_row_size_estimate: int | None
    cache_extra_settings: Mapping[str, Any] | None
    hdfs_driver: str
    transform_spec: Any
    filters: Any
    storage_options: Mapping[str, Any] | None
    zmq_copy_buffers: bool
    filesystem: Any
    convert_early_to_numpy: bool
    transform_batch_size: int | None


class ReaderArguments(_CommonArguments, total=False):
    """What the converter's methods hand on to :func:`petastorm_bridge.make_batch_reader`."""

    seed: int | None
    cur_shard: int | None
    shard_count: int | None
    shard_by_rank: bool
    even_batches: bool | None
    drop_last: bool


class DatasetArguments(_CommonArguments, total=False):
    """What a :class:`petastorm_bridge.pytorch.BatchedIterableDataset` hands on to it."""

    workers_count: int


class StreamingArguments(TypedDict, total=False):
    """What streaming's own ``StreamingDataset`` takes besides ``batch_size``."""

    streams: Sequence[Any] | None
    remote: str | None
    local: str | None
    split: str | None
    download_retry: int
    download_timeout: float
    validate_hash: str | None
    keep_zip: bool
    epoch_size: str | int | None
    predownload: int | None
    cache_limit: str | int | None
    sampling_method: str
    sampling_granularity: int
    partition_algo: str
    num_canonical_nodes: int | None
    shuffle: bool
    shuffle_algo: str
    shuffle_seed: int
    shuffle_block_size: int | None
    batching_method: str
    allow_unsafe_types: bool
    replication: int | None
    stream_name: str
    stream_config: dict[str, Any] | None
