"""Which of the processes that train together this one is, and reading one shard in each of them."""

from __future__ import annotations

import json
import os
import sys
import warnings

from petastorm_bridge.errors import BridgeWarning

# Torch's launchers, Horovod's own, and the two families of MPI that Horovod is started by.
_TORCH = ("RANK", "WORLD_SIZE")
_LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)

_warned: set[int] = set()


def launcher_rank_and_size() -> tuple[int, int] | None:
    """Return the rank and size of a Horovod or MPI launcher, None without a complete one.

    Raises:
        ValueError: The variables are no integers.
    """
    for names in _LAUNCHERS:
        if not os.environ.keys().isdisjoint(names):
            return _numbers(names)
    return None


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the world size, ``(0, 1)`` for a process that trains alone.

    A process group of ``torch.distributed`` counts first, then ``RANK`` and ``WORLD_SIZE``, then
    Horovod's and MPI's variables, then TensorFlow's ``TF_CONFIG``.

    Raises:
        ValueError: The variables are no integers, one of two is missing, the rank is not below the
            world size, or ``TF_CONFIG`` is not what TensorFlow reads.
    """
    torchs = _torch_rank_and_size()
    given = [name for name in _TORCH if name in os.environ]
    if torchs is None and given:  # who reads everything on such a rank would never know
        raise ValueError(
            f"Of RANK and WORLD_SIZE only {given[0]} is set, which does not tell the shard of this "
            "process. Open the loader once the process group exists, or pass cur_shard and "
            "shard_count."
        )
    rank, size = torchs or launcher_rank_and_size() or _tensorflow_rank_and_size()
    if not 0 <= rank < size:
        raise ValueError(
            f"This process has the rank {rank} in a world of {size}: RANK and WORLD_SIZE, or what the "
            "launcher sets in their place, do not fit together."
        )
    return rank, size


def rank_of_process_group() -> tuple[int, int] | None:
    """Return the rank and the world size of ``torch.distributed``; None without a process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _torch_rank_and_size() -> tuple[int, int] | None:
    return rank_of_process_group() or _numbers(_TORCH)


def _tensorflow_rank_and_size() -> tuple[int, int]:
    """Return the place of this process among those that train by TensorFlow's ``TF_CONFIG``.

    The chief comes before the workers. Others, such as evaluators, read everything.
    """
    given = os.environ.get("TF_CONFIG")
    if not given:
        return 0, 1
    try:
        config = json.loads(given)
        cluster, task = config.get("cluster", {}), config.get("task", {})
        sizes = {kind: len(cluster.get(kind, ())) for kind in ("chief", "worker")}
        kind, index = task.get("type"), int(task.get("index", 0))
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"TF_CONFIG={given!r} does not name a cluster and a task.") from None
    if kind not in sizes:
        return 0, 1
    return index + (sizes["chief"] if kind == "worker" else 0), max(1, sum(sizes.values()))


def _numbers(names: tuple[str, str]) -> tuple[int, int] | None:
    """Return the values of two variables; None without both."""
    rank, size = map(os.environ.get, names)
    if rank is None or size is None:
        return None
    try:
        return int(rank), int(size)
    except ValueError:
        given = f"{names[0]}={rank!r} and {names[1]}={size!r}"
        raise ValueError(f"{given} are no integers.") from None


def warn_if_all_ranks_read_all() -> None:
    """Warn, once in a process, where others train beside this one and no shard was asked for.

    Horovod's users get Petastorm's own warning instead.
    """
    try:
        rank_and_size = _torch_rank_and_size()
    except ValueError:  # whoever set it did not mean torch
        return
    process = os.getpid()
    if rank_and_size is None or rank_and_size[1] < 2 or process in _warned:
        return
    _warned.add(process)
    warnings.warn(
        f"This is rank {rank_and_size[0]} of {rank_and_size[1]} and no shard was asked for: each rank "
        "reads all rows. Pass shard_by_rank=True to read one shard in each, with as many rows on every rank, "
        "or cur_shard=0, shard_count=1 if each is meant to read everything. "
        "`petastorm-bridge difference rank-reads-everything` says more.",
        BridgeWarning,
        stacklevel=4,
    )
