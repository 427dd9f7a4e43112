"""Open converters and loaders on one of the two packages."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

from parity_harness import frames, frames_options  # noqa: F401 - registers frames
from parity_harness.original import sort_files, stop_leaked_readers
from parity_harness.outcome import BRIDGE, ORIGINAL, Outcome, describe, raised

LOADERS = ("torch", "batched", "inmem", "tf")
CONF = "petastorm.spark.converter.parentCacheDirUrl"
_UNLIMITED = 10_000


class HangError(Exception):
    """The scenario did not come to an end."""


class Session:
    """One package, its converters, and the stage that the running scenario has reached."""

    def __init__(self, package: str, spark: Any, cache_directory: str, readers: Any) -> None:
        self.package = package
        self.spark = spark
        self.cache_url: str | None = f"file://{cache_directory}/{package}"
        self.stage = "converting"
        self._readers = readers
        self._converters: dict[object, Any] = {}

    @property
    def original(self) -> bool:
        """Whether this is the original rather than the bridge."""
        return self.package == ORIGINAL

    def module(self, name: str = "") -> ModuleType:
        """Import the module that has this name in both packages."""
        return importlib.import_module(f"{self.package}.{name}" if name else self.package)

    @property
    def transform_spec(self) -> Any:
        """The package's `TransformSpec`."""
        return self.module("transform").TransformSpec

    def convert(self, df: Any, **options: Any) -> Any:
        """Call `make_spark_converter` with a cache directory of this package's own."""
        self.stage = "converting"
        if self.cache_url is None:
            self.spark.conf.unset(CONF)
        else:
            self.spark.conf.set(CONF, self.cache_url)
        # Spark may be slow on a busy machine, and breaks when it is interrupted.
        with unlimited():
            converter = self.module("spark").make_spark_converter(df, **options)
        if self.original:
            sort_files(converter)
        self.stage = "using"
        return converter

    def frame(self, name: str) -> Any:
        """Give the frame of that name."""
        with unlimited():
            return frames.frame(self.spark, name)

    def converter(self, frame: str, **options: Any) -> Any:
        """Give the converter of a named frame; the first use makes it (or fails, for good)."""
        key = (frame, tuple(sorted(options.items())))
        if key not in self._converters:
            try:
                self._converters[key] = self.convert(self.frame(frame), **options)
            except Exception as error:  # noqa: BLE001 - raised again for every user
                self._converters[key] = error
        made = self._converters[key]
        if isinstance(made, Exception):
            self.stage = "converting"
            raise made
        self.stage = "using"
        return made

    def manager(self, source: Any, loader: str = "torch", **options: Any) -> Any:
        """Make a loader's context manager; a frame's name stands for its converter.

        Unless told otherwise the loader makes one pass in file order, in batches of four; an
        option of value `...` is left out.
        """
        converter = self.converter(source) if isinstance(source, str) else source
        options = {"batch_size": 4, "num_epochs": 1, "shuffle_row_groups": False, **options}
        options = {name: value for name, value in options.items() if value is not ...}
        self.stage = "opening"
        if loader == "tf":
            return converter.make_tf_dataset(**options)
        if loader != "torch":
            options["data_loader_fn"] = self.loader_function(loader)
        return converter.make_torch_dataloader(**options)

    def loader_function(self, loader: str) -> Callable[..., Any]:
        """Give the `data_loader_fn` for `batched` and `inmem`."""
        pytorch = self.module("pytorch")
        if loader == "batched":
            return pytorch.BatchedDataLoader  # type: ignore[no-any-return]

        def in_memory(reader: Any, batch_size: Any, shuffling_queue_capacity: Any) -> Any:
            return pytorch.InMemBatchedDataLoader(reader, batch_size=batch_size)

        return in_memory

    @contextlib.contextmanager
    def open(self, source: Any, loader: str = "torch", **options: Any) -> Iterator[Any]:
        """Open a loader, as `with` would, and keep the stage."""
        manager = self.manager(source, loader, **options)
        batches = manager.__enter__()
        self.stage = "iterating"
        try:
            yield batches
        finally:
            with self.at("closing"):
                manager.__exit__(None, None, None)

    @contextlib.contextmanager
    def at(self, stage: str) -> Iterator[None]:
        """Name the stage while the body runs; the stage stays if the body raises."""
        before, self.stage = self.stage, stage
        yield
        self.stage = before

    def load(
        self, source: Any, loader: str = "torch", *, limit: int = _UNLIMITED, **options: Any
    ) -> object:
        """Read a loader: its batches, and with TensorFlow the element spec."""
        with self.open(source, loader, **options) as batches:
            return self.read(batches, limit)

    def read(self, batches: Any, limit: int = _UNLIMITED) -> object:
        """Take up to `limit` batches from an open loader."""
        spec = getattr(batches, "element_spec", None)
        found = [describe(batch) for batch in itertools.islice(batches, limit)]
        return {"batches": found} if spec is None else {"spec": spec, "batches": found}

    def ids(self, batches: Any, limit: int = _UNLIMITED, name: str = "id") -> list[list[Any]]:
        """Read one column from an open loader, as lists."""
        return [
            (batch[name] if isinstance(batch, dict) else getattr(batch, name)).numpy().tolist()
            for batch in itertools.islice(batches, limit)
        ]

    def run(self, program: Callable[[Session], object], seconds: float = 120) -> Outcome:
        """Run a scenario and describe what it returned or raised."""
        self.stage = "using"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with deadline(seconds):
                    outcome = Outcome(value=describe(program(self)))
            except Exception as error:  # noqa: BLE001 - the outcome is the exception
                outcome = Outcome(raised=raised(error, self.stage))
            finally:
                stop_leaked_readers(self._readers)
        said = tuple(f"{entry.category.__name__}: {entry.message}" for entry in caught)
        return Outcome(outcome.value, outcome.raised, said)


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `HangError` in the main thread when the body takes longer than `seconds`."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("scenarios run in the main thread, where a hang can be interrupted")

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise HangError(f"no end after {seconds} seconds")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextlib.contextmanager
def unlimited() -> Iterator[None]:
    """Stop the clock of `deadline` while the body runs."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)


__all__ = ["BRIDGE", "CONF", "LOADERS", "ORIGINAL", "HangError", "Session", "deadline"]
