"""Racing contestants against each other, and what comes out."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks._settings import SEED

# Petastorm ends an epoch early in up to a quarter of the tries (its ventilator races with its
# results queue), so an incomplete epoch says nothing about its speed and is done again.
_MAX_REPEATS = 50


class IncompleteEpochError(RuntimeError):
    """A contestant did not deliver the rows it should have."""


@dataclass(frozen=True)
class Contestant:
    """One way of doing the job that a race measures.

    Attributes:
        name: as it stands in the table.
        rows: how many rows one run must deliver.
        run: does the job once, entirely (opening and closing included), and returns how many
            rows it delivered.
        check: does the job once, unmeasured, and raises IncompleteEpochError unless exactly
            the right rows came.
        after: cleans up after a run, unmeasured.
        loses_rows: an incomplete run is repeated and counted instead of ending the benchmark.
        note: anything the reader of the table has to know.
        before: prepares a run, unmeasured.
    """

    name: str
    rows: int
    run: Callable[[], int]
    check: Callable[[], None]
    after: Callable[[], None] = lambda: None
    loses_rows: bool = False
    note: str = ""
    before: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Measurement:
    """What one contestant reached in one race.

    Attributes:
        group: the race, one of ``_settings.GROUPS``.
        samples: one figure per measured run, in ``unit``, in the order of the rounds.
        repeated: incomplete runs that were thrown away and done again.
    """

    group: str
    name: str
    unit: str
    rows: int
    samples: tuple[float, ...]
    repeated: int = 0
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def as_json(self) -> dict[str, Any]:
        summary = {"median": self.median, "min": min(self.samples), "max": max(self.samples)}
        return {**asdict(self), "samples": list(self.samples), **summary}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Measurement:
        fields = ("group", "name", "unit", "rows", "repeated", "note")
        return cls(samples=tuple(record["samples"]), **{name: record[name] for name in fields})


def ratio(one: Measurement, other: Measurement) -> float:
    """How many times the figure of another contestant one's is, in the middle of all rounds.

    A machine changes from minute to minute, sometimes by half. So the two figures of each round are compared, most of
    which were measured one shortly after the other; the medians only where one was measured more often.
    """
    if len(one.samples) != len(other.samples):
        return one.median / other.median
    return statistics.median(a / b for a, b in zip(one.samples, other.samples, strict=True))


def loader_contestant(
    name: str,
    rows: int,
    open_loader: Callable[[], AbstractContextManager[Iterable[Any]]],
    ids: Callable[[Any], Any],
    *,
    loses_rows: bool = False,
    note: str = "",
) -> Contestant:
    """A contestant that reads one epoch from a loader and only counts the rows.

    ``open_loader`` gives the context manager whose value is iterated once; ``ids`` takes the
    ``id`` column, which is ``0 … rows-1`` in any order, out of a batch.
    """

    def run() -> int:
        delivered = 0
        with open_loader() as loader:
            for batch in loader:
                delivered += ids(batch).shape[0]
        return delivered

    def check() -> None:
        with open_loader() as loader:
            seen = [np.array(ids(batch)) for batch in loader]
        if not seen or not np.array_equal(np.sort(np.concatenate(seen)), np.arange(rows)):
            found = sum(map(len, seen))
            raise IncompleteEpochError(f"{name}: {found} ids where 0 … {rows - 1} were due")

    return Contestant(name, rows, run, check, loses_rows=loses_rows, note=note)


def race(
    group: str,
    unit: str,
    contestants: Sequence[Contestant],
    rounds: int,
    *,
    warm_ups: int = 1,
) -> list[Measurement]:
    """Measures rows per second of all contestants, in turns.

    Each first delivers ``warm_ups`` checked, unmeasured epochs. Then they take turns, so that whatever
    else the machine does hits all alike; in an order of its own in every round, since what ran just
    before leaves caches warm or cold.

    Raises:
        IncompleteEpochError: a contestant that must not lose rows did, or one that may lost
            some fifty times in a row.
    """
    samples: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    repeated = dict.fromkeys(samples, 0)
    for _ in range(warm_ups):
        for contestant in contestants:
            repeated[contestant.name] += _warm_up(contestant)
    order = np.random.default_rng(SEED)
    for _ in range(rounds):
        for position in order.permutation(len(contestants)):
            contestant = contestants[position]
            seconds, repeats = timed_run(contestant)
            samples[contestant.name].append(contestant.rows / seconds)
            repeated[contestant.name] += repeats
    return [
        Measurement(
            group, one.name, unit, one.rows, tuple(samples[one.name]), repeated[one.name], one.note
        )
        for one in contestants
    ]


def _warm_up(contestant: Contestant) -> int:
    for repeats in range(_MAX_REPEATS):
        try:
            contestant.check()
        except IncompleteEpochError:
            if not contestant.loses_rows:
                raise
        else:
            return repeats
        finally:
            contestant.after()
    raise IncompleteEpochError(f"{contestant.name}: no complete epoch in {_MAX_REPEATS}")


def timed_run(contestant: Contestant) -> tuple[float, int]:
    """Seconds of the first complete run, and how many incomplete ones came before it."""
    delivered = 0
    for repeats in range(_MAX_REPEATS):
        gc.collect()
        contestant.before()
        start = time.perf_counter()
        delivered = contestant.run()
        seconds = time.perf_counter() - start
        contestant.after()
        if delivered == contestant.rows:
            return seconds, repeats
        if not contestant.loses_rows:
            break
    raise IncompleteEpochError(
        f"{contestant.name}: {delivered} rows where {contestant.rows} were due"
    )
