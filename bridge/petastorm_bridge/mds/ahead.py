"""Writing files while the next ones are being made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Write", "WritesAhead"]

Write = Callable[[str, Sequence[memoryview]], None]

_MOST_FILES = 4
_MOST_BYTES = 1 << 27


class WritesAhead:
    """Writes files to a far directory, where a file takes long and several take no longer.

    Few are under way, and few bytes beside a single file of any size.

    Args:
        write: Writes a path's file of buffers.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pool = ThreadPoolExecutor(_MOST_FILES)
        self._under_way: deque[tuple[Future[None], int]] = deque()
        self._bytes = 0

    def __call__(self, path: str, parts: Sequence[memoryview]) -> None:
        """Begin to write a file; wait first while there are too many.

        Raises:
            OSError: An earlier one cannot be written.
        """
        size = sum(map(len, parts))
        while self._under_way and (
            len(self._under_way) == _MOST_FILES or self._bytes + size > _MOST_BYTES
        ):
            self._wait_for_first()
        self._under_way.append((self._pool.submit(self._write, path, parts), size))
        self._bytes += size

    def finish(self) -> None:
        """Wait for all files; raises as calls do."""
        while self._under_way:
            self._wait_for_first()
        self.close()

    def close(self) -> None:
        """Begin no other file, and wait for those that are half written."""
        self._pool.shutdown(cancel_futures=True)

    def _wait_for_first(self) -> None:
        future, size = self._under_way.popleft()
        self._bytes -= size
        future.result()
