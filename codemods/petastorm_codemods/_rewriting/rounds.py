"""Loaders that are made anew in each round of a loop.

Streaming shuffles the first epoch of every dataset alike, where Petastorm shuffled each pass anew. So a dataset
that is made in a loop has the number of the round for its seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis

from .arguments import Pieces, Reading

_EPOCHS = re.compile(r"epoch", re.IGNORECASE)
_NUMBERS = re.compile(r"range|trange|prange")
_HOOKS = re.compile(r"(?:train|val|test|predict)_dataloader")
_WRAPPERS = re.compile(r"tqdm|track|progress_bar")
_ALIKE = (
    "each time it is made, it is shuffled as the first time; make it before the loop over epochs, "
    "or give shuffle_seed="
)
_Loop = cst.For | cst.While


@dataclass(frozen=True)
class Rounds:
    """What a loop means for a loader that is made in it.

    Attributes:
        seed: The argument ``shuffle_seed=``; empty for none.
        caution: What a report says if nothing can be done.
    """

    seed: tuple[tuple[str, Pieces], ...] = ()
    caution: str = ""


def rounds(analysis: Analysis, opened: cst.CSTNode, reading: Reading) -> Rounds:
    """Return what the loops around a call mean for what it becomes."""
    arguments = dict(reading.dataset)
    if "shuffle_seed" in arguments or arguments["shuffle"] == ("False",):
        return Rounds()
    loops = list(_around(analysis, opened))
    numbers = [name for loop in loops if (name := _number(analysis, loop)) is not None]
    if numbers:
        chosen = next((name for name in numbers if _EPOCHS.search(name)), numbers[0])
        return Rounds((("shuffle_seed", (chosen,)),))
    function = analysis.enclosing(opened, cst.FunctionDef)
    name = function.name.value if function is not None else ""
    loops += _callers(analysis, name)
    again = any(_is_over_epochs(analysis, each) for each in loops)
    # Lightning asks for its loaders once, unless it is told to ask again.
    again |= bool(_HOOKS.fullmatch(name)) and "reload_dataloaders" in analysis.source.text
    return Rounds(caution=_ALIKE if again else "")


def _around(analysis: Analysis, node: cst.CSTNode) -> Iterator[_Loop]:
    """Yield the loops of the same function whose blocks have a node in them, the innermost first."""
    below = node
    while not isinstance(below, cst.Module | cst.FunctionDef | cst.Lambda | cst.ClassDef):
        above = analysis.parent(below)
        if isinstance(above, _Loop) and below is above.body:
            yield above
        below = above


def _callers(analysis: Analysis, name: str) -> Iterator[_Loop]:
    """Yield the loops in which a function of a name is called."""
    for call in analysis.nodes(cst.Call):
        called = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
        if isinstance(called, cst.Name) and called.value == name:
            yield from _around(analysis, call)


def _number(analysis: Analysis, loop: _Loop) -> str | None:
    """Return the variable that counts the rounds of a loop, if one does and nothing else changes it."""
    if not isinstance(loop, cst.For):
        return None
    calls = [each for each in [loop.iter, *_first(loop.iter)] if isinstance(each, cst.Call)]
    names = [analysis.code(call.func).rpartition(".")[2] for call in calls]
    target: cst.BaseExpression = loop.target
    if names[:1] == ["enumerate"]:
        if not isinstance(target, cst.Tuple) or not target.elements:
            return None
        target = target.elements[0].value
    elif not (names and (_NUMBERS.fullmatch(names[0]) or _is_wrapped(names))):
        return None
    if not isinstance(target, cst.Name):
        return None
    bound = analysis.within(loop.body, cst.AssignTarget)
    return None if any(_is_name(each.target, target.value) for each in bound) else target.value


def _first(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the first argument of a call."""
    return [node.args[0].value] if isinstance(node, cst.Call) and node.args else []


def _is_wrapped(names: list[str]) -> bool:
    return bool(_WRAPPERS.fullmatch(names[0]) and _NUMBERS.fullmatch("".join(names[1:2])))


def _is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _is_over_epochs(analysis: Analysis, loop: _Loop) -> bool:
    """Say whether a loop seems to be over epochs."""
    if isinstance(loop, cst.While):
        return bool(_EPOCHS.search(analysis.code(loop.test)))
    return bool(_EPOCHS.search(f"{analysis.code(loop.target)} {analysis.code(loop.iter)}"))
