"""How often each rule was met, as ruff prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from petastorm_codemods._model import Failed, Result, State
from petastorm_codemods._registry import all_rules

from .report import sites_of

_ALL, _SOME, _NONE = "[*]", "[-]", "[ ]"
_LEGEND = {
    _ALL: f"{_ALL} rewritten with --write",
    _SOME: f"{_SOME} rewritten in part with --write",
}


def statistics(result: Result, *, written: bool) -> Iterator[str]:
    """Yield a line for each rule with something left to do: number, code, whether it is rewritten, name.

    Args:
        result: What came of the run.
        written: Whether the rewrites are made; they are not counted then, as nothing is left of them.
    """
    found: Counter[str] = Counter()
    rewritten: Counter[str] = Counter()
    for _, site in sites_of(result):
        if site.state is State.WORKS or (written and site.state is State.REWRITTEN):
            continue
        found[site.code] += 1
        rewritten[site.code] += site.state is State.REWRITTEN
    found["PM000"] += sum(isinstance(outcome, Failed) for outcome in result.outcomes)
    names = {rule.code: rule.name for rule in all_rules()}
    ordered = sorted((-number, code) for code, number in found.items() if number)
    width = max((len(str(-number)) for number, _ in ordered), default=0)
    marks = set()
    for negative, code in ordered:
        mark = _mark(rewritten[code], -negative)
        marks.add(mark)
        yield f"{-negative:>{width}}\t{code}\t{mark} {names[code]}"
    yield from (text for mark, text in _LEGEND.items() if mark in marks)


def _mark(part: int, number: int) -> str:
    if part == number:
        return _ALL
    return _SOME if part else _NONE
