"""What is known about the object that an expression gives."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Kind(enum.Enum):
    """What is known about an object."""

    CONVERTER = "a converter, or a collection with one"
    FILES = "a converter that was made from files by hand"
    UNKNOWN = "nothing says what it is"
    DOUBTFUL = "it may be something else"
    FOREIGN = "something else"


def combine(kinds: Iterable[Kind | None]) -> Kind | None:
    """Return what is known about an object that may be any of several; None stands for ``None``."""
    found = {kind for kind in kinds if kind is not None}
    if len(found) < 2:
        return next(iter(found), None)
    if Kind.FOREIGN in found or Kind.DOUBTFUL in found:
        return Kind.DOUBTFUL
    if Kind.FILES in found:
        return Kind.FILES
    return Kind.CONVERTER  # and UNKNOWN: another way to the same place
