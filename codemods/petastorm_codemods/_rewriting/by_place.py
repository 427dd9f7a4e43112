"""Whether a program takes the columns of a loader's batches by their places, as ``x, y = batch.values()`` does.

Petastorm has them in the order of the DataFrame, and MDS, and so streaming, in alphabetical order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, last_name, once
from petastorm_codemods._meaning.places import below, leading, reached

from .sites import METHODS
from .values import opened_by, values

# What gives the batches of a loader, or a loader again.
_PASSING_ON = frozenset({"chain", "cycle", "enumerate", "islice", "iter", "next", "tqdm", "zip"})
# What is most likely a batch where nothing says where it comes from, as in the steps of Lightning's modules.
_BATCH = re.compile(r"batch\w*|next\(.*\)", re.DOTALL)


def takes_by_place(analysis: Analysis, call: cst.Call) -> bool:
    """Say whether columns of the batches of a loader may be taken by place."""
    if analysis.project.takes_by_place(analysis.source.path):
        return True
    sources = _taken_by_place(analysis)
    return opened_by(analysis, call) in sources or analysis.module in sources


@once
def _taken_by_place(analysis: Analysis) -> frozenset[cst.CSTNode]:
    """Return what such batches come from; the module for those of which nothing says so."""
    loaders = {
        opened_by(analysis, analysis.parent(each))
        for each in analysis.nodes(cst.Attribute)
        if each.attr.value in METHODS
    }

    def behind(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        yield from map(values(analysis).alike, values(analysis).behind(node))
        if isinstance(node, cst.Call) and last_name(node.func) in _PASSING_ON:
            yield from (values(analysis).alike(each.value) for each in node.args)

    batches = {values(analysis).alike(each) for each in _columns_listed(analysis)}
    sources = frozenset(reached(batches, behind))
    known = leading(batches, behind, lambda each: each in loaders)
    if any(_BATCH.fullmatch(analysis.code(each)) for each in batches.difference(known)):
        sources |= {analysis.module}
    return sources


def _columns_listed(analysis: Analysis) -> Iterator[cst.CSTNode]:
    """Yield what is asked for its values, or listed with its keys or by them, or made a frame that is read by place."""
    for call in analysis.calls("values"):
        if isinstance(call.func, cst.Attribute) and not call.args:
            yield call.func.value
    for loop, listed in _listings(analysis):
        pairs = _asked(loop.iter, "items")
        keyed = pairs or _asked(loop.iter, "keys") or loop.iter
        column = f"{analysis.code(keyed)}[{analysis.code(loop.target)}]"
        if pairs or any(analysis.code(each) == column for each in below(listed)):
            yield keyed
    if any(_reads_by_place(analysis, each) for each in analysis.nodes(cst.Attribute)):
        for call in analysis.calls("DataFrame", "from_dict"):
            for each in values(analysis).passed(call.args[0].value) if call.args else ():
                yield _renewed(each) or each


def _listings(analysis: Analysis) -> Iterator[tuple[cst.For | cst.CompFor, cst.CSTNode]]:
    """Yield the loops that make a list, with what they put into it: comprehensions, and those that append to one."""
    for comprehension in (*analysis.nodes(cst.ListComp), *analysis.nodes(cst.GeneratorExp)):
        yield comprehension.for_in, comprehension.elt
    for call in analysis.calls("append"):
        loop = analysis.enclosing(call, cst.For)
        # Lists by the names of columns are as they were.
        is_one = isinstance(call.func, cst.Attribute) and not any(
            analysis.within(call.func.value, cst.Subscript)
        )
        if isinstance(loop, cst.For) and is_one:
            yield loop, call


def _renewed(node: cst.CSTNode) -> cst.CSTNode | None:
    """Return what a dictionary has the keys of: the batch in ``{name: value.numpy() for name, value in batch.items()}``."""
    return _asked(node.for_in.iter, "items") if isinstance(node, cst.DictComp) else None


def _asked(node: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """Return what a method of that name is called on; None if no expression calls one."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return node.func.value if node.func.attr.value == name else None
    return None


def _reads_by_place(analysis: Analysis, attribute: cst.Attribute) -> bool:
    """Say whether columns of a frame may be read by place, which are those of a batch if it is made of one."""
    is_called = isinstance(analysis.parent(attribute), cst.Call)
    return attribute.attr.value in {"iloc", "to_numpy"} or (
        attribute.attr.value == "values" and not is_called
    )
