"""Counting the epochs of a dataset that the worker processes of torch's ``DataLoader`` have copies of."""

from __future__ import annotations

import contextlib
from multiprocessing import context
from typing import Any

import torch
from torch.utils.data import get_worker_info

_FIRST, _CHANGES, _USED = 0, 1, 2  # what stands where in the shared memory
_CAPACITY = 1 << 12


class Epochs:
    """Which epoch an iteration is, the same in every worker of a ``DataLoader`` that asks.

    A ``DataLoader`` starts its workers anew in every epoch from a dataset that knows nothing of the
    last one. The numbers are therefore in shared memory. Workers of one iteration have a seed in
    common: an epoch is the position of that seed among those seen so far. Each worker may write it
    down, for all write the same.
    """

    def __init__(self) -> None:
        self._shared = _shared_numbers()
        self._changes = self._again = 0

    def set(self, epoch: int) -> None:
        """Let the next iteration be this epoch."""
        self._shared[_FIRST] = epoch
        self._shared[_USED:] = 0
        self._shared[_CHANGES] += 1

    def take(self, wanted: int | None = None) -> int:
        """Return the epoch of an iteration that begins now, in the process of the caller.

        Args:
            wanted: Which one it is to be; all workers say the same at this time. None for the next one.
        """
        worker = get_worker_info()
        if worker is None:
            epoch = self.following if wanted is None else wanted
            self.set(epoch + 1)
            return epoch
        if wanted is not None:
            self._shared[_FIRST] = wanted
            self._shared[_USED + 1 :] = 0
            self._shared[_USED] = worker.seed - worker.id
            self._changes, self._again = int(self._shared[_CHANGES]), 1
            return wanted
        if self._changes != int(self._shared[_CHANGES]):
            self._changes, self._again = int(self._shared[_CHANGES]), 0
        # Workers that are kept for the next epoch keep their seed.
        epoch = int(self._shared[_FIRST]) + self._position(worker.seed - worker.id) + self._again
        self._again += 1
        return epoch

    @property
    def following(self) -> int:
        """The epoch of the next iteration."""
        return int(self._shared[_FIRST]) + int((self._shared[_USED:] != 0).sum())

    def _position(self, seed: int) -> int:
        used = self._shared[_USED:].clone()  # of one moment: another worker may be writing
        usable = torch.nonzero((used == seed) | (used == 0))
        if not len(usable):  # more epochs than there is room for: an order of its own
            return seed % (1 << 31) + _CAPACITY
        position = int(usable[0, 0])
        self._shared[_USED + position] = seed
        return position

    def __getstate__(self) -> dict[str, Any]:
        if context.get_spawning_popen() is not None:  # for a worker, which shares the memory
            return dict(self.__dict__)
        return {"following": self.following}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "following" in state:
            Epochs.__init__(self)
            self.set(state["following"])
        else:
            self.__dict__.update(state)


def _shared_numbers() -> torch.Tensor:
    numbers = torch.zeros(_USED + _CAPACITY, dtype=torch.int64)
    # Without shared memory, epochs are counted in each process.
    with contextlib.suppress(OSError, RuntimeError):
        numbers.share_memory_()  # type: ignore[no-untyped-call]
    return numbers
