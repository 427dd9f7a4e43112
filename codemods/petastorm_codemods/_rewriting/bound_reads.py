"""Where a source reads what one place has bound a name to."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.reexports import is_read


@dataclass
class _Bound:
    """What one place binds a name to.

    Attributes:
        reads: Those that the text has before the next such place; first of all, those before any.
        until: Where that place is; None if there is none.
    """

    reads: list[cst.Name] = field(default_factory=list)
    until: int | None = None


def reads_of(analysis: Analysis, target: cst.Name) -> Sequence[cst.Name]:
    """Return the reads of what one place binds a name to."""
    bound = _bound(analysis, target.value).get(target)
    return bound.reads if bound is not None else ()


def reads_within(
    analysis: Analysis, target: cst.Name, owner: cst.CSTNode
) -> Sequence[cst.Name] | None:
    """Return where the name that a ``with`` or a loop binds is read; None if not only there, or if it is bound there again."""
    first, last = analysis.span(owner)
    bound = _bound(analysis, target.value).get(target, _Bound())
    is_inside = all(first <= analysis.start(read) < last for read in bound.reads)
    return bound.reads if is_inside and (bound.until is None or bound.until >= last) else None


@once
def _bound(analysis: Analysis, name: str) -> dict[cst.CSTNode, _Bound]:
    bound: dict[cst.CSTNode, _Bound] = {}
    for targets, group in analysis.reads_by_bindings(name):
        placed = sorted(((_bound_at(analysis, each), each) for each in targets), key=lambda e: e[0])
        for number, (_, target) in enumerate(placed):
            until = placed[number + 1][0] if number + 1 < len(placed) else None
            bound.setdefault(target, _Bound(until=until))
        for read in group:
            if (
                placed
                and read not in targets
                and is_read(analysis, read)
                and analysis.is_read(read)
            ):
                latest = bisect.bisect(placed, analysis.start(read), key=lambda each: each[0]) - 1
                bound[placed[max(latest, 0)][1]].reads.append(read)
    return bound


def _bound_at(analysis: Analysis, node: cst.CSTNode) -> int:
    """Return from where on a name is bound: from the end of an assignment, whose value may read the name."""
    above = analysis.parent(node)
    while isinstance(above, cst.Element | cst.StarredElement | cst.Tuple | cst.List):
        above = analysis.parent(above)
    is_assigned = isinstance(above, cst.AssignTarget)
    return analysis.span(analysis.parent(above))[1] if is_assigned else analysis.start(node)
