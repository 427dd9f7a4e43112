"""Which row groups are converted together: the unit of work, and of what a killed run need not repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Few enough that little is lost with a part, and enough that the last shard, cut short, counts little.
_MOST_SHARDS_PER_PART = 8
# Small datasets have parts for several workers, too.
_LEAST_SHARDS_PER_PART = 2
_WANTED_PARTS = 8
# What a batch of rows may take in memory, and what no batch needs to exceed.
_BATCH_BYTES = 8 << 20
_MOST_ROWS = 1 << 16


@dataclass(frozen=True)
class Part:
    """Row groups that lie together in the order of the dataset.

    Attributes:
        number: Its place among the parts.
        start: The first row group.
        stop: The one after the last.
        rows: Rows in all of them.
    """

    number: int
    start: int
    stop: int
    rows: int

    @property
    def prefix(self) -> str:
        """How the names of its shards begin."""
        return f"shard.{self.number:05}"


def cut_parts(rows: Sequence[int], sizes: Sequence[int], size_limit: int) -> list[Part]:
    """Return the parts of a dataset, given rows and uncompressed bytes of each row group, and bytes of a shard.

    They are the same ones whenever files and limit are the same.
    """
    least, most = (size_limit * n for n in (_LEAST_SHARDS_PER_PART, _MOST_SHARDS_PER_PART))
    goal = min(most, max(least, sum(sizes) // _WANTED_PARTS))
    parts: list[Part] = []
    start = taken = 0
    for position, size in enumerate(sizes):
        taken += size
        if taken >= goal or position + 1 == len(sizes):
            stop = position + 1
            parts.append(Part(len(parts), start, stop, sum(rows[start:stop])))
            start, taken = stop, 0
    return parts


def rows_at_a_time(rows: int, size: int) -> int:
    """Return how many rows of a row group are decoded together, given its rows and its bytes, uncompressed."""
    per_row = max(1, size // max(rows, 1))
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // per_row))
