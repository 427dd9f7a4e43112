"""The promise of the schema: which columns there are, in which order, and the dtype, shape and form of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from petastorm_bridge.parity._recordings.recording import Recording, Run
from petastorm_bridge.parity._result import Finding, Promise

from .describe import listed
from .rules import Effect, Rules, why_any_order


def column_findings(
    a: Recording, b: Recording, names: Sequence[Sequence[str]], rules: Rules, second: str
) -> list[Finding]:
    """Compare which columns there are, their order, and the containers that hold them.

    Args:
        a: The first side.
        b: The second side.
        names: The columns of each side that are not ignored.
        rules: What may differ.
        second: What to call the second side within a sentence.
    """
    findings = _missing(names[0], names[1], rules, second)
    return [*findings, *_order(a, b, rules), *_containers(a, b, rules)]


def _missing(a: Sequence[str], b: Sequence[str], rules: Rules, second: str) -> list[Finding]:
    findings = []
    for names, others, how, allowed in (
        (a, set(b), "missing", None),
        (b, set(a), "only", rules.allows(Effect.COLUMNS_IN_B)),
    ):
        for name in names:
            if name not in others:
                message = f"column {name!r} is {how} on {second}"
                findings.append(
                    Finding(Promise.SCHEMA, message, name, allowed=allowed, what="missing")
                )
    return findings


def _order(a: Recording, b: Recording, rules: Rules) -> list[Finding]:
    """Compare the order of the columns that all batches with rows have; it may change from batch to batch."""
    runs = [side.key_runs or [(0, tuple(side.names))] for side in (a, b)]
    shared = set.intersection(*(set(keys) for of_side in runs for _, keys in of_side))
    shared -= set(rules.ignore)
    facts = [
        [(row, tuple(n for n in keys if n in shared)) for row, keys in of_side] for of_side in runs
    ]
    parts = _parting(facts[0], facts[1], in_order=not why_any_order(a, b, rules))
    if parts is None:
        return []
    row, first, second = parts
    keys = facts[0][first][1], facts[1][second][1]
    place = next(i for i, pair in enumerate(zip(*keys, strict=True)) if pair[0] != pair[1])
    texts = [listed(of_side[place:]) for of_side in keys]
    allowed = rules.allows(Effect.KEY_ORDER)
    if all(len(of_side) == 1 for of_side in runs):
        where, message = None, f"the columns come in another order, from column {place + 1} on"
    else:
        where, message = (
            row,
            f"in some batches the columns come in another order, first at row {row}",
        )
    return [Finding(Promise.SCHEMA, message, keys[0][place], where, texts[0], texts[1], allowed)]


def _containers(a: Recording, b: Recording, rules: Rules) -> list[Finding]:
    sides = [side.manifest["containers"] for side in (a, b)]
    if sides[0] == sides[1] or rules.containers == "any" or not (a.rows and b.rows):
        return []
    message = "the batches are containers of other types"
    return [Finding(Promise.SCHEMA, message, a=", ".join(sides[0]), b=", ".join(sides[1]))]


def compare_formats(
    a: Recording, b: Recording, name: str, rules: Rules
) -> tuple[list[str], Finding | None]:
    """Return a column's dtypes, and where its dtype, shape or form parts for the first time."""
    runs = [_known(side.runs(name)) for side in (a, b)]
    finding = _first_difference(a, b, name, runs, rules)
    if finding is None:
        of_empty = [_known(side.runs(name, empty=True)) for side in (a, b)]
        finding = _first_difference(a, b, name, of_empty, rules, empty=True)
    return list(dict.fromkeys(run.dtype for side in runs for run in side)), finding


def _known(runs: list[Run]) -> list[Run]:
    """Drop the runs of which only nulls are known, unless there is nothing else."""
    return [run for run in runs if run.dtype != "null"] or runs


def _first_difference(
    a: Recording,
    b: Recording,
    name: str,
    runs: list[list[Run]],
    rules: Rules,
    *,
    empty: bool = False,
) -> Finding | None:
    """Say where dtype, kind or shape part for the first time."""
    if len(runs[0]) == len(runs[1]) == 1 and runs[0] == runs[1]:
        return None
    any_order = empty or bool(why_any_order(a, b, rules))
    # Which rows are in a batch together decides how the batch looks, but not how the rows do.
    loose = any_order or rules.batches == "any" or not (a.batched and b.batched)
    ragged = any(run.kind == "ragged" for side in runs for run in side)
    facts = [
        [(r.start, _shown(r, rules, loose=loose, sizes=not (loose and ragged))) for r in side]
        for side in runs
    ]
    parts = _parting(facts[0], facts[1], in_order=not any_order)
    if parts is None:
        return None
    row, first, second = parts
    return _finding(name, row, (runs[0][first], runs[1][second]), runs, rules)


def _shown(run: Run, rules: Rules, *, loose: bool, sizes: bool) -> tuple[str, str, str]:
    """Return what must be the same: dtype, shape or number of dimensions, and form."""
    shape = _shape_text(run.shape) if sizes else f"{len(run.shape)} dimensions"
    form = "array" if run.kind in {"number", "ragged"} else ""
    dtype = "objects" if loose and run.kind == "object" else run.dtype
    return dtype, shape, run.form if rules.containers == "exact" else form


def _finding(
    name: str, row: int, now: tuple[Run, Run], runs: list[list[Run]], rules: Rules
) -> Finding:
    texts = [f"{run.dtype}{_shape_text(run.shape)}" for run in now]
    allowed = None
    same_shape = now[0].shape == now[1].shape
    if now[0].dtype != now[1].dtype:
        what = "dtype"
        message = f"column {name!r} is {texts[0]} on one side and {texts[1]} on the other"
        if same_shape and are_numbers(runs):
            allowed = rules.allows(Effect.DTYPES)
    elif not same_shape:
        what = "shape"
        message = f"the values of {name!r} have shape {_shape_text(now[0].shape) or '[]'} on one "
        message += f"side and {_shape_text(now[1].shape) or '[]'} on the other"
    else:
        what = "form"
        texts = [f"{run.form} ({run.kind})" for run in now]
        message = f"column {name!r} comes as {texts[0]} on one side and as {texts[1]} on the other"
    if row:
        message += f", from row {row} on"
    return Finding(Promise.SCHEMA, message, name, row, texts[0], texts[1], allowed, what)


def are_numbers(runs: list[list[Run]]) -> bool:
    """Say whether all are numbers that have a common wider dtype."""
    if any(run.kind != "number" for side in runs for run in side):
        return False
    try:
        dtypes = [np.dtype(run.dtype) for side in runs for run in side]
        wide = np.result_type(*dtypes)
    except (TypeError, ValueError):  # bfloat16, fields
        return False
    if any(dtype.kind not in "biufc" for dtype in dtypes):
        return False
    # NumPy puts int64 and uint64 into float64, which is wider than neither.
    return wide.kind in "biu" or any(dtype.kind in "fc" for dtype in dtypes)


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('?' if n is None else str(n) for n in shape)}]" if shape else ""


def _parting(
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
