"""How the bytes of shard files get into memory: mapped, or read where a mapping may fail.

A mapped page that cannot be had (the file was cut short, an NFS server is gone, a FUSE mount fails)
kills the process with SIGBUS, and nothing can catch that. Reading gives an error instead. So files of
network and user-space file systems are read, and all others mapped, which is faster and takes no memory
of the process; the environment variable ``PETASTORM_BRIDGE_SHARD_ACCESS`` decides otherwise. Compressed files,
which are expanded once, are always read.

The datasets of ``petastorm_bridge.streaming``, which keep shards mapped, look at the size of a file before
each window of samples that they take from it. What remains is a file that is cut short between that look
and the use of the window, or after ``make_batch_reader`` has opened it, and a disk that fails. Then
``faulthandler`` at least says where the process was.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import ShardCorruptedError
from .files import open_regular, read_into

ACCESS_VARIABLE = "PETASTORM_BRIDGE_SHARD_ACCESS"

_MODES = ("auto", "map", "read")
_RANGE_BYTES = 2 << 20
_REQUESTS = 16  # at once
# Types of /proc/self/mountinfo, up to a dot, whose files live on other machines or in another process.
_FAR_TYPES = {
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "fuse", "fuseblk", "glusterfs", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "orangefs", "panfs", "prl_fs", "pvfs2", "smb3", "smbfs", "vboxsf",
    "virtiofs", "vmhgfs", "wekafs",
}  # fmt: skip
# Those that give a file another inode number whenever nobody has had it open for a while.
_FAT_TYPES = {"exfat", "msdos", "vfat"}


def is_mapped(directory: str) -> bool:
    """Return whether files of a directory are mapped, or else read; ValueError for an unknown mode."""
    mode = os.environ.get(ACCESS_VARIABLE) or "auto"
    if mode not in _MODES:
        raise ValueError(f"{ACCESS_VARIABLE} is {mode!r}; it must be one of {', '.join(_MODES)}.")
    return not is_far(directory) if mode == "auto" else mode == "map"


def is_far(directory: str) -> bool:
    """Return whether a directory is on a network or user-space file system; False while it is not there."""
    return _is_on(directory, _FAR_TYPES)


def has_lasting_inodes(directory: str) -> bool:
    """Return whether files of a directory keep their inode numbers for as long as they exist."""
    return not _is_on(directory, _FAR_TYPES | _FAT_TYPES)


def _is_on(directory: str, types: set[str]) -> bool:
    with contextlib.suppress(OSError):
        return _type_of(directory).partition(".")[0] in types
    return False


@lru_cache(maxsize=1024)
def _type_of(directory: str) -> str:
    return file_system_type(os.stat(directory or ".").st_dev)


def file_system_type(device: int, mounts: str = "/proc/self/mountinfo") -> str:
    """Return the type of the file system with a device number; empty if the system does not tell.

    Args:
        device: ``st_dev`` of a file.
        mounts: What lists them, see ``proc(5)``.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                if before.split()[2:3] == [wanted]:
                    return after.split()[0]
    except (OSError, IndexError):
        pass
    return ""


def load(path: str, mapped: bool) -> tuple[npt.NDArray[np.uint8], os.stat_result]:
    """Return all bytes of a file, shape ``(size,)``, and what the system says of the file.

    They are released when nothing refers to them any more.

    Raises:
        FileNotFoundError: There is no such file.
        DatasetError: It is no regular file, or became shorter meanwhile.
        OSError: It cannot be read.
    """
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size == 0:
            return np.empty(0, np.uint8), status
        if not mapped:
            return _read_whole(file, status.st_size), status
    _show_where_mapping_fails()
    # Unlike the mmap module's, this mapping keeps no descriptor: there may be thousands.
    with pa.memory_map(os.fsencode(path)) as source:
        return np.frombuffer(source.read_buffer(), np.uint8), status


@lru_cache(maxsize=1)
def _show_where_mapping_fails() -> None:
    """Have Python print a traceback before SIGBUS ends the process, unless a program has a say in that.

    A handler that is there may be a user's, or Java's, which lives on such signals.
    """
    if not faulthandler.is_enabled() and sys.__stderr__ is not None and not _fatal_signals_caught():
        faulthandler.enable(sys.__stderr__.fileno())


def _fatal_signals_caught() -> bool:
    """Return whether this process has handlers for what ``faulthandler`` handles (``proc(5)``)."""
    fatal = (signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            caught = next(int(line[7:], 16) for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):  # not Linux: nothing tells
        return True
    return any(caught >> number - 1 & 1 for number in fatal)


def _read_whole(file: BinaryIO, size: int) -> npt.NDArray[np.uint8]:
    """Return all bytes of a file; of a large one, which may be far, several ranges at once."""
    out: npt.NDArray[np.uint8] = np.empty(size, np.uint8)

    def fill(start: int) -> None:
        part = out[start : start + _RANGE_BYTES]
        stop = start + read_into(file, start, part.data)
        if stop != start + len(part):
            asked = f"bytes {start} to {start + len(part)}"
            raise ShardCorruptedError.because(str(file.name), asked, f"an end at {stop}")

    starts = range(0, size, _RANGE_BYTES)
    if len(starts) == 1:
        fill(0)
    else:
        with ThreadPoolExecutor(min(_REQUESTS, len(starts))) as pool:
            list(pool.map(fill, starts))
    return out
