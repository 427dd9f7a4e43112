"""Which rows of a reader the iterators of its TensorFlow datasets get."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge.reader._reader import Reader

AGAIN = (
    "Running multiple iterations over make_petastorm_dataset is not recommend for performance "
    "issue. Use Reader's num_epochs contructor arguments to set number of iterations,"
    "or use tf.data.Dataset's cache() function to cache data of first iteration before"
    "calling 'repeat' method of Datset class."
)


class Iterators:
    """Starts the iterators of a dataset; a call returns the elements of one.

    Over endless epochs every iterator goes on where those before it stopped, as in Petastorm, so
    that a loop over ``dataset.take(n)`` and Keras' ``validation_steps`` get to all rows. Otherwise
    an iterator is a whole pass, what is left of the reader's own or a new one, so that nobody
    misses the rows of an iterator that was left early.

    Args:
        reader: Whose rows.
        arrange: Makes elements of blocks.
    """

    def __init__(self, reader: Reader, arrange: Callable[[Iterator[Block]], Iterator[Any]]) -> None:
        self._reader = reader
        self._arrange = arrange
        self._lock = threading.Lock()
        self._endless: Iterator[Any] | None = None
        self._given_back: deque[Any] = deque()

    def __call__(self) -> Iterator[Any]:
        if self._reader.num_epochs is not None:
            return self._arrange(_whole_pass(self._reader))
        return iter(self._next_of_all, None)

    def give_back(self, element: Any) -> None:
        """Let the next iterator of an endless dataset begin with an element that is left over."""
        if self._reader.num_epochs is None:
            self._given_back.appendleft(element)

    def _next_of_all(self) -> Any:
        """Return the next element for whoever asks; None at an end."""
        with self._lock:
            if self._given_back and not self._reader.stopped:
                return self._given_back.popleft()
            if self._endless is None:
                self._endless = self._arrange(self._reader.blocks())
            try:
                return next(self._endless)
            except StopIteration:
                self._endless = None
                return None
            except BaseException:
                self._endless = None  # a generator that failed would pretend to be at its end
                raise


@dataclass
class _Use:
    """What the iterators of a reader know of each other.

    Attributes:
        lock: Held while an iterator decides which pass it takes.
        is_taken: Whether an iterator draws from the reader's own pass.
        was_left: Whether the iterator that drew from it last did not reach its end.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    is_taken: bool = False
    was_left: bool = False


_USES: weakref.WeakKeyDictionary[Reader, _Use] = weakref.WeakKeyDictionary()


def _whole_pass(reader: Reader) -> Iterator[Block]:
    """Yield the blocks of one iterator over a reader whose epochs end."""
    use = _USES.setdefault(reader, _Use())
    if use.is_taken or use.was_left or reader.last_row_consumed:
        warnings.warn(AGAIN, category=UserWarning, stacklevel=2)
    with use.lock:
        is_beside = use.is_taken
        use.is_taken = True
        if reader.last_row_consumed and not is_beside:
            reader.reset()
        elif use.was_left and not is_beside:
            reader.passes.begin_again()
    if is_beside:
        yield from reader.passes.beside()
        return
    use.was_left = True
    try:
        yield from reader.blocks()
        use.was_left = False
    finally:
        use.is_taken = False
