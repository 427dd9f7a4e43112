"""Say in words where a row is and what a value is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from petastorm_bridge.parity._recordings.cells import Cells, different_numbers
from petastorm_bridge.parity._recordings.recording import Recording

_WIDTH = 60
_COLUMNS = 6


def are(number: int) -> str:
    """The verb that agrees with a number of things."""
    return "is" if number == 1 else "are"


def listed(names: Sequence[str], most: int = 20) -> str:
    """Write names one after the other, but not endlessly many."""
    text = ", ".join(names[:most])
    return text + (f" and {len(names) - most:,} more" if len(names) > most else "")


def place_text(side: Recording, row: int) -> str:
    """Say where a row is: its number, rank and batch."""
    rank, within, batch, in_batch = side.place(row)
    text = f"row {within} of rank {rank}" if side.ranks > 1 else f"row {row}"
    return text + (f" (row {in_batch} of batch {batch})" if side.batched else "")


def describe_row(columns: dict[str, Cells]) -> str:
    """Show the first row of some cells: its first columns and their values."""
    shown = [f"{name}={show(cells.cell(0))}" for name, cells in columns.items()]
    more = f", … {len(shown) - _COLUMNS} more" if len(shown) > _COLUMNS else ""
    return ", ".join(shown[:_COLUMNS]) + more


def describe_value(a: Any, b: Any) -> tuple[str, str]:
    """Show two values that differ; of arrays, the first element that differs."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape and a.ndim:
        places = np.argwhere(different_numbers(a, b))
        if len(places):
            where = places[0].tolist()
            texts = describe_value(a[tuple(where)], b[tuple(where)])
            return f"{where}: {texts[0]}", f"{where}: {texts[1]}"
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        place = next((i for i, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1]), 0)
        texts = describe_value(a[place], b[place])
        return f"[{place}]: {texts[0]}", f"[{place}]: {texts[1]}"
    texts = show(a), show(b)
    if texts[0] != texts[1]:
        return texts
    if isinstance(a, (str, bytes)) and type(a) is type(b) and a != b:
        start = max(0, _common_start(a, b) - _WIDTH // 2)
        windows = [f"…{text[start : start + _WIDTH]!r}… ({len(text)} long)" for text in (a, b)]
        return windows[0], windows[1]
    return exactly(a), exactly(b)


def _common_start(a: Any, b: Any) -> int:
    """Return how many characters two texts that differ have in common at their beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high) // 2
        if a[low : middle + 1] == b[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


def show(value: Any) -> str:
    """Write a value in one short line."""
    if isinstance(value, np.ndarray) and value.ndim:
        head = ", ".join(show(v) for v in value.reshape(-1)[:4])
        more = ", …" if value.size > 4 else ""
        return f"{value.dtype}{list(value.shape)}[{head}{more}]"
    if isinstance(value, np.generic | np.ndarray):
        return str(value)
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}… ({len(value)} long)"


def exactly(value: Any) -> str:
    """Write a value with its bits, for two that look alike."""
    if isinstance(value, np.generic):
        return f"{show(value)} (bits {value.tobytes()[::-1].hex()})"
    if isinstance(value, np.ndarray):
        return f"{show(value)} (bytes {value.tobytes()[:16].hex()})"
    return f"{show(value)} ({type(value).__name__})"
