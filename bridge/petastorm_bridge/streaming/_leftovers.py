"""Clearing away the shared memory that a killed run has left.

Streaming registers the directories in use in ``/dev/shm/<prefix>_locals`` and takes them off when the
program ends. A killed program cannot: the next one is told "Reused local directory", and the memory
stays taken. What tells a killed run from one that goes on is a file beside, which every process of a
run keeps locked; the system unlocks it when the process ends in whatever way. The file names the inode of
the memory that it speaks for: a run of plain streaming, which has no such file, may take the number of a
dead run, whose file is left. Of such runs those are dead whose memory no process has mapped.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch.distributed
from filelock import FileLock
from streaming.base import distributed
from streaming.base.world import World

__all__ = ["clear_leftovers", "mark_alive", "start_up", "until_free"]

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where Linux has it, not a place for files of ours
_NAME = re.compile(
    r"(\d{6,})_(?:locals|barrier|next_epoch|cache_usage|shard_states|shard_access_times|resume"
    r"|epoch_shape|epoch_data|petastorm_bridge)"
)
_ALIVE = "petastorm_bridge"
_PID_NAMESPACE = "/proc/self/ns/pid"
_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in include/linux/proc_ns.h
# How often another program may take the shared memory that was found to be free.
_ATTEMPTS = 100
_LOCKS = ("barrier_filelock", "cache_filelock")


def clear_leftovers(directories: Iterable[str]) -> list[str]:
    """Remove what killed runs of this user over any of the directories left in shared memory.

    Args:
        directories: Absolute local paths, as streaming registers them.

    Returns:
        The names of the shared memory that was removed. None where the system does not tell which
        memory is in use (it takes ``/proc``).
    """
    wanted = set(directories)
    removed = []
    for prefix, names in _runs().items():
        in_the_way = _locals(prefix) & wanted or names == [f"{prefix}_{_ALIVE}"]
        if in_the_way:
            with _if_dead(prefix, names) as is_dead:
                removed += _remove(prefix, names) if is_dead else []
    return removed


def _remove(prefix: str, names: Iterable[str]) -> list[str]:
    removed = []
    for name in names:
        with contextlib.suppress(OSError):
            os.remove(os.path.join(_SHARED_MEMORY, name))
            removed.append(name)
    _remove_locks(prefix)
    return removed


def _remove_locks(prefix: str) -> None:
    for lock in _LOCKS:
        with contextlib.suppress(OSError):
            os.remove(os.path.join(tempfile.gettempdir(), f"{prefix}_{lock}"))


def mark_alive(dataset: object, prefix: int) -> None:
    """Show that a run goes on, until its dataset is gone or the process has ended.

    Args:
        dataset: The dataset of this process.
        prefix: Number of its shared memory.
    """
    if os.path.isdir(_SHARED_MEMORY):
        path = os.path.join(_SHARED_MEMORY, f"{prefix:06}_{_ALIVE}")
        file = _locked(path)
        inode = _inode(f"{prefix:06}").encode()
        os.ftruncate(file, os.pwrite(file, inode, 0))
        weakref.finalize(dataset, _let_go, file, path, os.getpid())


def _let_go(file: int, path: str, process: int) -> None:
    if process != os.getpid():
        os.close(file)
        return
    # The last process of a run removes its locks, too: streaming leaves them, and looks through all that
    # are left for each new dataset.
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_locks(os.path.basename(path).removesuffix(f"_{_ALIVE}"))
    os.close(file)
    with contextlib.suppress(OSError):
        os.remove(path)


def _locked(path: str) -> int:
    """Return a descriptor of a file that this process keeps locked, whoever removes it meanwhile."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(file, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(file)):
                return file
        os.close(file)


@contextlib.contextmanager
def _if_dead(prefix: str, names: list[str]) -> Iterator[bool]:
    """Say whether no process of a run is alive; none can begin to use its memory in the body."""
    try:
        file = os.open(os.path.join(_SHARED_MEMORY, f"{prefix}_{_ALIVE}"), os.O_RDWR)
    except FileNotFoundError:
        yield _is_unused(names)
        return
    except OSError:
        yield False
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        is_dead = False
    else:
        is_ours = os.pread(file, 32, 0).decode("ascii", "replace") == _inode(prefix)
        is_dead = is_ours or _is_unused(names)
    try:
        yield is_dead
    finally:
        os.close(file)


def _inode(prefix: str) -> str:
    """Return what tells a run's memory from that of a later run of the same number; '' without memory."""
    try:
        return str(os.stat(os.path.join(_SHARED_MEMORY, f"{prefix}_locals")).st_ino)
    except OSError:
        return ""


def _is_unused(names: Iterable[str]) -> bool:
    """Say whether it is certain that no process has any of the shared memory mapped."""
    mapped = _mapped()
    return mapped is not None and mapped.isdisjoint(names)


def _runs() -> dict[str, list[str]]:
    """Return the names of this user's shared memory of streaming, by their prefix."""
    runs = defaultdict(list)
    with contextlib.suppress(OSError), os.scandir(_SHARED_MEMORY) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            with contextlib.suppress(OSError):
                if match and entry.stat().st_uid == os.getuid():
                    runs[match[1]].append(entry.name)
    return runs


def _locals(prefix: str) -> set[str]:
    """Return the directories that a run has registered (``streaming/base/shared/prefix.py``)."""
    try:
        with open(os.path.join(_SHARED_MEMORY, f"{prefix}_locals"), "rb") as file:
            data = file.read()
    except OSError:
        return set()
    size = struct.unpack_from("=i", data)[0] if len(data) >= 4 else 0
    return set(data[4:size].decode("utf-8", "replace").split("\0")[:-1])


def _mapped() -> set[str] | None:
    """Return the names of the shared memory that any process has mapped; None if that is hidden.

    Within a container it is: another one may use the same memory, whose processes are not shown.
    """
    with contextlib.suppress(OSError):
        if os.readlink(_PID_NAMESPACE) != _FIRST_NAMESPACE:
            return None
    names: set[str] = set()
    known = False
    with contextlib.suppress(OSError):
        for process in filter(str.isdigit, os.listdir("/proc")):
            # One that ends meanwhile, or is not ours to look at: streaming's memory is for its owner
            # alone, and a process of the same user is hidden only if it guards secrets.
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/maps", encoding="utf-8", errors="replace") as file,
            ):
                names.update(re.findall(rf"{_SHARED_MEMORY}/(\S+)", file.read()))
                known = True
    return names if known else None


@contextlib.contextmanager
def start_up(arguments: Mapping[str, Any]) -> Iterator[None]:
    """Clear the way for a ``StreamingDataset`` that is made in the body.

    Leftovers over its directories are removed, by one process of a node while the others wait; and
    of the programs that start together (a tuner's trials), one at a time looks for free names, because
    they would find the same ones. Processes that a launcher coordinates agree on names by themselves.

    Args:
        arguments: Of the dataset.
    """
    if distributed.get_world_size() == 1:
        name = f"petastorm_bridge_{os.getuid()}_streaming.lock"
        with FileLock(os.path.join(tempfile.gettempdir(), name)):
            clear_leftovers(_directories(arguments))
            yield
        return
    ours = distributed.maybe_init_dist()
    try:
        if World.detect().is_local_leader:
            clear_leftovers(_directories(arguments))
        distributed.barrier()
        yield
    finally:
        if ours:
            torch.distributed.destroy_process_group()


def until_free(initialise: Callable[[], None]) -> None:
    """Make a dataset, again if a program of plain streaming took its shared memory meanwhile.

    ``streaming/base/shared/prefix.py`` looks for a free name first and takes it later. What
    :func:`start_up` does keeps only datasets of this package apart.

    Args:
        initialise: Makes the dataset from the beginning.

    Raises:
        FileExistsError: Something else is in the way; every attempt met another program; or
            processes of a launcher, which have agreed on a name, have to be started again.
    """
    for _ in range(_ATTEMPTS if distributed.get_world_size() == 1 else 0):
        try:
            return initialise()
        except FileExistsError as error:
            if not str(error.filename).endswith("_locals"):  # one of the user's own files
                raise
    return initialise()


def _directories(arguments: Mapping[str, Any]) -> list[str]:
    """Return the local directories that a dataset will register."""
    split = arguments.get("split") or ""
    streams = arguments.get("streams")
    if streams:
        places = [(stream.local, stream.split or split) for stream in streams]
    else:
        places = [(arguments.get("local"), split)]
    return [os.path.abspath(os.path.join(local, split)) for local, split in places if local]
