"""What expressions do besides giving their value: which may go with what has used it, and which may be written twice."""

from __future__ import annotations

import libcst as cst
from libcst.helpers import get_full_name_for_node

from .calls import is_none
from .places import below

# What says which rank a process has, and of how many, or whether it has any.
_RANKS = frozenset(
    {
        *("rank", "size", "world_size", "local_rank", "get_rank", "get_world_size"),
        *("get_context", "get_world_rank", "is_available", "is_initialized"),
    }
)
_READING = frozenset({"dict", "int", "os.environ.get", "os.getenv"})
# Names, attributes, items and literals, with what stands between their parts.
_ASKING = (
    *(cst.Name, cst.Attribute, cst.Dot, cst.Integer, cst.Float, cst.SimpleString, cst.Arg),
    *(cst.Subscript, cst.SubscriptElement, cst.Index, cst.Tuple, cst.Element, cst.StarredElement),
    *(cst.Dict, cst.DictElement, cst.StarredDictElement, cst.ComparisonTarget, cst.BaseCompOp),
    *(cst.UnaryOperation, cst.Not, cst.BooleanOperation, cst.BaseBooleanOp, cst.IfExp),
)
# Functions and methods that give something else each time, or take it away.
_CONSUMING = frozenset(
    {
        "choice",
        "choices",
        "getrandbits",
        "input",
        "integers",
        "next",
        "pop",
        "popitem",
        "popleft",
        "randint",
        "random",
        "randrange",
        "readline",
        "sample",
        "send",
        "uniform",
    }
)


def has_no_effect(node: cst.CSTNode) -> bool:
    """Say whether an expression only asks: names, attributes, items and literals, whether something is None, ranks."""
    return all(map(_only_asks, below(node)))


def _only_asks(node: cst.CSTNode) -> bool:
    """Say whether a part of an expression only asks, if those of it do."""
    if isinstance(node, cst.Call):
        name = get_full_name_for_node(node.func) or ""
        return name in _READING or (name.rpartition(".")[2] in _RANKS and not node.args)
    if isinstance(node, cst.Comparison):
        return is_none(node.comparisons[0].comparator)
    return isinstance(node, _ASKING)


def is_repeatable(node: cst.CSTNode) -> bool:
    """Say whether a second evaluation of an expression does and gives what the first one did.

    Calls are taken for functions of their arguments, unless their names say otherwise.
    """
    return not any(map(_is_for_once, below(node)))


def _is_for_once(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Call):
        name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        return isinstance(name, cst.Name) and name.value in _CONSUMING
    return isinstance(node, cst.NamedExpr | cst.Await | cst.Yield)
