"""The passes of a reader: the one under way, others beside it, and those that begin in the middle."""

from __future__ import annotations

import functools
import threading
import warnings
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._workers.locks import ForkSafeLock

from ._arguments import ReaderOptions
from ._job import Job
from ._plan import Part, Plan, Randomness, between, fetched_ahead, in_runs, rows_of_part
from ._pool import Pool
from ._sharding import Piece

_STOPPED = (
    "Trying to read a sample after a reader created by make_reader/make_batch_reader has stopped. "
    "This may happen if the make_reader/make_batch_reader context manager has exited but you try to "
    "fetch a sample from it anyway"
)


class Pass:
    """The blocks of one pass. An endless pass in which no row comes through is ended.

    Threads may share it: each block goes to one of them.

    Attributes:
        start: What its order follows from; JSON-able.
        is_at_start: Whether nothing of it was read.
        is_over: Whether it was read to its end.
    """

    def __init__(
        self,
        start: dict[str, Any],
        blocks: Iterator[Block],
        *,
        endless: bool,
        stopped: threading.Event,
    ) -> None:
        self.start = start
        self.is_at_start = True
        self.is_over = False
        self._blocks = blocks
        self._endless = endless
        self._stopped = stopped
        self._epoch_rows = 0
        self._error: BaseException | None = None
        self._lock = ForkSafeLock()

    def __iter__(self) -> Iterator[Block]:
        return self

    def __next__(self) -> Block:
        """Return the next block; StopIteration if the pass is over, RuntimeError if the reader was stopped."""
        if self._stopped.is_set():
            raise RuntimeError(_STOPPED)
        self.is_at_start = False
        with self._lock:
            try:
                return self._next()
            except StopIteration:
                self.is_over = True
                raise

    def _next(self) -> Block:
        if self._error is not None:
            raise self._error  # a generator that failed would pretend to be at its end
        try:
            block = next(self._blocks)
        except StopIteration:
            self._error = StopIteration()  # the one caught keeps its frames, and a shard, until gc
            raise
        except BaseException as error:
            self._error = error
            raise
        self._epoch_rows += block.num_rows
        if block.ends_epoch:
            if self._endless and self._epoch_rows == 0:
                self._error = StopIteration()
                warnings.warn(
                    "A whole epoch gave no row: the predicate, filters or transform let nothing "
                    "through. The endless iteration ends here.",
                    stacklevel=2,
                )
            self._epoch_rows = 0
        return block


class Passes:
    """Makes the passes of one reader, which all visit the same pieces.

    Attributes:
        current: The pass that the reader and its loader go through.
        stopped: Set when the reader is stopped; no pass has a block from then on.
        may_cut_groups: Whether a block may hold a part of a row group, which is sooner here than the whole.
        lock: Held while one of several iterators over the reader decides which pass it takes.
        is_taken: Whether an iterator draws from the current pass.
        was_left: Whether the iterator that drew from it last did not reach its end.
    """

    def __init__(
        self, pieces: Sequence[Piece], odd_rows: int, job: Job, pool: Pool, options: ReaderOptions
    ) -> None:
        self.stopped = threading.Event()
        self.may_cut_groups = False
        self.lock = ForkSafeLock()
        self.is_taken = self.was_left = False
        self._pieces = pieces
        self._odd_rows = odd_rows
        self._job = job
        self._pool = pool
        self._options = options
        self._randomness = Randomness(options.seed)
        self._count = 0  # of those whose order does not follow from the pass before
        # Other odd rows with another seed.
        self._first_epoch = options.seed if isinstance(options.seed, int) else 0
        self._part: Part | None = None
        self._plan = self._make_plan()
        self.current = self._of_plan(self._plan)

    def begin(self) -> None:
        """Begin the pass that follows the current one."""
        self.current = self._of_plan(self._plan)

    def begin_again(self) -> None:
        """Begin a pass whose order does not depend on how far the one before was read."""
        self._count += 1
        self._plan = self._make_plan()
        self.begin()

    def begin_at(self, start: dict[str, Any], skipped: int) -> None:
        """Begin a pass as one that had this start, without its first rows."""
        self._plan.state = start
        self.current = self._of_plan(self._plan, skipped)

    def beside(self) -> Pass:
        """Return a pass of its own, beside the current one.

        Both may be left early, which does not change the next one's order.
        """
        self._count += 1
        return self._of_plan(self._make_plan())

    def take_part(self, part: Part, epoch: int) -> None:
        """Read only a part of the pass, which has one epoch; others read the rest from readers made alike.

        Args:
            part: Which one.
            epoch: The number of the pass, by which the row changes that is read twice or left out where
                shards are made even.
        """
        self._part, self._first_epoch = part, epoch
        self._plan = self._make_plan()
        self.begin()

    @property
    def next_start(self) -> dict[str, Any]:
        """What :attr:`Pass.start` would be if a pass began now."""
        return self._plan.state

    @property
    def randomness(self) -> Randomness:
        """Where the order of the current pass comes from."""
        return self._plan.randomness

    @property
    def is_seeded(self) -> bool:
        """Whether orders come from a seed."""
        return self._options.seed is not None

    @property
    def is_shuffled(self) -> bool:
        """Whether chance decides on the order of blocks or of the rows in them."""
        return bool(self._options.shuffle_row_groups or self._options.shuffle_rows)

    @property
    def rows_per_epoch(self) -> int:
        """Rows of an epoch as they are stored, before a predicate, filters or a transform."""
        if self._part is not None:
            return len(rows_of_part(self._part, self._plan.rows))
        return self._plan.rows

    @property
    def facts(self) -> dict[str, Any]:
        """What the order of a pass depends on besides its start; JSON-able."""
        part = {} if self._part is None else {"part": [self._part.number, self._part.count]}
        return {
            "rows": self.rows_per_epoch,
            "row_groups": self._checksum,
            "shuffle_row_groups": bool(self._options.shuffle_row_groups),
            "shuffle_rows": bool(self._options.shuffle_rows),
            "transform_batch_size": self._options.transform_batch_size,  # decides what a shuffle buffer takes
            **part,
        }

    @functools.cached_property
    def _checksum(self) -> int:
        # Of all pieces, and loaders ask for it at each batch.
        pieces = [(piece.group, piece.start, piece.stop) for piece in self._pieces]
        return zlib.crc32(np.array(pieces, "<i8").tobytes())

    def _make_plan(self) -> Plan:
        return Plan(
            self._pieces,
            shuffle_pieces=self._options.shuffle_row_groups,
            shuffle_rows=self._options.shuffle_rows and not self._job.shuffles_rows,
            randomness=self._randomness.of_pass(self._count),
            odd_rows=self._odd_rows,
            epoch=self._first_epoch + self._count * (self._options.num_epochs or 1),
        )

    def _of_plan(self, plan: Plan, skipped: int = 0) -> Pass:
        """Return the next pass of a plan, without its first rows."""
        start, source, options = plan.state, self._job.source, self._options
        visits = plan.visits(options.num_epochs)
        if self._part is not None:
            rows = rows_of_part(self._part, plan.rows)
            visits = between(visits, rows.start + skipped, rows.stop)
        elif skipped:
            visits = between(visits, skipped)
        if options.transform_batch_size is not None:
            visits = in_runs(visits, options.transform_batch_size)
        if source.ahead is not None:
            visits = fetched_ahead(
                visits,
                source,
                lambda: self.may_cut_groups,
                is_for_others=options.reader_pool_type == "process",
            )
        blocks = self._pool.blocks(self._job, visits)
        endless = options.num_epochs is None
        return Pass(start, blocks, endless=endless, stopped=self.stopped)
