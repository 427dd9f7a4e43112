"""Where a torch loader is in its pass, as something to save, and going on from there."""

from __future__ import annotations

import inspect
import itertools
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge.errors import BridgeWarning

if TYPE_CHECKING:
    from petastorm_bridge.reader._reader import Reader

_VERSION = 1

_UNSEEDED = (
    "its order is shuffled without a seed and cannot be had again. Pass seed=... (or "
    "shuffle_row_groups=False) to make_torch_dataloader or make_batch_reader"
)
_OWN_ITERATION = (
    "its class iterates in a way of its own. Let the class override __iter__ only, and call "
    "super().__iter__() there"
)
_TAKEN_ELSEWHERE = (
    "rows were taken from its reader before or beside it. Open a reader for the loader alone"
)


def without_first_rows(blocks: Iterator[Block], rows: int) -> Iterator[Block]:
    """Yield blocks of arrays or lists without their first rows."""
    for block in blocks:
        dropped = min(rows, block.num_rows)
        rows -= dropped
        if not dropped:
            yield block
        elif dropped < block.num_rows or block.ends_epoch:
            columns = {name: column[dropped:] for name, column in block.columns.items()}
            yield Block(columns, block.num_rows - dropped, block.ends_epoch)


class Position:
    """How far a loader's pass is.

    The order of a pass follows from the reader's plan and from where its generators stood when the
    pass began, so that this and a number of rows say everything.

    Args:
        reader: The loader's reader; None if it is none of the bridge's.
        sizes: Rows of a batch (None for all of them) and of the shuffle buffer; None for a loader
            whose batches are not simply the reader's rows, one after the other.

    Attributes:
        sizes: As given; may be set anew between two passes.
        is_counted: Whether someone asked for the length, and so may never ask for a pass's end.
    """

    def __init__(self, reader: Reader | None, sizes: tuple[int | None, int] | None) -> None:
        self._reader = reader
        self.sizes = sizes
        self.is_counted = False
        self._is_awaited = False  # load() was called and no iteration has begun since
        self._has_warned = False
        self._forget()

    def _forget(self) -> None:
        self._rows = 0  # delivered in this pass
        self._to_drop = 0
        self._is_over = False
        self._is_shared = False

    def length(self, rows_before: int = 0) -> int | None:
        """Return the number of batches of a pass behind some rows; None where it is not known beforehand."""
        total = None if self._reader is None else self._reader.rows_per_pass
        if total is None or self.sizes is None:
            return None
        rows, size = total - rows_before, self.sizes[0]
        return min(rows, 1) if size is None else -(-rows // size)

    def follow(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield a pass's batches and count them."""
        if not self._is_awaited:
            self._forget()
            self._is_shared = (
                self._reader is not None and not self._reader.passes.current.is_at_start
            )
        self._is_awaited = False
        size = None if self.sizes is None else self.sizes[0]
        remaining = self.length(self._rows) if self.is_counted else None
        if self.sizes is not None and size is None:
            remaining = 1
        for batch in batches:
            self._rows += size or 0
            remaining = None if remaining is None else remaining - 1
            # The pass is over even if nobody asks again.
            following = tuple(itertools.islice(batches, 1)) if remaining == 0 else ()
            self._is_over = remaining == 0 and not following
            yield batch
            yield from following
        self._is_over = True

    def rows_to_drop(self) -> int:
        """Return how many rows the pass that begins now has to drop, once."""
        rows, self._to_drop = self._to_drop, 0
        return rows

    def save(self, held_back: int = 0) -> dict[str, Any]:
        """Return what :meth:`load` takes, JSON-able.

        Where the position cannot be had again it is saved as unknown, with one warning.

        Args:
            held_back: So many of the last batches were delivered in vain and are to come again.
        """
        state: dict[str, Any] = {"version": _VERSION, "rows": None}
        obstacle = self._obstacle()
        if obstacle:
            self._warn(
                f"The position of this loader cannot be saved, because {obstacle}. Whoever loads "
                "this state begins with a new pass."
            )
        elif self._reader is not None and self.sizes is not None:
            over = self._is_over and not held_back
            state["rows"] = 0 if over else max(self._rows - held_back * (self.sizes[0] or 0), 0)
            passes = self._reader.passes
            state["start"] = passes.next_start if over else passes.current.start
            state["loader"] = self._facts()
        return state

    def _obstacle(self) -> str | None:
        """Return why the position cannot be had again, None if it can."""
        if self._reader is None or self.sizes is None:
            return _OWN_ITERATION
        if self._is_over:
            return None
        passes = self._reader.passes
        if self._is_shared or not (self._rows or passes.current.is_at_start):
            return _TAKEN_ELSEWHERE
        shuffled = passes.is_shuffled or self.sizes[1] > 0
        return _UNSEEDED if self._rows and shuffled and not passes.is_seeded else None

    def load(self, state: Any, *, keeps_rows: bool = True) -> None:
        """Let the next pass begin where a state was saved.

        It begins as a new pass, with one warning, if the state is unknown or of other data or
        shuffling. The size of the batches may be another one.

        Args:
            state: From :meth:`save`.
            keeps_rows: Whether the loader's rows are the reader's, so that those it delivered need not
                be read again.

        Raises:
            ValueError: This is no state.
        """
        rows = _delivered(state)
        obstacle = self._mismatch(state)
        self._forget()
        self._is_awaited = True
        if obstacle is None:
            self._go_to(state["start"], rows, keeps_rows=keeps_rows)
            return
        if self._reader is not None and not self._reader.passes.current.is_at_start:
            self._reader.passes.begin_again()
        if state["rows"] != 0:
            self._warn(f"{obstacle} The loader begins with a new pass.")

    def _mismatch(self, state: dict[str, Any]) -> str | None:
        """Return why the place of a state cannot be found in this loader, None if it can."""
        if state["rows"] is None:
            return "The state that was loaded holds no position."
        if self._reader is None or self.sizes is None:
            return f"The position that was loaded cannot be found again, because {_OWN_ITERATION}."
        # Rows come in the same order whatever the size of the batches.
        here = {
            name: fact
            for name, fact in sorted(self._facts().items())
            if name != "batch_size" and state["loader"].get(name) != fact
        }
        if not here:
            return None
        saved = {name: state["loader"].get(name) for name in here}
        return f"The state that was loaded is of another loader: {saved} there, {here} here."

    def _go_to(self, start: Any, rows: int, *, keeps_rows: bool) -> None:
        assert self._reader is not None
        assert self.sizes is not None
        # A shuffle buffer is filled as it was; otherwise rows that were delivered are not read.
        is_direct = keeps_rows and self.sizes[1] == 0 and self._reader.keeps_rows
        try:
            self._reader.passes.begin_at(start, rows if is_direct else 0)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"The state of a loader is damaged: {start!r}.") from error
        self._rows = rows
        self._to_drop = 0 if is_direct else rows

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(text, BridgeWarning, stacklevel=4)

    def _facts(self) -> dict[str, Any]:
        assert self._reader is not None
        assert self.sizes is not None
        size, capacity = self.sizes
        return {
            "batch_size": None if size is None else int(size),
            "shuffling_queue_capacity": int(capacity),
            **self._reader.passes.facts,
        }


def _delivered(state: Any) -> int:
    """Return the rows that were delivered before a state; ValueError if it is none."""
    if isinstance(state, dict) and state.get("version") == _VERSION:
        rows = state.get("rows", -1)
        if rows is None:
            return 0
        has_place = isinstance(state.get("loader"), dict) and "start" in state
        if has_place and isinstance(rows, int) and rows >= 0:
            return rows
    raise ValueError(f"This is no state of a loader of this version: {state!r}.")


def batches_held_by_lightning() -> int:
    """Return how many batches Lightning has taken and not trained on, for a state that it saves now.

    It takes one in advance from a loader whose length it does not know, to see where an epoch ends,
    and does not count it when it saves a checkpoint (``_PrefetchDataFetcher``). Nobody tells: it is asked by
    the names that it has in its versions of today; where these have changed, it is as if it were not there.
    """
    if "lightning" not in sys.modules and "pytorch_lightning" not in sys.modules:
        return 0
    frame = inspect.currentframe()
    while frame is not None:
        fetcher = getattr(frame.f_locals.get("self"), "_data_fetcher", None)
        held = getattr(fetcher, "batches", None)
        if isinstance(held, list):
            return len(held)
        frame = frame.f_back
    return 0
