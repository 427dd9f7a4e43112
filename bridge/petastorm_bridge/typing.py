"""Types for programs that are checked: the arguments of readers, and what the torch loaders give.

They exist for mypy, pyright and editors; nothing here is needed when a program runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

if TYPE_CHECKING:
    from typing import TypeAlias

    import torch

__all__ = ["CacheType", "LoaderT", "PoolType", "Precision", "ReaderArguments", "TorchBatch"]

PoolType = Literal["thread", "process", "dummy"]
CacheType = Literal["null", "local-disk"]
Precision = Literal["float32", "float64"]

LoaderT = TypeVar("LoaderT")
"""What a ``data_loader_fn`` makes."""

# A tensor, or a list where torch has no dtype (texts, dates, bytes). `Any` beside it, as typeshed has it in
# such places: old code calls `batch["x"].float()` without a check, and is right wherever x is a number.
TorchBatch: TypeAlias = "dict[str, torch.Tensor | Any]"
"""A batch of a torch loader by column name, ``(rows, …)`` each."""


class ReaderArguments(TypedDict, total=False):
    """What the converter's methods hand on to :func:`petastorm_bridge.make_batch_reader`."""

    schema_fields: Any
    reader_pool_type: PoolType
    results_queue_size: int
    seed: int | None
    shuffle_rows: bool
    shuffle_row_groups: bool
    shuffle_row_drop_partitions: int
    predicate: Any
    rowgroup_selector: Any
    cur_shard: int | None
    shard_count: int | None
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
    shard_by_rank: bool
    even_batches: bool | None
    drop_last: bool
    transform_batch_size: int | None
