"""Which shared memory of streaming's belongs to a run that goes on, and removing what does not.

Streaming registers the directories in use in ``/dev/shm/<prefix>_locals`` and takes them off when the
program ends. A killed program cannot: the next one is told "Reused local directory", and the memory
stays taken. So every process that has a dataset of this package keeps that file locked, and writes a
mark behind its content, which streaming does not read: a file with the mark that nobody has locked is of
a dead run, whatever ended it, in this container or in another one. Runs of plain streaming have no mark
and are left alone.

What a program makes for a dataset goes with the dataset. Streaming keeps it, with a descriptor for each
part, until the program ends.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from types import SimpleNamespace
from typing import Any

import torch.distributed
from filelock import FileLock
from streaming.base import distributed
from streaming.base.constant import BARRIER_FILELOCK, CACHE_FILELOCK, LOCALS, SHM_TO_CLEAN
from streaming.base.shared import SharedMemory
from streaming.base.shared import prefix as registry
from streaming.base.world import World

from petastorm_bridge._workers.file_lock import fcntl

from ._stock import with_names

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where Linux has it, not a place for files of ours
_MARK = b"\0petastorm_bridge"
# How often another program may take the shared memory that was found to be free.
_ATTEMPTS = 100
# Of the datasets of this process, which are the same in all processes of a launcher.
_numbers = itertools.count()
# Stands for torch.distributed where nobody is to be waited for.
_alone = SimpleNamespace(is_available=lambda: False)


def keep_alive(dataset: object, prefix: int, memory: list[SharedMemory]) -> None:
    """Show that a run goes on, until its dataset is gone or the process has ended.

    Args:
        dataset: The dataset of this process.
        prefix: Number of its shared memory.
        memory: What this process has made or opened of it and keeps open; released with the dataset.
    """
    name = f"{prefix:06}"
    try:
        file = os.open(_path(name, LOCALS), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:  # macOS has its shared memory elsewhere
        return
    fcntl.flock(file, fcntl.LOCK_SH)
    if not _is_marked(file):
        os.pwrite(file, _MARK, os.fstat(file).st_size)
    end = weakref.finalize(dataset, _let_go, file, name, memory, os.getpid())
    # Before streaming's own clean-up, after which another program may take the prefix.
    end.atexit = False
    atexit.register(end)


def _let_go(file: int, prefix: str, memory: list[SharedMemory], process: int) -> None:
    if process == os.getpid():
        for shared in memory:
            _release(shared)
        _remove_if_dead(file, prefix)
    os.close(file)


def _release(shared: SharedMemory) -> None:
    """Leave shared memory to whoever refers to it, instead of keeping it until the program ends."""
    atexit.unregister(shared.cleanup)
    for block in shared.created_shms:
        # What the user has removed with `clean_stale_shared_memory` is not tracked any more.
        if os.path.exists(os.path.join(_SHARED_MEMORY, block.name)):
            resource_tracker.unregister(f"/{block.name}", "shared_memory")


def clear_leftovers() -> list[str]:
    """Remove the shared memory and locks of this user's dead runs; return their prefixes."""
    ending = f"_{LOCALS}"
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(_SHARED_MEMORY) if name.endswith(ending)]
    prefixes = [name.removesuffix(ending) for name in names]
    return [prefix for prefix in prefixes if prefix.isdigit() and _cleared(prefix)]


def _cleared(prefix: str) -> bool:
    try:
        file = os.open(_path(prefix, LOCALS), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # gone meanwhile, or another user's
        return False
    try:
        is_ours = os.fstat(file).st_uid == os.getuid() and _is_marked(file)
        return is_ours and _remove_if_dead(file, prefix)
    finally:
        os.close(file)


def _remove_if_dead(file: int, prefix: str) -> bool:
    """Remove a run's shared memory and locks, unless another process has locked its open file.

    Returns:
        Whether they were removed. They are not, either, if they were before, and another run may have
        the prefix.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.stat(_path(prefix, LOCALS)), os.fstat(file)):
            return False
    except OSError:
        return False
    locks = [
        os.path.join(tempfile.gettempdir(), f"{prefix}_{lock}")
        for lock in (BARRIER_FILELOCK, CACHE_FILELOCK)
    ]
    parts = [_path(prefix, name) for name in SHM_TO_CLEAN if name != LOCALS]
    for path in [*locks, *parts, _path(prefix, LOCALS)]:  # the last one reserves the prefix
        with contextlib.suppress(OSError):
            os.remove(path)
    return True


def _path(prefix: str, name: str) -> str:
    return os.path.join(_SHARED_MEMORY, f"{prefix}_{name}")


def _is_marked(file: int) -> bool:
    start = os.fstat(file).st_size - len(_MARK)
    return start >= 0 and os.pread(file, len(_MARK), start) == _MARK


@contextlib.contextmanager
def start_up() -> Iterator[None]:
    """Clear the way for a ``StreamingDataset`` that is made in the body.

    What dead runs left is removed, by one process of a node while the others wait; and of the programs
    that start together (a tuner's trials), one at a time looks for free names, because they would find
    the same ones. Processes that a launcher coordinates agree on names by themselves.

    Raises:
        RuntimeError: The ranks of ``torch.distributed`` are not those in the environment.
    """
    _check_ranks()
    if distributed.get_world_size() == 1:
        name = f"petastorm_bridge_{os.getuid()}_streaming.lock"
        with FileLock(os.path.join(tempfile.gettempdir(), name)):
            clear_leftovers()
            yield
        return
    ours = distributed.maybe_init_dist()
    try:
        if World.detect().is_local_leader:
            clear_leftovers()
        distributed.barrier()
        yield
    finally:
        if ours:
            torch.distributed.destroy_process_group()


def _check_ranks() -> None:
    """Refuse ranks that are others for streaming: they read the same rows, or wait for one another for ever."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        known = distributed.get_rank(), distributed.get_world_size()
        if (rank, size) != known:
            raise RuntimeError(
                f"This process is rank {rank} of {size}, and streaming takes it for rank {known[0]} of {known[1]}, from "
                "RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in the environment. Start the program with torchrun, "
                "or set these variables in each process before it makes a dataset."
            )


def free_prefix(
    streams_local: list[str], streams_remote: list[str | None], world: World
) -> tuple[int, SharedMemory]:
    """Register a dataset, as ``get_shm_prefix`` of ``streaming/base/shared/prefix.py``.

    That looks for a free name first, and keeps a descriptor for each that it finds taken until the program
    ends; it takes the name later. If a program of plain streaming takes it meanwhile, it is asked again; what
    :func:`start_up` does keeps only datasets of this package apart. Every process of a launcher looks for itself,
    and they find different names if another run ends meanwhile: here one looks for all of its node.

    Raises:
        FileExistsError: Every attempt met another program.
        RuntimeError: The process that looks for this one has failed.
    """
    unkept = functools.partial(SharedMemory, auto_cleanup=False)
    find = with_names(registry._check_and_find, SharedMemory=unkept)  # noqa: SLF001
    find = with_names(registry._check_and_find_retrying, _check_and_find=find)  # noqa: SLF001
    if distributed.get_world_size() == 1:
        return _registered(find, streams_local, streams_remote, world)
    store = torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - what is public sends tensors
    key = f"petastorm_bridge, dataset {next(_numbers)}, node {world.node}"
    if not world.is_local_leader:
        found = store.get(key)
        if not found:
            raise RuntimeError(
                "The first process of this node could not register the dataset; its error says why."
            )
        return _registered(lambda *_, **__: int(found), streams_local, streams_remote, world)
    name = ""
    try:
        registered = _registered(find, streams_local, streams_remote, world)
        name = str(registered[0])
        return registered
    finally:
        store.set(key, name)


def _registered(find: Callable[..., int], *arguments: Any) -> tuple[int, SharedMemory]:
    """Register a dataset, or take part in it, under the name that is found."""
    register: Callable[..., tuple[int, SharedMemory]] = with_names(
        registry.get_shm_prefix, _check_and_find_retrying=find, dist=_alone
    )
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(FileExistsError):
            return register(*arguments)
    return register(*arguments)
