"""Clearing away the shared memory that a killed run has left.

Streaming registers the directories in use in ``/dev/shm/<prefix>_locals`` and takes them off when the
program ends. A killed program cannot: the next one is told "Reused local directory", and the memory
stays taken. What tells a killed run from one that goes on is that no process has its shared memory
mapped; streaming's processes keep theirs mapped for as long as they live.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch.distributed
from filelock import FileLock
from streaming.base import distributed
from streaming.base.world import World

__all__ = ["clear_leftovers", "start_up"]

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where Linux has it, not a place for files of ours
_NAME = re.compile(
    r"(\d{6,})_(?:locals|barrier|next_epoch|cache_usage|shard_states|shard_access_times|resume"
    r"|epoch_shape|epoch_data)"
)
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
    runs = {prefix: names for prefix, names in _runs().items() if _locals(prefix) & wanted}
    if not runs:
        return []
    mapped = _mapped()
    if mapped is None:
        return []
    removed = []
    for prefix, names in runs.items():
        if mapped.isdisjoint(names):
            for name in names:
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(_SHARED_MEMORY, name))
                    removed.append(name)
            for lock in _LOCKS:
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(tempfile.gettempdir(), f"{prefix}_{lock}"))
    return removed


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
    """Return the names of the shared memory that any process has mapped; None if that is hidden."""
    names: set[str] = set()
    known = False
    with contextlib.suppress(OSError):
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{process}/maps", encoding="utf-8", errors="replace") as file:
                    names.update(re.findall(rf"{_SHARED_MEMORY}/(\S+)", file.read()))
                known = True
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            except OSError:
                if _is_mine(process):
                    return None
    return names if known else None


def _is_mine(process: str) -> bool:
    try:
        return os.stat(f"/proc/{process}").st_uid == os.getuid()
    except OSError:
        return False


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


def _directories(arguments: Mapping[str, Any]) -> list[str]:
    """Return the local directories that a dataset will register."""
    split = arguments.get("split") or ""
    streams = arguments.get("streams")
    if streams:
        places = [(stream.local, stream.split or split) for stream in streams]
    else:
        places = [(arguments.get("local"), split)]
    return [os.path.abspath(os.path.join(local, split)) for local, split in places if local]
