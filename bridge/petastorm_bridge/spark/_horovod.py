"""Shard arguments compared with what a Horovod or MPI launcher says about this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ._session import logger

__all__ = ["consistent_with_environment", "rank_and_size"]

_RANK_AND_SIZE = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def rank_and_size() -> tuple[int | None, int | None]:
    """Return the launcher's rank and size, ``(None, None)`` without a (complete) launcher."""
    for rank_name, size_name in _RANK_AND_SIZE:
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            return None, None
    return None, None


def consistent_with_environment(reader_kwargs: Mapping[str, Any]) -> bool:
    """Return whether ``cur_shard`` and ``shard_count`` are the launcher's; warn if not.

    Petastorm formats the warning with ``%d`` and fails to print it in the very case it is meant
    for, shard arguments left out. The reader goes on either way and reads what it was asked to.
    """
    rank, size = rank_and_size()
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
