"""Loaders that are given to Accelerate's ``prepare``.

It divides the batches of torch's loaders among the ranks, and leaves other objects as they are: Petastorm's loader, and
the bridge's. Streaming's is a torch loader which has been divided already. On two ranks, the first then waits for ever
(mosaicml/streaming#722, #789).
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.functions import functions_of

PREPARED = (
    "Accelerate's prepare would divide its batches again; "
    "pass it everything but the loader to read natively"
)
_PREPARING = ("prepare", "prepare_data_loader")


def is_prepared(analysis: Analysis, call: cst.Call) -> bool:
    """Say whether the loader of a call is given to ``prepare``, by all appearance."""
    item = analysis.parent(call)
    if not isinstance(item, cst.WithItem) or item.asname is None:
        return False
    prepared = _prepared(analysis)
    return prepared is None or item.asname.name in prepared


@once
def _prepared(analysis: Analysis) -> frozenset[cst.CSTNode] | None:
    """Return the names, where they are bound, of what is prepared; None for anything that the source has."""
    given = [each for call in analysis.calls(*_PREPARING) for each in call.args]
    if any(each.star for each in given):
        return None
    found: set[cst.CSTNode] = set()
    left = [each.value for each in given]
    while left:
        for node in _bound(analysis, left.pop()):
            if node not in found:
                found.add(node)
                left += _given(analysis, node)
    return frozenset(found)


def _bound(analysis: Analysis, value: cst.BaseExpression) -> Iterator[cst.CSTNode]:
    """Yield where a name that is read may have been bound."""
    if isinstance(value, cst.Name):
        for assignment in analysis.assignments(value):
            node = getattr(assignment, "node", None)
            if isinstance(node, cst.CSTNode):
                yield node


def _given(analysis: Analysis, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Yield what calls within the source give for a parameter; nothing for another node."""
    function = analysis.enclosing(node, cst.FunctionDef)
    if isinstance(node, cst.Param) and function is not None:
        yield from functions_of(analysis).given(node, function)
