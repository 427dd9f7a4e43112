"""Which expressions may be written twice in rewritten code: those that give the same, and do nothing else."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

# Functions and methods that give something else each time, or take it away.
_CONSUMING = frozenset(
    {
        "choice",
        "choices",
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
_NAME = m.Name(value=m.MatchIfTrue(_CONSUMING.__contains__))
_ONCE = m.NamedExpr() | m.Await() | m.Yield() | m.Call(func=_NAME | m.Attribute(attr=_NAME))


def is_repeatable(node: cst.CSTNode) -> bool:
    """Say whether a second evaluation of an expression does and gives what the first one did.

    Calls are taken for functions of their arguments, unless their names say otherwise.
    """
    return not m.matches(node, _ONCE) and not m.findall(node, _ONCE)
