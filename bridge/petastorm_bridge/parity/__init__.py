"""Prove that two loaders give the same batches: record what they give, compare, report.

Importing this package loads neither pyarrow nor any engine; its functions do.
"""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._comparing.compare import compare
    from ._comparing.rules import Rules
    from ._recordings.cells import Tolerance
    from ._recordings.manifest import CannotCompareError
    from ._result import Finding, Promise, Result, State
    from .recorder import RecordingError, record

__all__ = [
    "CannotCompareError",
    "Finding",
    "Promise",
    "RecordingError",
    "Result",
    "Rules",
    "State",
    "Tolerance",
    "assert_same_batches",
    "compare",
    "record",
]

_HOMES = {
    "CannotCompareError": "_recordings.manifest",
    "Finding": "_result",
    "Promise": "_result",
    "RecordingError": "recorder",
    "Result": "_result",
    "Rules": "_comparing.rules",
    "State": "_result",
    "Tolerance": "_recordings.cells",
    "compare": "_comparing.compare",
    "record": "recorder",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
    from ._comparing.compare import compare
    from ._comparing.rules import Rules

    wanted = dataclasses.replace(rules or Rules(), **changes)
    result = compare(a, b, wanted, labels=labels, limit=limit, rows=rows, epochs=epochs)
    if not result.same:
        raise AssertionError(_report(result))
    return result


def _report(result: Result) -> str:
    """Return what the terminal report says of a comparison."""
    from rich.console import Console

    from ._reports.text import print_report
    from ._result import Report

    console = Console(width=120, no_color=True, highlight=False, soft_wrap=True)
    with console.capture() as text:
        print_report(Report("the batches are not the same", (result,)), console)
    return text.get().rstrip()
