"""Row groups that several visits read one after the other, opened and decoded once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from petastorm_bridge._blocks.columns import Column
from petastorm_bridge._sources.source import RowGroup, Source
from petastorm_bridge._workers.locks import ForkSafeLock
from petastorm_bridge.mds.shard import Rows

# Visits come row group by row group: threads are at the end of one while others begin with the next.
_KEPT = 2


class SharedGroups:
    """The row groups of a source that were opened last, for threads to share.

    Pickles without them.

    Args:
        source: Where the rows are.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._shared = functools.lru_cache(_KEPT)(functools.partial(_SharedGroup, source))
        self._lock = ForkSafeLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedGroups, (self._source,)

    def open(self, position: int) -> RowGroup:
        """Return a row group, which is opened when its first column is asked for."""
        with self._lock:  # without, threads that ask at the same time would get two
            return self._shared(position)

    def forget(self) -> None:
        """Drop what is kept; visits under way keep theirs."""
        self._shared.cache_clear()


class _SharedGroup:
    """A row group that one thread at a time loads columns from."""

    def __init__(self, source: Source, position: int) -> None:
        self._source = source
        self._position = position
        self._group: RowGroup | None = None
        self._lock = ForkSafeLock()

    def load(self, names: Sequence[str], rows: Rows) -> dict[str, Column]:
        with self._lock:
            if self._group is None:
                self._group = self._source.open(self._position)
            return self._group.load(names, rows)
