"""How a dataset is to be converted, and which row groups together: the unit of work, and of what a killed run keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from petastorm_bridge._workers.threads import usable_cores
from petastorm_bridge.mds import codecs
from petastorm_bridge.mds.layout import MAX_SHARD_BYTES

# Few enough that little is lost with a part, and enough that the last shard, cut short, counts little.
_MOST_SHARDS_PER_PART = 8
# Small datasets have parts for several workers, too.
_LEAST_SHARDS_PER_PART = 2
_WANTED_PARTS = 8
# What a batch of rows may take in memory, and what no batch needs to exceed.
_BATCH_BYTES = 8 << 20
_MOST_ROWS = 1 << 16


@dataclass(frozen=True)
class Options:
    """What the user asked for.

    Attributes:
        size_limit: Bytes of a shard at most, before compression.
        compression: MDS compression name, or None.
        hashes: MDS hash names.
        workers: Number of processes.
        is_verified: Whether every value is read back and compared with its source.
    """

    size_limit: int
    compression: str | None
    hashes: tuple[str, ...]
    workers: int
    is_verified: bool

    @classmethod
    def checked(
        cls,
        size_limit: int,
        compression: str | None,
        hashes: Sequence[str] | None,
        workers: int | None,
        *,
        is_verified: bool,
    ) -> Options:
        """Return the options.

        Args:
            size_limit: Bytes.
            compression: None or an empty string for none.
            hashes: None for the one that the bridge writes by default.
            workers: None for one process per core that this process may use.
            is_verified: See above.

        Raises:
            ValueError: One of them cannot be used.
        """
        if not 0 < size_limit <= MAX_SHARD_BYTES:
            raise ValueError(
                f"The size limit of a shard is {size_limit} bytes; give 1 to {MAX_SHARD_BYTES}."
            )
        codecs.parse_compression(compression or None)
        names = [codecs.default_hash()] if hashes is None else hashes
        for name in names:
            if not codecs.is_hash(name):
                codecs.digest(name, b"")  # raises, saying which hashes there are
        count = usable_cores() if workers is None else workers
        if count < 1:
            raise ValueError(f"The number of workers is {count}; give 1 or more.")
        return cls(size_limit, compression or None, tuple(names), count, is_verified)


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


def cut_parts(rows: Sequence[int], sizes: Sequence[int], options: Options) -> list[Part]:
    """Return the parts of a dataset; the same ones whenever files and options are the same.

    Args:
        rows: Rows of each row group.
        sizes: Bytes of each row group, uncompressed.
        options: For the size of a shard.
    """
    least, most = (options.size_limit * n for n in (_LEAST_SHARDS_PER_PART, _MOST_SHARDS_PER_PART))
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
    """Return how many rows of a row group are decoded together.

    Args:
        rows: Rows of the row group.
        size: Its bytes, uncompressed.
    """
    per_row = max(1, size // max(rows, 1))
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // per_row))
