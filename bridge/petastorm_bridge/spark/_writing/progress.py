"""A progress display for long conversions; nothing at all for short ones and in batch jobs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from petastorm_bridge._workers.progress import progress_bar
from petastorm_bridge.spark._directory.store import Store
from petastorm_bridge.spark._session import logger

__all__ = ["showing_progress"]

_DELAY_SECONDS = 2.0
_PERIOD_SECONDS = 1.0


@contextlib.contextmanager
def showing_progress(store: Store, *, delay: float = _DELAY_SECONDS) -> Iterator[None]:
    """Show shards and bytes written to ``store`` while the block runs.

    Only the directory is looked at, so this works for every kind of Spark session. Terminals and
    notebooks get the display, from ``delay`` seconds on; other outputs get nothing.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_show, args=(store, stop, delay), name="petastorm-bridge-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show(store: Store, stop: threading.Event, delay: float) -> None:
    if stop.wait(delay):
        return
    bar = progress_bar("Converting to MDS", "B", unit_divisor=1024)
    if bar is None:
        return
    with bar:
        while True:
            stopping = stop.wait(_PERIOD_SECONDS)
            shards, size = _written(store)
            bar.update(size - bar.n)
            bar.set_postfix(shards=shards, refresh=True)
            if stopping:
                return


def _written(store: Store) -> tuple[int, int]:
    try:
        sizes = [size for name, size in store.sizes().items() if ".mds" in name]
    except Exception as error:  # noqa: BLE001 - the display is only a courtesy
        logger.debug("Cannot look at the progress: %s", error)
        return 0, 0
    return len(sizes), sum(sizes)
