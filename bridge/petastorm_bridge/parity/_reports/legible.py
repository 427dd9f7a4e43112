"""Reports without what steers a terminal: names of columns and files may hold anything."""

from __future__ import annotations

import dataclasses
import enum
from typing import TypeVar

from petastorm_bridge.parity.recorder import legible

_Part = TypeVar("_Part")


def legible_report(part: _Part) -> _Part:
    """Return a report, or a part of one, with the control characters of all its texts written out."""
    changed: object = part
    if isinstance(part, enum.Enum):
        return part
    if isinstance(part, str):
        changed = legible(part)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        parts = {f.name: legible_report(getattr(part, f.name)) for f in dataclasses.fields(part)}
        changed = dataclasses.replace(part, **parts)
    elif isinstance(part, dict):
        changed = {legible_report(key): legible_report(value) for key, value in part.items()}
    elif isinstance(part, tuple | list):
        changed = type(part)(map(legible_report, part))
    return changed  # type: ignore[return-value] # of the same type
