"""Loaders with which a program does what would end otherwise with streaming's.

- Accelerate's ``prepare`` divides the batches of torch's loaders among the ranks, and leaves other objects as they are:
  Petastorm's loader, and the bridge's. Streaming's is a torch loader whose rows are divided already. On two ranks, the
  first then waits for ever (mosaicml/streaming#722, #789).
- Petastorm's loader has a reader and is a context; streaming's is neither.
- In the workers of a torch ``DataLoader``, each opening of Petastorm's reads everything. A dataset of streaming's that each
  worker makes for itself divides the rows among them, and waits for ever for those of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once
from petastorm_codemods._meaning.functions import functions_of

PREPARED = (
    "Accelerate's prepare would divide its batches again; "
    "pass it everything but the loader to read natively"
)
_OTHER_LOADER = "more is done with its loader than reading batches"
_IN_WORKERS = "the workers of a DataLoader may open it; streaming would divide it among them"
_PREPARING = ("prepare", "prepare_data_loader")
_ASKING = ("isinstance", "hasattr", "getattr", "type")


def needs_bridge(analysis: Analysis, call: cst.Call, *, is_torch_loader: bool) -> str:
    """Return why a torch loader stays on the bridge for what is done with it; empty if it does not.

    Args:
        analysis: Of the source.
        call: The call that opens it.
        is_torch_loader: Whether its successor is one of torch's, and not ``Epochs`` around one.
    """
    if _is_in_iterable_dataset(analysis, call):
        return _IN_WORKERS
    item = analysis.parent(call)
    if not isinstance(item, cst.WithItem) or item.asname is None:
        return ""
    if is_torch_loader and (_is_all_prepared(analysis) or item.asname.name in _prepared(analysis)):
        return PREPARED
    return _OTHER_LOADER if item.asname.name in _of_petastorm(analysis) else ""


def _is_in_iterable_dataset(analysis: Analysis, call: cst.Call) -> bool:
    """Say whether a call is in ``__iter__`` of a torch ``IterableDataset``."""
    function = analysis.enclosing(call, cst.FunctionDef)
    if function is None or function.name.value != "__iter__":
        return False
    owner = functions_of(analysis).owner(function)
    bases = [analysis.code(each.value) for each in owner.bases] if owner is not None else []
    return any(each.endswith("IterableDataset") for each in bases)


def _is_all_prepared(analysis: Analysis) -> bool:
    """Say whether it cannot be seen what is prepared."""
    return any(each.star for call in analysis.calls(*_PREPARING) for each in call.args)


@once
def _prepared(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return the names, where they are bound, of what is prepared."""
    return _bound(
        analysis, (each.value for call in analysis.calls(*_PREPARING) for each in call.args)
    )


@once
def _of_petastorm(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return the names, where they are bound, of what is used as Petastorm's loaders can be."""
    attributes = analysis.nodes(cst.Attribute)
    used = [each.value for each in attributes if each.attr.value == "reader"]
    used += [each.item for each in analysis.nodes(cst.WithItem)]
    used += [each.args[0].value for each in analysis.calls(*_ASKING) if each.args]
    return _bound(analysis, used)


def _bound(analysis: Analysis, used: Iterable[cst.BaseExpression]) -> frozenset[cst.CSTNode]:
    """Return where names are bound that are used, or given to the functions that use them."""
    found: set[cst.CSTNode] = set()
    left = [*used]
    while left:
        for node in _bindings(analysis, left.pop()):
            if node not in found:
                found.add(node)
                left += _given(analysis, node)
    return frozenset(found)


def _bindings(analysis: Analysis, value: cst.BaseExpression) -> Iterator[cst.CSTNode]:
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
