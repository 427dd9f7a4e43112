"""The promise of the schema: which columns there are, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity._result import Finding, Promise

from .describe import listed
from .order import parting, why_any_order
from .rules import Effect, Rules

__all__ = ["column_findings"]


def column_findings(
    a: Recording, b: Recording, names: Sequence[Sequence[str]], rules: Rules
) -> list[Finding]:
    """Compare which columns there are, their order, and the containers that hold them.

    Args:
        a: The first side.
        b: The second side.
        names: The columns of each side that are not ignored.
        rules: What may differ.
    """
    findings = [*_missing(names[0], names[1], rules), *_order(names[0], names[1], rules)]
    if not findings:
        findings += _order_of_some(a, b, rules)
    return findings + _containers(a, b, rules)


def _missing(a: Sequence[str], b: Sequence[str], rules: Rules) -> list[Finding]:
    first, second = set(a), set(b)
    lost = [
        Finding(
            Promise.SCHEMA, f"column {name!r} is missing on the second side", name, what="missing"
        )
        for name in a
        if name not in second
    ]
    allowed = rules.allows(Effect.COLUMNS_IN_B)
    added = [
        Finding(
            Promise.SCHEMA,
            f"column {name!r} is only on the second side",
            name,
            allowed=allowed,
            what="missing",
        )
        for name in b
        if name not in first
    ]
    return lost + added


def _order(a: Sequence[str], b: Sequence[str], rules: Rules) -> list[Finding]:
    first, second = set(a), set(b)
    common = [[n for n in a if n in second], [n for n in b if n in first]]
    if common[0] == common[1]:
        return []
    place = next(i for i, pair in enumerate(zip(*common, strict=True)) if pair[0] != pair[1])
    message = f"the columns come in another order, from column {place + 1} on"
    allowed = rules.allows(Effect.KEY_ORDER)
    texts = [listed(c[place:]) for c in common]
    return [
        Finding(Promise.SCHEMA, message, common[0][place], a=texts[0], b=texts[1], allowed=allowed)
    ]


def _order_of_some(a: Recording, b: Recording, rules: Rules) -> list[Finding]:
    """Compare the order of the columns where it changes from batch to batch."""
    runs = [side.key_runs for side in (a, b)]
    if all(len(of_side) <= 1 for of_side in runs):
        return []
    shared = set.intersection(*(set(keys) for of_side in runs for _, keys in of_side))
    shared -= set(rules.ignore)
    facts = [
        [(row, tuple(n for n in keys if n in shared)) for row, keys in of_side] for of_side in runs
    ]
    parts = parting(facts[0], facts[1], in_order=not why_any_order(a, b, rules))
    if parts is None:
        return []
    row, first, second = parts
    place = next(
        i
        for i, pair in enumerate(zip(facts[0][first][1], facts[1][second][1], strict=True))
        if pair[0] != pair[1]
    )
    keys = facts[0][first][1], facts[1][second][1]
    message = f"in some batches the columns come in another order, first at row {row}"
    allowed = rules.allows(Effect.KEY_ORDER)
    texts = [listed(of_side[place:]) for of_side in keys]
    return [Finding(Promise.SCHEMA, message, keys[0][place], row, texts[0], texts[1], allowed)]


def _containers(a: Recording, b: Recording, rules: Rules) -> list[Finding]:
    sides = [side.manifest["containers"] for side in (a, b)]
    if sides[0] == sides[1] or rules.containers == "any" or not (a.rows and b.rows):
        return []
    message = "the batches are containers of other types"
    return [Finding(Promise.SCHEMA, message, a=", ".join(sides[0]), b=", ".join(sides[1]))]
