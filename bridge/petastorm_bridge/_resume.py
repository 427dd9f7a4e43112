"""Where a torch loader is in its pass, as something to save, and going on from there."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ._plan import Visit

if TYPE_CHECKING:
    from .reader import Reader

__all__ = ["Position", "checksum", "without_rows"]

_VERSION = 1


def without_rows(visits: Iterator[Visit], rows: int) -> Iterator[Visit]:
    """Yield the visits of a pass without its first rows; whole pieces are never read."""
    for visit in visits:
        count = 0 if visit.piece is None else len(visit.piece)
        if rows >= count > 0:
            rows -= count
        elif rows and visit.piece is not None:
            order = np.arange(count) if visit.order is None else visit.order
            yield Visit(visit.piece, order[rows:], visit.ends_epoch)
            rows = 0
        else:
            yield visit


class Position:
    """How far a loader's pass is.

    The order of a pass follows from the reader's plan and from where its generators stood when the
    pass began, so that this and a number of batches say everything.

    Args:
        reader: The loader's reader.
        batch_size: Rows of a batch, None for all of them.
        capacity: Rows in the shuffle buffer.
    """

    def __init__(self, reader: Reader, batch_size: Any, capacity: Any) -> None:
        self._reader = reader
        self._batch_size = batch_size
        self._capacity = capacity
        self._delivered = 0
        self._skipped = 0
        self._is_over = False

    def follow(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield a pass's batches, from where it is resumed."""
        if self._is_over:
            self._delivered = self._skipped = 0
        self._is_over = False
        skipped, self._skipped = self._skipped, 0
        for batch in itertools.islice(batches, skipped, None):
            self._delivered += 1
            yield batch
        self._is_over = True

    def save(self) -> dict[str, Any]:
        """Return what :meth:`load` takes, JSON-able.

        Raises:
            ValueError: The order cannot be had again, because it does not come from a seed.
        """
        shuffled = self._reader.is_shuffled or self._capacity > 0
        if shuffled and not self._reader.is_seeded:
            raise ValueError(
                "The position in a shuffled pass cannot be saved without a seed, because its order "
                "cannot be had again. Pass seed=... to make_torch_dataloader or make_batch_reader, "
                "or shuffle_row_groups=False."
            )
        over = self._is_over
        return {
            "version": _VERSION,
            "batches": 0 if over else self._delivered,
            "start": self._reader.next_start if over else self._reader.pass_start,
            "loader": self._facts(),
        }

    def load(self, state: Any) -> None:
        """Let the next pass begin where a state was saved.

        Raises:
            ValueError: The state is of a loader of other rows, batches or shuffling.
        """
        if not isinstance(state, dict) or state.get("version") != _VERSION:
            raise ValueError(f"This is no state of a loader of this version: {state!r}.")
        facts = self._facts()
        differing = sorted(name for name in facts if state["loader"].get(name) != facts[name])
        if differing:
            saved = {name: state["loader"].get(name) for name in differing}
            here = {name: facts[name] for name in differing}
            raise ValueError(
                f"The state is of another loader: {saved} there, {here} here. Make the loader with "
                "the arguments and the data of the one whose state it is."
            )
        batches = int(state["batches"])
        # A shuffle buffer is filled as it was; otherwise rows that were delivered are not read.
        direct = self._capacity == 0 and self._reader.keeps_rows and self._batch_size is not None
        self._reader.restart(state["start"], batches * self._batch_size if direct else 0)
        self._delivered, self._skipped = batches, 0 if direct else batches
        self._is_over = False

    def _facts(self) -> dict[str, Any]:
        size = self._batch_size
        return {
            "batch_size": None if size is None else int(size),
            "shuffling_queue_capacity": int(self._capacity),
            **self._reader.facts,
        }


def checksum(numbers: Any) -> int:
    """Return a number that tells one list of integers from another."""
    return zlib.crc32(np.asarray(numbers, "<i8").tobytes())
