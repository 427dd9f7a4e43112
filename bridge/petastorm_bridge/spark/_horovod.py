"""Shard arguments compared with what a Horovod or MPI launcher says about this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petastorm_bridge._reading.ranks import launcher_rank_and_size

from ._session import logger

__all__ = ["consistent_with_environment"]


def consistent_with_environment(reader_kwargs: Mapping[str, Any]) -> bool:
    """Return whether ``cur_shard`` and ``shard_count`` are the launcher's; warn if not.

    Petastorm formats the warning with ``%d`` and fails to print it in the very case it is meant
    for, shard arguments left out. The reader goes on either way and reads what it was asked to.
    """
    rank, size = launcher_rank_and_size()
    if rank is None or size is None:
        return True
    cur_shard, shard_count = reader_kwargs.get("cur_shard"), reader_kwargs.get("shard_count")
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
