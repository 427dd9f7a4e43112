"""Which process writes a directory, and whether that process has ended.

A wrong "has ended" would delete what somebody is writing, so everything uncertain counts as alive:
another machine, another container, a process that cannot be looked at, a disk that may be shared.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Mapping
from typing import Any

__all__ = ["has_ended", "is_on_own_disk", "this_process"]

# What only the kernel that mounts it can write to, unlike NFS, FUSE (DBFS, volumes) and the like.
_OWN_DISKS = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
_START_TIME = 19  # field 22 of /proc/<pid>/stat; counted from the one behind the program's name


def this_process() -> dict[str, Any]:
    """Return what tells this process from every other, on every machine and at every time.

    Keys: ``host`` (for people to read), ``pid``, ``machine`` (the kernel's boot and the container)
    and ``started``; the last two are None where the system has no ``/proc``.
    """
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "machine": _machine(),
        "started": _started(os.getpid()),
    }


def has_ended(owner: Any) -> bool:
    """Return whether the process that :func:`this_process` described has certainly ended."""
    if not isinstance(owner, Mapping) or not isinstance(owner.get("pid"), int):
        return False
    here = this_process()
    if here["machine"] is None or any(owner.get(k) != here[k] for k in ("host", "machine")):
        return False
    pid = owner["pid"]
    if pid <= 0 or owner.get("started") is None:
        return False
    try:
        os.kill(pid, 0)  # says so even where /proc hides the processes of others
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    started = _started(pid)
    return started is not None and started != owner["started"]


def is_on_own_disk(path: str) -> bool:
    """Return whether a directory is on a disk that no other machine writes to."""
    place = os.path.realpath(path)
    best, kind = "", ""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                point = _unescaped(before.split(" ")[4])
                inside = place == point or place.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):  # of two on one place the later counts
                    best, kind = point, after.split(" ")[0]
    except (OSError, IndexError):
        return False
    return kind in _OWN_DISKS


def _machine() -> str | None:
    """Return one name for this boot of this kernel and for this container."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time")]
    except OSError:
        return None
    return " ".join([boot, *spaces])


def _started(pid: int) -> str | None:
    """Return when a process started, None if it cannot be told; ``"ended"`` for a zombie."""
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        # The first thread of a process can end before the others.
        if fields[0] in {"Z", "X"} and len(os.listdir(f"/proc/{pid}/task")) <= 1:
            return "ended"
        return fields[_START_TIME]
    return None


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
