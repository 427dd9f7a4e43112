"""Memory into which far bytes are read, used again and again: new pages cost as much as copying them."""

from __future__ import annotations

import threading

PIECE_BYTES = 256 << 10
"""How much of a long answer is read at once: few enough bytes that the processor's cache still has them when they are
written to their place. From memory it takes several times as long."""

_buffers = threading.local()


def thread_buffer(size: int) -> memoryview:
    """Return so many bytes of memory that belongs to this thread, which gets the same again next time."""
    if len(getattr(_buffers, "memory", b"")) < size:
        _buffers.memory = bytearray(size)
    return memoryview(_buffers.memory)[:size]
