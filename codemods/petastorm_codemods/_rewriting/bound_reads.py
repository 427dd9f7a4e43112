"""Where a source reads what one place has bound a name to, and how often it comes there."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.reexports import is_read

COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
# Between a name that a statement with a block binds and the statement.
_TARGETS = (
    cst.AsName,
    cst.CompFor,
    cst.Element,
    cst.List,
    cst.StarredElement,
    cst.Tuple,
    cst.WithItem,
)


@dataclass
class _Bound:
    """What one place binds a name to.

    Attributes:
        reads: Those that the text has before the next such place; first of all, those before any.
        until: Where that place is; None if there is none.
        straying: Reads that may be of it, or of another such place, outside of all blocks that bind the name.
    """

    reads: list[cst.Name] = field(default_factory=list)
    until: int | None = None
    straying: Sequence[cst.Name] = ()


def reads_of(analysis: Analysis, target: cst.Name) -> Sequence[cst.Name]:
    """Return the reads of what one place binds a name to."""
    return _bound(analysis, target.value).get(target, _Bound()).reads


def straying_reads(analysis: Analysis, target: cst.Name) -> Sequence[cst.Name]:
    """Return the reads that may be of what one place binds a name to, outside of all blocks that bind the name."""
    return _bound(analysis, target.value).get(target, _Bound()).straying


def reads_within(
    analysis: Analysis, target: cst.Name, owner: cst.CSTNode
) -> Sequence[cst.Name] | None:
    """Return where the name that a ``with`` or a loop binds is read; None if not only there, or if it is bound there again."""
    first, last = analysis.span(owner)
    bound = _bound(analysis, target.value).get(target, _Bound())
    is_inside = all(first <= analysis.start(read) < last for read in bound.reads)
    is_alone = not bound.straying and (bound.until is None or bound.until >= last)
    return bound.reads if is_inside and is_alone else None


def is_repeated(analysis: Analysis, node: cst.CSTNode, within: cst.CSTNode | None = None) -> bool:
    """Say whether an expression may be evaluated more than once in a statement, or in a run: in a loop, or a function."""
    inner, once_only = node, False
    for each in itertools.takewhile(lambda above: above is not within, analysis.above(node)):
        if isinstance(each, cst.CompFor):
            once_only = each.iter is inner
        elif isinstance(each, cst.For):
            if each.iter is not inner:
                return True
        elif isinstance(each, COMPREHENSIONS):
            if not once_only:
                return True
        elif isinstance(each, cst.While | cst.FunctionDef | cst.Lambda):
            return True
        inner = each
    return False


@once
def _bound(analysis: Analysis, name: str) -> dict[cst.CSTNode, _Bound]:
    bound: dict[cst.CSTNode, _Bound] = {}
    for targets, group in analysis.reads_by_bindings(name):
        reads = [
            each
            for each in group
            if each not in targets and is_read(analysis, each) and analysis.is_read(each)
        ]
        binders = {_binder(analysis, each) for each in targets}
        straying = [each for each in reads if binders.isdisjoint(analysis.above(each))]
        placed = sorted(((_bound_at(analysis, each), each) for each in targets), key=lambda e: e[0])
        for number, (_, target) in enumerate(placed):
            until = placed[number + 1][0] if number + 1 < len(placed) else None
            bound.setdefault(target, _Bound(until=until, straying=straying))
        for read in reads if placed else ():
            latest = bisect.bisect(placed, analysis.start(read), key=lambda each: each[0]) - 1
            bound[placed[max(latest, 0)][1]].reads.append(read)
    return bound


def _binder(analysis: Analysis, node: cst.CSTNode) -> cst.CSTNode:
    """Return the statement or expression that binds a name for what is in it; the name if none does."""
    above = next(each for each in analysis.above(node) if not isinstance(each, _TARGETS))
    return above if isinstance(above, (cst.With, cst.For, *COMPREHENSIONS)) else node


def _bound_at(analysis: Analysis, node: cst.CSTNode) -> int:
    """Return from where on a name is bound: from the end of an assignment, whose value may read the name."""
    above = analysis.parent(node)
    while isinstance(above, cst.Element | cst.StarredElement | cst.Tuple | cst.List):
        above = analysis.parent(above)
    is_assigned = isinstance(above, cst.AssignTarget)
    return analysis.span(analysis.parent(above))[1] if is_assigned else analysis.start(node)
