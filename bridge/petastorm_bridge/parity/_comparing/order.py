"""Whether the order of rows is compared, and where what holds from some row on parts."""

from __future__ import annotations

from typing import Any

from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity.recorder import counted

from .rules import Effect, Rules


def shards_are_exact(a: Recording, b: Recording, rules: Rules) -> bool:
    """Say whether every rank must have the same rows on both sides."""
    return rules.shards == "exact" and a.ranks == b.ranks and not rules.allows(Effect.SHARDS)


def why_any_order(a: Recording, b: Recording, rules: Rules) -> str | None:
    """Say why the order of rows is not compared, if it is not."""
    if rules.order == "shuffled":
        return "rows may come in any order"
    if allowed := rules.allows(Effect.ORDER):
        return f"{allowed} is allowed"
    if a.ranks != b.ranks:
        return f"{counted(a.ranks, 'rank')} cannot be in the order of {b.ranks}"
    if a.ranks > 1 and not shards_are_exact(a, b, rules):
        return "rows may be on any rank"
    return None


def parting(
    a: list[tuple[int, Any]], b: list[tuple[int, Any]], *, in_order: bool
) -> tuple[int, int, int] | None:
    """Say where what holds from some row on differs: the row and the places in both lists."""
    if not a or not b:
        return None
    if not in_order:
        known = [{fact for _, fact in side} for side in (a, b)]
        if known[0] == known[1]:
            return None
        places = [
            next((i for i, (_, fact) in enumerate(side) if fact not in other), 0)
            for side, other in ((a, known[1]), (b, known[0]))
        ]
        return a[places[0]][0], places[0], places[1]
    first = second = 0
    while True:
        if a[first][1] != b[second][1]:
            return max(a[first][0], b[second][0]), first, second
        ends = [
            side[i + 1][0] if i + 1 < len(side) else None for side, i in ((a, first), (b, second))
        ]
        if ends == [None, None]:
            return None
        step = min(end for end in ends if end is not None)
        first += ends[0] == step
        second += ends[1] == step
