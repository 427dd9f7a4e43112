"""Messages between a process pool and its workers, over pipes.

A message is ``[begin][u32 parts][u64 size of each part][parts][end]``: a pickle, then the buffers it
refers to (pickle protocol 5), so that columns are written from and read into memory without a copy
between. The fixed bytes at both ends tell a message from what something else wrote to the pipe.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from petastorm_bridge._blocks.columns import Block, Column
from petastorm_bridge._blocks.memory import pooled

__all__ = ["WireError", "pack_block", "receive", "send", "send_pickled", "unpack_block"]

_PIPE_LIMIT = 1 << 30  # Linux moves at most 2 GiB in one call
_BEGIN = b"\x93PSB\r\n\x1a\x01"  # hardly what a library would print
_END = _BEGIN[::-1]


class WireError(RuntimeError):
    """The bytes in the pipe are no message."""


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
    header = _BEGIN + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    for part in (memoryview(header), *parts, memoryview(_END)):
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
        WireError: What came is no message. What comes after it is none either.
    """
    _expect(fd, _BEGIN, wait)
    (count,) = struct.unpack("<I", _read(fd, 4, wait))
    sizes = struct.unpack(f"<{count}Q", _read(fd, 8 * count, wait))
    head, *buffers = [_read(fd, size, wait) for size in sizes]
    _expect(fd, _END, wait)
    return pickle.loads(head, buffers=buffers)  # noqa: S301 - from a process of our own


def _expect(fd: int, wanted: bytes, wait: Callable[[], None] | None) -> None:
    found = bytes(_read(fd, len(wanted), wait))
    if found != wanted:
        raise WireError(f"{found!r} instead of {wanted!r}")


def _read(fd: int, size: int, wait: Callable[[], None] | None) -> memoryview:
    # Not a bytearray: that would be filled with zeros first.
    view = pooled((size,), np.uint8).data
    done = 0
    while done < size:
        if wait is not None:
            wait()
        count = os.readv(fd, [view[done : done + _PIPE_LIMIT]])
        if count == 0:
            raise EOFError
        done += count
    return view


def pack_block(block: Block) -> Any:
    """Return a block in a form that :func:`send` writes without sending more than its rows.

    Arrow pickles the whole buffers behind a slice, its IPC format only the slice; NumPy copies what
    is not contiguous into the pickle.
    """
    arrow = {n: c for n, c in block.columns.items() if isinstance(c, pa.Array)}
    others = {n: _contiguous(c) for n, c in block.columns.items() if n not in arrow}
    return list(block.columns), others, _to_ipc(arrow), block.num_rows, block.ends_epoch


def unpack_block(packed: Any) -> Block:
    """Return the block that :func:`pack_block` was given."""
    names, columns, ipc, num_rows, ends_epoch = packed
    if ipc is not None:
        (batch,) = pa.ipc.open_stream(ipc)
        columns |= {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    return Block({name: columns[name] for name in names}, num_rows, ends_epoch)


def _contiguous(column: Column) -> Column:
    if isinstance(column, np.ndarray) and not column.dtype.hasobject:
        return np.ascontiguousarray(column)
    return column


def _to_ipc(columns: Mapping[str, pa.Array]) -> pa.Buffer | None:
    if not columns:
        return None
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
