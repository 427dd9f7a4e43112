"""How far work is: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

_LINE_SECONDS = 5.0


def progress_bar(what: str, unit: str, total: int | None = None, **options: Any) -> Any:
    """Return a bar of tqdm's that goes when it is closed; None where neither a terminal nor a notebook shows it.

    Args:
        what: What is going on.
        unit: What is counted.
        total: How much there is.
        **options: Of tqdm's.
    """
    with warnings.catch_warnings():
        # tqdm warns about a missing ipywidgets and then shows text, which is good enough.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

        class Bar(tqdm):  # type: ignore[misc] # no types
            monitor_interval = 0  # no thread that watches the bar and outlives it

        bar: Any = Bar(
            desc=what,
            unit=unit,
            total=total,
            unit_scale=True,
            leave=False,
            disable=None,  # off where the output is no terminal; notebooks count as on
            **options,
        )
    return None if bar.disable else bar


@contextlib.contextmanager
def showing(what: str, rows: int, wanted: bool) -> Iterator[Callable[[int], object]]:
    """Show progress on stderr while the block runs, if that is wanted; give the function to tell of rows."""
    if not wanted:
        yield lambda _: None
        return
    bar = progress_bar(what, " rows", rows)
    if bar is None:
        yield _Lines(what, rows).add
        return
    with bar:
        yield bar.update


class _Lines:
    """Writes a line when the last one is some seconds old."""

    def __init__(self, what: str, rows: int) -> None:
        self._what, self._rows, self._done = what, rows, 0
        self._start = self._last = time.monotonic()

    def add(self, rows: int) -> None:
        self._done += rows
        now = time.monotonic()
        if now - self._last < _LINE_SECONDS:
            return
        self._last = now
        speed = self._done / (now - self._start)
        share = self._done / max(self._rows, 1)
        print(  # noqa: T201 - what it is for
            f"{self._what}: {share:.0%}, {self._done:,} of {self._rows:,} rows, {speed:,.0f} rows/s",
            file=sys.stderr,
            flush=True,
        )
