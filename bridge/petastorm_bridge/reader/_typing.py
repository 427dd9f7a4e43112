"""The arguments of readers for programs that are checked.

They exist for mypy, pyright and editors; nothing here is needed when a program runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

PoolType = Literal["thread", "process", "dummy"]
CacheType = Literal["null", "local-disk"]


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
