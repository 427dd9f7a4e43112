"""Which expressions may be written twice in rewritten code: those that give the same, and do nothing else."""

from __future__ import annotations

import libcst as cst

from petastorm_codemods._meaning.places import below

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
