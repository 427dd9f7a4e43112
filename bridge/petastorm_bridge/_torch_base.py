"""What the torch loaders over a reader share (``LoaderBase`` of ``petastorm/pytorch.py``)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._columns import Block
from ._resume import Position
from ._shuffle import shuffle_pool
from ._torch_columns import torch_block
from .reader import Reader

__all__ = ["LoaderBase", "batch_integer", "whole_size"]

logger = logging.getLogger(f"{__package__}.pytorch")

_PARALLEL = (
    "You must finish a full pass of Petastorm DataLoader before making another pass from the "
    "beginning.If you do need to terminate early and restart from beginning, please re-create the "
    "reader and the data loader."
)


class LoaderBase:
    """What the loaders share: one pass at a time, and a fresh one after a complete one.

    Attributes:
        reader: The reader whose rows are batched.
    """

    reader: Reader

    def __init__(self) -> None:
        self._in_iter: bool | None = None
        self._error: BaseException | None = None
        self._saved_position: Position | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return where the pass is, in the form that :meth:`load_state_dict` takes (JSON-able).

        Raises:
            ValueError: The pass is shuffled and has no seed.
        """
        return self._position.save()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration go on behind the last batch that was delivered before a state.

        Row groups that were used up are not read again, unless a shuffle buffer, a predicate, a
        filter or a transform makes it necessary.

        Raises:
            RuntimeError: An iteration is under way.
            ValueError: The state is of another loader.
        """
        if self._in_iter:
            raise RuntimeError("Call load_state_dict before an iteration begins or after its end.")
        self._position.load(state)
        self._in_iter = self._error = None

    @property
    def _position(self) -> Position:
        if self._saved_position is None:
            self._saved_position = Position(self.reader, *self._sizes())
        return self._saved_position

    def _sizes(self) -> tuple[int | None, int]:
        """Return the rows of a batch and of the shuffle buffer."""
        raise NotImplementedError(f"{type(self).__name__} does not say its sizes.")

    def __iter__(self) -> Iterator[Any]:
        if self._error is not None:
            raise RuntimeError(
                "Cannot start a new iteration because last time iteration failed with error "
                f"{self._error!r}."
            )
        if self._in_iter:
            raise RuntimeError(_PARALLEL)
        if self._in_iter is not None:
            self.reader.reset()
            logger.warning(
                "Start a new pass of Petastorm DataLoader, reset underlying Petastorm reader to "
                "position 0."
            )
        self._in_iter = True
        try:
            yield from self._position.follow(self._iter_impl())
        except Exception as error:
            self._error = error
            # The caller gets the error itself; the log line is Petastorm's.
            logger.error(  # noqa: TRY400
                "Iteration on Petastorm DataLoader raise error: %r", error
            )
            raise
        finally:
            self._in_iter = False

    def _iter_impl(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not say how to iterate.")

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()
        self.reader.join()

    def _blocks(self, capacity: Any) -> Iterator[Block]:
        blocks = (torch_block(self.reader, block) for block in self.reader.blocks())
        if not capacity > 0:
            return blocks
        if not isinstance(capacity, (int, np.integer)):
            raise TypeError(
                f"shuffling_queue_capacity is {capacity!r}, a {type(capacity).__name__}; it must be "
                "an integer number of rows."
            )
        return shuffle_pool(blocks, int(capacity), self._generator())

    def _generator(self) -> np.random.Generator:
        return self.reader.randomness.child()


def whole_size(batch_size: Any, num_epochs: int | None) -> int | None:
    """Return ``batch_size`` as Petastorm's row-by-row comparison understands it.

    Batches end when their length equals ``batch_size``: ``2.0`` is 2, and what no length equals
    (None, 0, 2.5, ``'4'``) gives one batch of everything, which is None here.

    Raises:
        ValueError: Such a batch over endless epochs, which could never be yielded.
    """
    if isinstance(batch_size, (int, float, np.number)) and batch_size >= 1:
        size = int(batch_size)
        if size == batch_size:
            return size
    if num_epochs is None:
        raise ValueError(
            f"batch_size={batch_size!r} asks for one batch of all rows, which never fills while "
            "num_epochs is None. Give a positive integer, or num_epochs."
        )
    return None


def batch_integer(batch_size: Any) -> int:
    """Return ``batch_size`` of the loaders that take a positive integer only.

    Raises:
        TypeError, ValueError: It is none.
    """
    if not isinstance(batch_size, (int, np.integer)):
        raise TypeError(
            f"batch_size is {batch_size!r}, a {type(batch_size).__name__}; it must be an integer."
        )
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1.")
    return int(batch_size)
