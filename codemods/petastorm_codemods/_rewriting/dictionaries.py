"""Dictionaries of arguments: ``**options``, where the source says what is in ``options``."""

from __future__ import annotations

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis

from .values import values

# What changes a dictionary.
_CHANGING = frozenset({"clear", "pop", "popitem", "setdefault", "update"})


def items_of(analysis: Analysis, node: cst.BaseExpression) -> dict[str, cst.BaseExpression] | None:
    """Return the items of a dictionary of arguments; None if the source does not say all of them."""
    if isinstance(node, cst.Dict | cst.Call) or not isinstance(node, cst.Name | cst.Attribute):
        return None
    leaves = values(analysis).of(node)
    if len(leaves) != 1 or _may_change(analysis, node):
        return None
    return _items(leaves[0])


def _items(node: cst.CSTNode) -> dict[str, cst.BaseExpression] | None:
    found: dict[str, cst.BaseExpression] = {}
    if isinstance(node, cst.Dict):
        for element in node.elements:
            key = element.key if isinstance(element, cst.DictElement) else None
            name = key.evaluated_value if isinstance(key, cst.SimpleString) else None
            if not isinstance(name, str):
                return None
            found[name] = element.value
        return found
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "dict":
        for argument in node.args:
            if argument.keyword is None:
                return None
            found[argument.keyword.value] = argument.value
        return found
    return None


def _may_change(analysis: Analysis, node: cst.Name | cst.Attribute) -> bool:
    """Say whether anything puts items into a dictionary of this name, or takes some out."""
    text = analysis.code(node)
    for subscript in analysis.nodes(cst.Subscript):
        if not analysis.is_read(subscript) and analysis.code(subscript.value) == text:
            return True
    for call in analysis.nodes(cst.Call):
        method = call.func
        if not isinstance(method, cst.Attribute) or method.attr.value not in _CHANGING:
            continue
        if analysis.code(method.value) == text:
            return True
    return False
