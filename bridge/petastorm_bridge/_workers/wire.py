"""Messages between processes, over pipes.

A message is ``[u32 parts][u64 size of each part][parts]``: a pickle, then the buffers it refers to (pickle
protocol 5), so that columns are written from and read into memory without a copy between.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

_PIPE_LIMIT = 1 << 30  # Linux moves at most 2 GiB in one call


def send(fd: int, message: Any) -> None:
    """Write one message.

    Raises:
        BrokenPipeError: Nobody reads any more.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    _send_parts(fd, [memoryview(head), *(buffer.raw() for buffer in buffers)])


def send_pickled(fd: int, data: bytes) -> None:
    """Write a message that is a pickle already."""
    _send_parts(fd, [memoryview(data)])


def _send_parts(fd: int, parts: list[memoryview]) -> None:
    sizes = [part.nbytes for part in parts]
    header = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    for part in (memoryview(header), *parts):
        done = 0
        while done < part.nbytes:
            done += os.write(fd, part[done : done + _PIPE_LIMIT])


def receive(fd: int, wait: Callable[[], None] | None = None) -> Any:
    """Read one message.

    Args:
        fd: Where from.
        wait: Called before every read; returns when there is something to read, or raises.

    Raises:
        EOFError: The other side closed the pipe or ended.
    """
    (count,) = struct.unpack("<I", _read(fd, 4, wait))
    sizes = struct.unpack(f"<{count}Q", _read(fd, 8 * count, wait))
    head, *buffers = [_read(fd, size, wait) for size in sizes]
    return pickle.loads(head, buffers=buffers)  # noqa: S301 - from a process of our own


def _read(fd: int, size: int, wait: Callable[[], None] | None) -> memoryview:
    # Not a bytearray: that would be filled with zeros first. Arrow's pool keeps the memory for the next message.
    view = memoryview(pa.allocate_buffer(size)).cast("B")
    done = 0
    while done < size:
        if wait is not None:
            wait()
        count = os.readv(fd, [view[done : done + _PIPE_LIMIT]])
        if count == 0:
            raise EOFError
        done += count
    return view
