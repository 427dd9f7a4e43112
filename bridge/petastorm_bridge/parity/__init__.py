"""Prove that two loaders give the same batches: record what they give, compare, report.

Importing this package loads neither pyarrow nor any engine; its functions do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._comparing.compare import compare
    from ._comparing.rules import Rules
    from ._pytest import assert_same_batches
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
    "assert_same_batches": "_pytest",
    "compare": "_comparing.compare",
    "record": "recorder",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
