"""Expressions that do nothing but give their value, so that they may go with what has used it."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node

from .calls import is_none

# What says which rank a process has, and of how many.
_RANKS = frozenset({"rank", "size", "local_rank", "get_rank", "get_world_size"})
_READING = frozenset({"dict", "int", "os.environ.get", "os.getenv"})


def has_no_effect(node: cst.CSTNode) -> bool:
    """Say whether an expression only asks: names, attributes, items and literals, whether something is None, ranks."""
    if isinstance(node, cst.Call):
        if not has_no_effect(node.func):  # as in connect().rank()
            return False
        name = get_full_name_for_node(node.func) or ""
        asks = name.rpartition(".")[2] in _RANKS and not node.args
        return asks or (name in _READING and all(has_no_effect(each.value) for each in node.args))
    inner: Sequence[cst.CSTNode]
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        inner = [node.expression]
    elif isinstance(node, cst.Comparison) and is_none(node.comparisons[0].comparator):
        inner = [node.left, *(each.comparator for each in node.comparisons)]
    elif isinstance(node, cst.Tuple):
        inner = [each.value for each in node.elements]
    elif isinstance(node, cst.Dict):
        inner = [each.value for each in node.elements]
        inner += [each.key for each in node.elements if isinstance(each, cst.DictElement)]
    elif isinstance(node, cst.Subscript):
        inner = [node.value, *(each.slice for each in node.slice)]
    elif isinstance(node, cst.Attribute | cst.Index):
        inner = [node.value]
    else:
        return isinstance(node, cst.Name | cst.Integer | cst.Float | cst.SimpleString)
    return all(map(has_no_effect, inner))
