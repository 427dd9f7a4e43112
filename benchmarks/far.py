"""Datasets where users have them: on a FUSE mount and in an S3 store that answer late.

In ``benchmarks.run`` they are the group ``far``. Every reader is a process of its own that finds every cache cold:
the mount is mounted anew for each, the directory for its copies is new, the files of the local disk are not in memory.
The store's server and the mount's take their part of the machine's cores, from all alike.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._far_data import write_datasets
from benchmarks._far_notebook import FORMS, write_images
from benchmarks._far_places import far_mount, far_store, no_mount_because, no_store_because
from benchmarks._far_reader import MDS, PARQUET, QUEUE, WIDE, Found, Job
from benchmarks._measure import Measurement
from benchmarks._process import answer, last_line
from benchmarks._settings import MODULES, SEED, Far, Settings

MOUNT, STORE, DISK = "mount", "store", "local disk"

FIRST = {MOUNT: "far-mount", STORE: "far-store"}
LATER, LATER_LARGE, TABLES = "far-later", "far-later-large", "far-parquet"
REQUESTS, BYTES = "far-requests", "far-bytes"
WRITING, WRITING_LARGE = "far-writing", "far-writing-large"
NOTEBOOK = "far-notebook"
GROUPS = (
    *FIRST.values(),
    LATER,
    LATER_LARGE,
    TABLES,
    REQUESTS,
    BYTES,
    WRITING,
    WRITING_LARGE,
    NOTEBOOK,
)

CEILING = "sixteen requests of a plain program"
ORDERED, SHUFFLED = "bridge DataLoader, in order", "bridge DataLoader, shuffled"
ONE_READER = "bridge DataLoader, in order, one reader for all epochs"
PETASTORM = "petastorm BatchedDataLoader, Parquet"
OVER_PARQUET = "bridge DataLoader, Parquet"
FAST = "columnar, remote= and local=, shuffled"
STOCK = {workers: f"native, remote= and local=, shuffled, {workers} workers" for workers in (0, 4)}
STREAMING = {workers: f"streaming's own remote=, shuffled, {workers} workers" for workers in (0, 4)}
ALL, ONE = "twenty columns", "one column of twenty"
READERS_OF_ROWS = (
    CEILING,
    ORDERED,
    ONE_READER,
    SHUFFLED,
    FAST,
    *STOCK.values(),
    OVER_PARQUET,
    PETASTORM,
)
LIMIT, DATASET = "three requests", "the dataset"
# What a shuffled first batch waits for: who fills a queue for the rows of that, streaming's shuffle for all.
FOR_QUEUE, FOR_SHUFFLE = f"{CEILING}, {QUEUE:,} rows", f"{CEILING}, all rows"
INDEX = "a plain program, the index"
PLAIN = "the same bytes, two files at once"
WRITTEN = {
    "plain": PLAIN,
    "bridge": "bridge make_spark_converter",
    "petastorm": "petastorm make_spark_converter",
    "command": "petastorm_bridge convert",
}
NOTEBOOKS = {
    "original": "the notebook on petastorm",
    "bridge": "codemod --to bridge",
    "streaming": "codemod --to streaming, 4 workers",
    "fast": "codemod --to streaming --fast, 4 workers",
}
TIMED = ("converting and training", "training")

# What reads far places, by the names that they have in `_far_reader`.
_READERS = {
    "plain": CEILING,
    "in order": ORDERED,
    "in order, one reader": ONE_READER,
    "shuffled": SHUFFLED,
    "columnar": FAST,
    "stock, 0 workers": STOCK[0],
    "stock, 4 workers": STOCK[4],
    "streaming, 0 workers": STREAMING[0],
    "streaming, 4 workers": STREAMING[4],
    "plain, a queue": FOR_QUEUE,
    "plain, everything": FOR_SHUFFLE,
    "index": INDEX,
    "petastorm": PETASTORM,
    "parquet": OVER_PARQUET,
    "all columns": f"bridge, {ALL}",
    "one column": f"bridge, {ONE}",
    "pyarrow, all columns": f"pyarrow dataset, {ALL}",
    "pyarrow, one column": f"pyarrow dataset, {ONE}",
}
# Those whose later epochs count, which are compared with the same of a local disk.
_AGAIN = (
    "in order",
    "in order, one reader",
    "shuffled",
    "columnar",
    "stock, 0 workers",
    "stock, 4 workers",
)
# A new reader asks for the index anew, as the dataset may be another one by then.
_OPENED_AGAIN = ("in order", "shuffled")
# With several times the rows, what every conversion takes, such as Spark's plan, and every opening is told from what
# each row does.
_AGAIN_LARGE = (*_OPENED_AGAIN, "columnar", "index")
_WRITTEN_LARGE = ("plain", "bridge", "command")
_GROWTH = 4
# An epoch of the bridge takes a tenth of a second, in which the machine may be busy with something else.
_LATER_EPOCHS, _LATER_EPOCHS_OF_STOCK = 15, 3
_FOR_REQUESTS = ("plain, a queue", "plain, everything")
_OF_TABLES = ("all columns", "one column", "pyarrow, all columns", "pyarrow, one column")
# Petastorm reads none with these versions of pyarrow. Streaming's forked workers share the connection by which it has
# fetched the index, and take one another's answers for their own.
_NOT_FROM_STORES = {"petastorm", "streaming, 4 workers"}
# Petastorm ends an epoch early in some of the tries, as in the races between loaders.
_MAX_REPEATS = 20
_MIB = 1 << 20
# Nothing fetched is given as this, as ratios need more than nothing.
_LEAST_MIB = 0.001


@dataclasses.dataclass
class _Samples:
    """What the processes found, by reader and place, and how many had to be repeated."""

    found: dict[tuple[str, str], list[Found]]
    repeated: dict[tuple[str, str], int]


def far(group: str, settings: Settings) -> list[Measurement]:
    """Run a race; those that need the same runs share them. Where one is impossible, there are no figures."""
    if group == NOTEBOOK:
        return _trained(settings)
    makers: dict[str, Callable[[Settings], list[Measurement]]] = {
        LATER_LARGE: _read_large,
        WRITING: _written,
        WRITING_LARGE: _written_large,
    }
    measured = makers.get(group, _read)(settings)
    return [one for one in measured if one.group == group]


def why_skipped(group: str) -> str | None:
    """Return why this machine cannot run a race, or not all of it; None if it can."""
    reasons = {MOUNT: no_mount_because(), STORE: no_store_because()}
    lacking = [f"no {place}: {reason}" for place, reason in reasons.items() if reason]
    if group in {WRITING, WRITING_LARGE, NOTEBOOK}:
        return lacking[0] if reasons[MOUNT] else None
    alone = [place for place, name in FIRST.items() if name == group]
    wanted = [one for one in lacking if not alone or one.startswith(f"no {alone[0]}")]
    return "; ".join(wanted) or None


# --- reading -------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)  # for all races but one
def _read(settings: Settings) -> list[Measurement]:
    samples = _sampled(settings.far, settings.far_rounds, _READERS, (MDS, PARQUET, WIDE))
    return _measurements(samples, settings)


@functools.lru_cache(maxsize=1)
def _read_large(settings: Settings) -> list[Measurement]:
    """Read later epochs of more rows."""
    sizes = _grown(settings.far)
    samples = _sampled(sizes, settings.far_rounds, _AGAIN_LARGE, (MDS,))
    return list(_later(LATER_LARGE, samples, sizes))


def _later(group: str, samples: _Samples, sizes: Far) -> Iterator[Measurement]:
    """Make figures of later epochs, and of those of a local disk with the index from elsewhere."""
    megabytes = sizes.rows * sizes.row_bytes / 1e6
    found = {
        key: [statistics.median(one.seconds[1:] or one.seconds) for one in each]
        for key, each in samples.found.items()
    }
    seconds = {
        f"{_READERS[reader]}, {place}": found[reader, place]
        for reader, place in _sorted(samples.found)
        if reader in _AGAIN
    }
    for reader in _OPENED_AGAIN:
        for place in FIRST:
            if index := found.get(("index", place)):
                local = found[reader, DISK]
                both = [sum(pair) for pair in zip(local, index, strict=True)]
                seconds[with_index(_READERS[reader], place)] = both
    for name, each in seconds.items():
        yield Measurement(group, name, "MB/s", sizes.rows, tuple(megabytes / s for s in each))


def with_index(reader: str, place: str) -> str:
    """Return the name of an epoch on a local disk and of reading the index elsewhere before it."""
    return f"{reader}, {DISK}, after the index from the {place}"


def _grown(few: Far) -> Far:
    return dataclasses.replace(few, rows=_GROWTH * few.rows, shards=_GROWTH * few.shards)


def _sampled(sizes: Far, rounds: int, readers: Iterable[str], datasets: Sequence[str]) -> _Samples:
    """Let some readers read datasets of these sizes in all places there are."""
    samples = _Samples({}, {})
    with tempfile.TemporaryDirectory(prefix="far-") as work:
        near = Path(work, "near")
        write_datasets(near, sizes, datasets)
        with _store(near, sizes) as store:
            order = np.random.default_rng(SEED)
            everybody = _contestants(has_store=store is not None)
            contestants = [one for one in everybody if one[0] in readers]
            for _ in range(rounds):
                in_turn = [contestants[i] for i in order.permutation(len(contestants))]
                for contestant in sorted(in_turn, key=_heat):
                    _run(contestant, sizes, near, store, samples)
    return samples


def _contestants(*, has_store: bool) -> list[tuple[str, str]]:
    """Return who reads where: as far as there is such a place, and as the reader can."""
    contestants = [(reader, DISK) for reader in _AGAIN]
    if not no_mount_because():
        contestants += [(reader, MOUNT) for reader in _READERS]
    if has_store:
        contestants += [(reader, STORE) for reader in _READERS if reader not in _NOT_FROM_STORES]
    missing = {name for name, module in MODULES.items() if not _is_installed(module)}
    return [one for one in contestants if one[0] not in missing]


def _heat(contestant: tuple[str, str]) -> tuple[bool, int]:
    """Return when one's turn is in a round: those that are compared run one shortly after the other."""
    reader, place = contestant
    return reader in _OF_TABLES, (MOUNT, DISK, STORE).index(place)


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@contextmanager
def _store(near: Path, sizes: Far) -> Iterator[Any]:
    """Start a store with the datasets, or give None where there can be none."""
    if no_store_because():
        yield None
        return
    with far_store(seconds=sizes.store_seconds, bandwidth=sizes.store_bandwidth) as store:
        store.put(near)
        yield store


def _run(key: tuple[str, str], sizes: Far, near: Path, store: Any, samples: _Samples) -> None:
    """Add what a process of its own finds, in which no row may be missing but Petastorm's."""
    reader, place = key
    errors = ""
    for repeats in range(_MAX_REPEATS if reader == "petastorm" else 1):
        with ExitStack() as stack:
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="far-copies-"))
            environment = {**os.environ, "TMPDIR": own}
            where, counter = str(near), ""
            if place == DISK:
                _drop_from_memory(near)
            elif place == MOUNT:
                where = counter = os.path.join(own, "mounted")
                stack.enter_context(
                    far_mount(
                        near,
                        Path(where),
                        seconds=sizes.mount_seconds,
                        bandwidth=sizes.mount_bandwidth,
                    )
                )
            elif place == STORE:
                where, counter = f"s3://{store.bucket}", store.endpoint
                environment.update(store.environment)
            later = _later_epochs(reader)
            job = Job(reader, where, counter, sizes.rows, sizes.batch_size, 1 + later)
            text = json.dumps(dataclasses.asdict(job))
            line, errors = last_line("_far_reader", text, environment=environment)
        if line:
            samples.found.setdefault(key, []).append(Found(**json.loads(line)))
            samples.repeated[key] = samples.repeated.get(key, 0) + repeats
            return
    raise RuntimeError(f"{reader}, {place}: no complete epoch:\n{errors}")


def _later_epochs(reader: str) -> int:
    if reader not in _AGAIN:
        return 0
    return _LATER_EPOCHS_OF_STOCK if reader.startswith("stock") else _LATER_EPOCHS


def _drop_from_memory(directory: Path) -> None:
    """Have files come from the disk, as users' do in a first epoch.

    What a program writes at once, recent Linux keeps in pages of 2 MiB; what it reads from a disk or fetches, in smaller
    ones. From large pages a shuffled epoch takes a tenth less time, and one in order a third of the time.
    """
    for path in directory.rglob("*.*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _measurements(samples: _Samples, settings: Settings) -> list[Measurement]:
    """Make figures of what the processes found."""
    sizes, rounds = settings.far, settings.far_rounds
    megabytes = sizes.rows * sizes.row_bytes / 1e6
    measured = []

    def add(group: str, name: str, unit: str, figures: list[float], key: tuple[str, str]) -> None:
        repeated = samples.repeated.get(key, 0)
        measured.append(Measurement(group, name, unit, sizes.rows, tuple(figures), repeated))

    for key in _sorted(samples.found):
        reader, place = key
        found, name = samples.found[key], f"{_READERS[reader]}, {place}"
        firsts = [megabytes / one.seconds[0] for one in found]
        if reader in _OF_TABLES:
            add(TABLES, name, "rows/s", [sizes.rows / one.seconds[0] for one in found], key)
        elif place in FIRST and reader not in (*_FOR_REQUESTS, "index"):
            add(FIRST[place], _READERS[reader], "MB/s", firsts, key)
        if place == DISK or reader in ("plain", "index", *_OF_TABLES):
            continue
        add(REQUESTS, name, "requests", [max(1, one.requests) for one in found], key)
        if reader in _FOR_REQUESTS:
            continue
        for epoch, words in enumerate(("first epoch", "later epoch")[: len(found[0].read)]):
            fetched = [max(one.read[epoch] / _MIB, _LEAST_MIB) for one in found]
            add(BYTES, f"{name}, {words}", "MiB", fetched, key)
    measured += _later(LATER, samples, sizes)
    add(REQUESTS, LIMIT, "requests", [3.0] * rounds, ("", ""))
    for place in FIRST:
        if plain := samples.found.get(("plain", place)):
            stored = [one.read[0] / _MIB for one in plain]
            add(BYTES, f"{DATASET}, {place}", "MiB", stored, ("", ""))
    return measured


def _sorted(found: dict[tuple[str, str], Any]) -> list[tuple[str, str]]:
    readers, places = list(_READERS), [MOUNT, STORE, DISK]
    return sorted(found, key=lambda one: (places.index(one[1]), readers.index(one[0])))


# --- writing -------------------------------------------------------------------------------------


def _written(settings: Settings) -> list[Measurement]:
    return _wrote(WRITING, settings.far, WRITTEN, settings.far_rounds)


def _written_large(settings: Settings) -> list[Measurement]:
    return _wrote(WRITING_LARGE, _grown(settings.far), _WRITTEN_LARGE, settings.far_rounds)


def _wrote(group: str, sizes: Far, writers: Iterable[str], rounds: int) -> list[Measurement]:
    """Write the rows into a mount: conversions, and the same bytes by a plain program."""
    if no_mount_because():
        return []
    seconds: dict[str, list[float]] = {
        name: [] for name in writers if _is_installed(MODULES.get(name, "pyarrow"))
    }
    with tempfile.TemporaryDirectory(prefix="far-") as work:
        near = Path(work, "near")
        write_datasets(near, sizes, (MDS, PARQUET))
        order = np.random.default_rng(SEED)
        for _ in range(rounds):
            for name in order.permutation(list(seconds)).tolist():
                seconds[name].append(_write(name, near, sizes))
    megabytes = sizes.rows * sizes.row_bytes / 1e6
    return [
        Measurement(
            group, WRITTEN[name], "MB/s", sizes.rows, tuple(megabytes / one for one in found)
        )
        for name, found in seconds.items()
    ]


def _write(name: str, near: Path, sizes: Far) -> float:
    with tempfile.TemporaryDirectory(prefix="far-written-") as own:
        behind, mounted = Path(own, "behind"), Path(own, "mounted")
        behind.mkdir()
        with far_mount(
            behind, mounted, seconds=sizes.mount_seconds, bandwidth=sizes.mount_bandwidth
        ):
            environment = {**os.environ, "TMPDIR": own}
            places = str(near), str(mounted)
            seconds: float = answer("_far_writer", name, *places, environment=environment)
            return seconds


# --- a notebook -----------------------------------------------------------------------------------


def _trained(settings: Settings) -> list[Measurement]:
    """Run a notebook whose cache directory is on a mount, as it was written and as the codemod rewrites it."""
    if no_mount_because():
        return []
    forms = [form for form in FORMS if form != "original" or _is_installed(MODULES["petastorm"])]
    rates: dict[str, list[float]] = {
        f"{NOTEBOOKS[form]}, {words}": [] for words in TIMED for form in forms
    }
    rows = set()
    with tempfile.TemporaryDirectory(prefix="far-") as work:
        write_images(Path(work), settings.notebook_images)
        order = np.random.default_rng(SEED)
        for _ in range(settings.far_rounds):
            for form in order.permutation(forms).tolist():
                found = _notebook(form, work, settings.far)
                rows.add(found["rows"])
                whole = found["converting"] + found["training"]
                for words, seconds in zip(TIMED, (whole, found["training"]), strict=True):
                    rates[f"{NOTEBOOKS[form]}, {words}"].append(found["rows"] / seconds)
    if len(rows) > 1:
        raise RuntimeError(f"the notebook was trained on {rows} rows, as it was written")
    count = settings.notebook_images
    return [
        Measurement(NOTEBOOK, name, "rows/s", count, tuple(each)) for name, each in rates.items()
    ]


def _notebook(form: str, tables: str, sizes: Far) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="far-notebook-") as own:
        behind, mounted = Path(own, "behind"), Path(own, "mounted")
        behind.mkdir()
        with far_mount(
            behind, mounted, seconds=sizes.mount_seconds, bandwidth=sizes.mount_bandwidth
        ):
            environment = {**os.environ, "TMPDIR": own}
            places = tables, mounted.as_uri()
            found: dict[str, float] = answer(
                "_far_notebook", form, *places, environment=environment
            )
            return found
