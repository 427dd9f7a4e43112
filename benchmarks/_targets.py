"""The ratios that the bridge promises, and whether a run met them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import _codemod, _first_batch, _growth, _rows, _rows_memory, _scale, far
from benchmarks._competitors import CONVERTED, LANCE, OTHERS
from benchmarks._competitors import GROUP as COMPETITORS
from benchmarks._loaders import count_workers
from benchmarks._measure import Measurement, ratio
from benchmarks._memory import measurement_name
from benchmarks._parquet import CEILING as PARQUET_CEILING
from benchmarks._parquet import GROUP as DIRECT_PARQUET
from benchmarks._parquet import SHUFFLED as PARQUET_SHUFFLED
from benchmarks._races import IMAGE_CEILING, IMAGE_FRAMES, IMAGE_WORKERS
from benchmarks._settings import Settings
from benchmarks.native import COLUMNAR, MAPPED, STOCK


@dataclass(frozen=True)
class Target:
    """``ours`` is at least ``factor`` times as good as ``theirs`` in one race.

    Attributes:
        better: whether a higher or a lower figure is the better one.
    """

    group: str
    ours: str
    theirs: str
    factor: float
    better: str = "higher"


@dataclass(frozen=True)
class Verdict:
    """A target and the ratio that was reached; None where either was not measured."""

    target: Target
    ratio: float | None

    @property
    def met(self) -> bool | None:
        return None if self.ratio is None else self.ratio >= self.target.factor

    def as_json(self) -> dict[str, Any]:
        target = self.target
        return {
            "group": target.group,
            "ours": target.ours,
            "theirs": target.theirs,
            "at_least": target.factor,
            "ratio": self.ratio,
            "met": self.met,
        }


def targets(settings: Settings) -> list[Target]:
    """Every target, in the order of the races."""
    default, batched = "bridge DataLoader", "petastorm BatchedDataLoader"
    large, small = settings.batch_size, settings.small_batch
    return [
        Target("torch-sequential", default, "petastorm DataLoader", 100),
        Target("torch-sequential", default, batched, 10),
        Target("torch-sequential", default, "native StreamingDataLoader, 0 workers", 1000),
        Target("torch-shuffled", default, "petastorm DataLoader", 50),
        Target("torch-shuffled", default, batched, 3),
        Target(DIRECT_PARQUET, default, "petastorm DataLoader", 26),
        Target(DIRECT_PARQUET, default, batched, 4),
        Target(DIRECT_PARQUET, default, PARQUET_CEILING, 0.85),
        Target(DIRECT_PARQUET, PARQUET_SHUFFLED, batched, 4),
        Target(DIRECT_PARQUET, PARQUET_SHUFFLED, PARQUET_CEILING, 0.85),
        # Lance reads a format of its own, which is not decoded as Parquet is.
        *[
            Target(COMPETITORS, CONVERTED if other == LANCE else default, other, 1)
            for other in OTHERS
        ],
        Target("tensorflow", f"bridge, batch {large}", f"petastorm, batch {large}", 25),
        Target("tensorflow", f"bridge, batch {small}", f"petastorm, batch {small}", 3),
        *[
            Target("images", f"bridge, {workers}", f"petastorm, {workers}", 1)
            for workers in map(count_workers, IMAGE_WORKERS)
        ],
        # Two cores: what one worker leaves idle is less than a whole core, because the consumer
        # collates batches meanwhile.
        Target("images", "bridge, 2 workers", "bridge, 1 worker", 1.3),
        Target("images", IMAGE_FRAMES, IMAGE_CEILING, 0.95),
        *_first_batch_targets(),
        *_row_targets(),
        *_native_targets(),
        *_memory_targets(settings),
        *_opening_targets(settings),
        *_growth_targets(),
        Target("materialise", "bridge (MDS)", "petastorm (Parquet)", 1),
        *[
            Target(group, "bridge (MDS)", "native dataframe_to_mds", 10)
            for group in ("materialise", "materialise-cluster")
        ],
        # Its workers import streaming, and with it torch; ours neither.
        Target("first-task", "bridge (MDS)", "native dataframe_to_mds", 3, better="lower"),
        *_codemod_targets(),
        *_far_targets(),
        *_far_later_targets(),
        *_far_counted_targets(),
        *_far_work_targets(),
    ]


def _row_targets() -> Iterable[Target]:
    """Whatever pool Petastorm is given; its memory, and flat in the dataset's size."""
    # Both read images with OpenCV, which for PNG leaves little else to be faster at: it may miss its target.
    for group, factor in ((_rows.ARRAYS, 3), (_rows.JPEG, 1.5), (_rows.PNG, 1.5)):
        for pool in _rows.POOLS:
            theirs = _rows.reader_name("petastorm", *pool)
            yield Target(group, _rows.OURS, theirs, factor)
    names = {
        (package, size): _rows_memory.name(package, size)
        for package in ("bridge", "petastorm")
        for size in _rows_memory.SIZES
    }
    for size in _rows_memory.SIZES:
        ours, theirs = names["bridge", size], names["petastorm", size]
        yield Target(_rows_memory.GROUP, ours, theirs, 1, better="lower")
    small, large = (names["bridge", size] for size in _rows_memory.SIZES)
    yield Target(_rows_memory.GROUP, large, small, 0.8, better="lower")


def _first_batch_targets() -> Iterable[Target]:
    """Little beside the import of torch, whatever the size of the table."""
    ours = _first_batch.OURS
    for one, other, factor in (
        (ours, _first_batch.IMPORT, 0.75),
        (ours, _first_batch.PETASTORM, 1),
        (ours, _first_batch.STOCK, 1),
        (_first_batch.LARGER, ours, 0.8),
    ):
        yield Target(_first_batch.GROUP, one, other, factor, better="lower")


def _native_targets() -> Iterable[Target]:
    for group, factor in (("native-sequential", 300), ("native-shuffled", 150)):
        yield Target(group, COLUMNAR, "native StreamingDataLoader, 0 workers", factor)
        yield Target(group, COLUMNAR, "bridge DataLoader", 0.5)
        yield Target(group, MAPPED[True], STOCK[True], 5)
        yield Target(group, MAPPED[False], STOCK[False], 5)


def _opening_targets(settings: Settings) -> Iterable[Target]:
    """In proportion to the shards (or half as much again), flat in the rows, less than streaming's."""
    _, few, many, long = settings.openings
    growth = few[0] / many[0] / 1.5
    for group in ("opening-time", "opening-memory"):
        for ours in (_scale.COLUMNAR, _scale.LOADER):
            name = _scale.case_name(ours, *many)
            for theirs, factor in (
                (_scale.case_name(_scale.STOCK, *many), 1),
                (_scale.case_name(ours, *few), growth),
            ):
                yield Target(group, name, theirs, factor, better="lower")
            yield Target(group, _scale.case_name(ours, *long), name, 0.7, better="lower")


def _growth_targets() -> Iterable[Target]:
    """Not above Petastorm's, or streaming's, and in proportion to what there is (or a quarter as much again)."""
    for group in ("growth-time", "growth-memory"):
        for job in (*_growth.EPOCHS, _growth.FILES, _growth.SHARDS):
            other = "native" if job == _growth.SHARDS else "petastorm"
            small, large = (_growth.case_name("bridge", job, n) for n in (1, _growth.GROWTH))
            for ours, growth in ((small, 1), (large, _growth.GROWTH)):
                theirs = _growth.case_name(other, job, growth)
                yield Target(group, ours, theirs, 1, better="lower")
            yield Target(group, large, small, 0.8 / _growth.GROWTH, better="lower")


def _codemod_targets() -> Iterable[Target]:
    """Fast in large repositories; a file costs what it costs among fewer; two processes are nearly twice as fast."""
    yield Target(_codemod.GROUP, _codemod.OURS, _codemod.LIMIT, 1)
    for processes in _codemod.PROCESSES:
        few, many = (_codemod.case_name(processes, growth) for growth in (1, _codemod.GROWTH))
        yield Target(_codemod.USERS, many, few, 0.8)
    one, two = (_codemod.case_name(processes, _codemod.GROWTH) for processes in _codemod.PROCESSES)
    yield Target(_codemod.USERS, two, one, 1.6)


_FAST = (far.ORDERED, far.SHUFFLED, far.FAST)


def _far_targets() -> Iterable[Target]:
    """Near what the place gives to a plain program."""
    for group in far.FIRST.values():
        yield Target(group, far.ORDERED, far.CEILING, 0.8)
        for ours in (far.SHUFFLED, far.FAST):
            yield Target(group, ours, far.CEILING, 0.7)
        yield Target(group, far.STOCK[0], far.STREAMING[0], 0.9)
    # Streaming fetches a file at a time for each worker. By itself it reads no store with several.
    yield Target(far.FIRST[far.MOUNT], far.STOCK[4], far.STREAMING[4], 0.9)
    yield Target(far.FIRST[far.STORE], far.STOCK[4], far.STREAMING[0], 2)
    for ours in (far.ORDERED, far.SHUFFLED):
        yield Target(far.FIRST[far.MOUNT], ours, far.PETASTORM, 1.5)
    for place in far.FIRST:
        for columns in (far.ALL, far.ONE):
            theirs = f"pyarrow dataset, {columns}, {place}"
            yield Target(far.TABLES, f"bridge, {columns}, {place}", theirs, 0.8)


def _far_later_targets() -> Iterable[Target]:
    """Later epochs are read from the copies."""
    for place in far.FIRST:
        again = [(far.LATER, ours) for ours in (far.ONE_READER, far.FAST, *far.STOCK.values())]
        for group, ours in (*again, (far.LATER_LARGE, far.FAST)):
            yield Target(group, f"{ours}, {place}", f"{ours}, {far.DISK}", 0.9)
        # A new reader has to ask for the index, or it would not know of a dataset that took the place of that one.
        for group in (far.LATER, far.LATER_LARGE):
            for ours in (far.ORDERED, far.SHUFFLED):
                yield Target(group, f"{ours}, {place}", far.with_index(ours, place), 0.9)


def _far_counted_targets() -> Iterable[Target]:
    """The first batch comes after few requests; each byte comes once."""
    for place in far.FIRST:
        needed = dict.fromkeys(_FAST, (far.LIMIT, 1.0))
        if place == far.MOUNT:
            # It gives 128 KiB at once, and the rows that a shuffled batch is drawn from are many times as many.
            needed[far.SHUFFLED] = f"{far.FOR_QUEUE}, {place}", 0.7
            needed[far.FAST] = f"{far.FOR_SHUFFLE}, {place}", 0.7
        for ours, (theirs, factor) in needed.items():
            yield Target(far.REQUESTS, f"{ours}, {place}", theirs, factor, better="lower")
        for ours in (*_FAST, *far.STOCK.values()):
            for epoch, factor in (("first", 0.97), ("later", 100)):
                name, whole = f"{ours}, {place}, {epoch} epoch", f"{far.DATASET}, {place}"
                yield Target(far.BYTES, name, whole, factor, better="lower")


def _far_work_targets() -> Iterable[Target]:
    """Conversions into a place, and a whole notebook there."""
    bridge, command = far.WRITTEN["bridge"], far.WRITTEN["command"]
    # Of these few bytes what Spark takes to begin is the larger part.
    yield Target(far.WRITING, bridge, far.WRITTEN["petastorm"], 1)
    for group, ours in (
        (far.WRITING, command),
        (far.WRITING_LARGE, bridge),
        (far.WRITING_LARGE, command),
    ):
        yield Target(group, ours, far.PLAIN, 0.9)
    for words in far.TIMED:
        theirs = f"{far.NOTEBOOKS['original']}, {words}"
        for form, factor in (("bridge", 1), ("streaming", 1 / 1.5), ("fast", 1)):
            yield Target(far.NOTEBOOK, f"{far.NOTEBOOKS[form]}, {words}", theirs, factor)


def _memory_targets(settings: Settings) -> Iterable[Target]:
    for loader in settings.memory_loaders:
        for table in ("numeric", "larger"):
            ours, theirs = (
                measurement_name(package, loader, table) for package in ("bridge", "petastorm")
            )
            yield Target("memory", ours, theirs, 1, better="lower")
        # Flat: far less than in proportion to the rows, of which the larger table has
        # `memory_growth` times as many.
        smaller, larger = (
            measurement_name("bridge", loader, table) for table in ("numeric", "larger")
        )
        yield Target("memory", larger, smaller, 0.8, better="lower")


def judge(measurements: Sequence[Measurement], settings: Settings) -> list[Verdict]:
    """Compares contestants (`ratio`) with the targets of the races that were run."""
    measured = {(one.group, one.name): one for one in measurements}
    groups = {one.group for one in measurements}
    verdicts = []
    for target in targets(settings):
        if target.group not in groups:
            continue
        pair = [measured.get((target.group, name)) for name in (target.ours, target.theirs)]
        if target.better == "lower":
            pair.reverse()
        one, other = pair
        verdicts.append(Verdict(target, ratio(one, other) if one and other else None))
    return verdicts
