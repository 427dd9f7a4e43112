"""How a dataset is to be converted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from petastorm_bridge._workers.threads import usable_cores
from petastorm_bridge.mds import codecs
from petastorm_bridge.mds.layout import MAX_SHARD_BYTES


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
