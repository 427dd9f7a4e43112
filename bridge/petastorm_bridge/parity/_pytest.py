"""`assert_same_batches`, and the fixture and marker behind it."""

from __future__ import annotations

import dataclasses
from typing import Any

from ._comparing.compare import compare
from ._comparing.rules import Rules
from ._result import Report, Result


def assert_same_batches(
    a: Any,
    b: Any,
    rules: Rules | None = None,
    *,
    labels: tuple[str, str] = ("expected", "actual"),
    limit: int | None = None,
    rows: bool | None = None,
    epochs: int = 1,
    **changes: Any,
) -> Result:
    """Fail unless two sides give the same batches; the message says where they part.

    Args:
        a: How it should be: the directory of a recording, or a loader.
        b: What is judged, likewise.
        rules: How to compare; bit for bit and in order by default.
        labels: What to call the sides.
        limit: Read at most about so many rows of a loader.
        rows: Whether a loader gives single rows; by default the first item tells.
        epochs: Passes over a loader.
        **changes: Fields of `Rules`: ``order="shuffled"``, ``allow=["partition-order"]`` …

    Raises:
        AssertionError: They differ.
        CannotCompareError: A recording is missing or damaged, or the rules make no sense.
    """
    __tracebackhide__ = True
    wanted = dataclasses.replace(rules or Rules(), **changes)
    result = compare(a, b, wanted, labels=labels, limit=limit, rows=rows, epochs=epochs)
    if not result.same:
        raise AssertionError(failure_text(result))
    return result


def failure_text(result: Result) -> str:
    """Return what the terminal report says of a comparison."""
    from rich.console import Console

    from ._reports.text import print_report

    console = Console(width=120, no_color=True, highlight=False, soft_wrap=True)
    with console.capture() as text:
        print_report(Report("the batches are not the same", (result,)), console)
    return text.get().rstrip()
