"""How far work is, where somebody looks."""

from __future__ import annotations

import warnings
from typing import Any

__all__ = ["progress_bar"]


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
