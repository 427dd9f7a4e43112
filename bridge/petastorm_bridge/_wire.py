"""Messages between a process pool and its workers, over pipes.

A message is ``[u32 parts][u64 size of each part][parts]``: a pickle, then the buffers it refers to
(pickle protocol 5), so that columns are written from and read into memory without a copy between.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ._columns import Block, Column

__all__ = ["pack_block", "receive", "send", "send_pickled", "unpack_block"]

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


def receive(fd: int) -> Any:
    """Read one message.

    Raises:
        EOFError: The other side closed the pipe or ended.
    """
    (count,) = struct.unpack("<I", _read(fd, 4))
    sizes = struct.unpack(f"<{count}Q", _read(fd, 8 * count))
    head, *buffers = [_read(fd, size) for size in sizes]
    return pickle.loads(head, buffers=buffers)  # noqa: S301 - from a process of our own


def _read(fd: int, size: int) -> memoryview:
    # Not a bytearray: that would be filled with zeros first.
    view = np.empty(size, np.uint8).data
    done = 0
    while done < size:
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
