"""The promise of the schema: which columns there are, in which order, and the dtype, shape and form of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from petastorm_bridge.parity._recordings.manifest import CannotCompareError
from petastorm_bridge.parity._recordings.recording import Run
from petastorm_bridge.parity._result import Finding, Promise, PromiseResult
from petastorm_bridge.parity.recorder import counted

from .comparison import ColumnPlan, Comparison
from .describe import listed
from .rules import Effect


def compare_schemas(c: Comparison) -> tuple[PromiseResult, dict[str, ColumnPlan]]:
    """Compare the schemas and decide how each column can be compared.

    Raises:
        CannotCompareError: The rules name columns that are not there.
    """
    rules, ignored = c.rules, set(c.rules.ignore)
    known = {name for side in c.sides for name in side.names}
    for name in (*rules.ignore, *rules.key):
        if name not in known:
            raise CannotCompareError(
                f"there is no column {name!r}; there are {listed(c.sides[0].names)}"
            )
    for name in rules.key:
        if name in ignored:
            raise CannotCompareError(f"column {name!r} cannot be the key and be ignored as well")
    a, b = ([n for n in side.names if n not in ignored] for side in c.sides)
    findings = [*_missing(c, a, b), *_order(c), *_containers(c)]
    plans = {}
    second = set(b)
    for name in (n for n in a if n in second):
        plan, finding = _column(c, name)
        findings += [finding] if finding else []
        if plan is not None:
            plans[name] = plan
    number, text = len(findings), counted(len(a), "column")
    broken = sum(finding.allowed is None for finding in findings)
    if broken:
        text = f"{counted(broken, 'difference')} in {text}"
    elif number:
        text += f", {counted(number, 'allowed difference')}"
    return PromiseResult.of(Promise.SCHEMA, text, findings), plans


def _missing(c: Comparison, a: Sequence[str], b: Sequence[str]) -> Iterator[Finding]:
    for names, others, how, allowed in (
        (a, set(b), "missing", None),
        (b, set(a), "only", c.rules.allows(Effect.COLUMNS_IN_B)),
    ):
        for name in names:
            if name not in others:
                message = f"column {name!r} is {how} on {c.names[1]}"
                yield Finding(Promise.SCHEMA, message, name, allowed=allowed, what="missing")


def _order(c: Comparison) -> Iterator[Finding]:
    """Compare the order of the columns that all batches with rows have; it may change from batch to batch."""
    runs = [side.key_runs or [(0, tuple(side.names))] for side in c.sides]
    shared = set.intersection(*(set(keys) for of_side in runs for _, keys in of_side))
    shared -= set(c.rules.ignore)
    facts = [
        [(row, tuple(n for n in keys if n in shared)) for row, keys in of_side] for of_side in runs
    ]
    parts = _parting(facts[0], facts[1], in_order=not c.why_any_order)
    if parts is None:
        return
    row, first, second = parts
    keys = facts[0][first][1], facts[1][second][1]
    place = next(i for i, pair in enumerate(zip(*keys, strict=True)) if pair[0] != pair[1])
    texts = [listed(of_side[place:]) for of_side in keys]
    where, message = None, f"the columns come in another order, from column {place + 1} on"
    if any(len(of_side) > 1 for of_side in runs):
        where = row
        message = f"in some batches the columns come in another order, first at row {row}"
    allowed = c.rules.allows(Effect.KEY_ORDER)
    yield Finding(Promise.SCHEMA, message, keys[0][place], where, texts[0], texts[1], allowed)


def _containers(c: Comparison) -> Iterator[Finding]:
    a, b = containers(c)
    if a != b and c.rules.containers == "exact":
        yield Finding(Promise.SCHEMA, "the batches are containers of other types", a=a, b=b)


def containers(c: Comparison) -> tuple[str, str]:
    """Return the containers of both sides' batches; empty texts where a side has no rows."""
    if not all(side.rows for side in c.sides):
        return "", ""
    a, b = (", ".join(side.manifest["containers"]) for side in c.sides)
    return a, b


def form_notes(c: Comparison) -> Iterator[str]:
    """Say which containers and columns come in another form, which is no difference by default."""
    a, b = containers(c)
    if a != b:
        yield f"Batches are {a} on one side and {b} on the other."
    forms = [{n: "/".join(f["forms"]) for n, f in side.columns.items()} for side in c.sides]
    other = [n for n in c.columns if forms[0].get(n) != forms[1].get(n)]
    if other:
        first = other[0]
        come = "comes" if len(other) == 1 else "come"
        yield (
            f"{counted(len(other), 'column')} {come} in another form, for instance {first!r}: "
            f"{forms[0].get(first)} on one side and {forms[1].get(first)} on the other."
        )


def _column(c: Comparison, name: str) -> tuple[ColumnPlan | None, Finding | None]:
    """Say how a column of both sides is compared, if it can be, and how it differs apart from values."""
    lacking = [
        words for side, words in zip(c.sides, c.names, strict=True) if name not in side.everywhere
    ]
    if len(lacking) == 2:
        raise CannotCompareError(
            f"column {name!r} is missing in some batches of both sides; leave it out (--ignore {name})"
        )
    if lacking:
        message = f"column {name!r} is missing in some batches of {lacking[0]}"
        return None, Finding(Promise.SCHEMA, message, name, what="missing")
    runs = [_known(side.runs(name)) for side in c.sides]
    finding = _first_difference(c, name, runs)
    if finding is None:
        of_empty = [_known(side.runs(name, empty=True)) for side in c.sides]
        finding = _first_difference(c, name, of_empty, empty=True)
    dtypes = list(dict.fromkeys(run.dtype for of_side in runs for run in of_side))
    rules = c.rules
    plan = ColumnPlan(
        tolerance=rules.tolerance(dtypes[0]) if len(dtypes) == 1 else None,
        any_nan=rules.nan == "any",
        strip=rules.allows(Effect.TRAILING_NULS) is not None,
        rounded=rules.allows(Effect.ROUNDED_LONGS) is not None and dtypes == ["int64"],
    )
    if finding is not None and finding.allowed:
        wide = str(np.result_type(*dtypes))
        return replace(plan, dtype=wide, tolerance=rules.tolerance(wide)), finding
    return (None if finding and len(dtypes) > 1 else plan), finding


def _known(runs: list[Run]) -> list[Run]:
    """Drop the runs of which only nulls are known, unless there is nothing else."""
    return [run for run in runs if run.dtype != "null"] or runs


def _first_difference(
    c: Comparison, name: str, runs: list[list[Run]], *, empty: bool = False
) -> Finding | None:
    """Say where dtype, kind or shape part for the first time."""
    if len(runs[0]) == len(runs[1]) == 1 and runs[0] == runs[1]:
        return None
    any_order = empty or bool(c.why_any_order)
    # Which rows are in a batch together decides how the batch looks, but not how the rows do.
    loose = any_order or c.rules.batches == "any" or not all(side.batched for side in c.sides)
    sizes = not loose or all(run.kind != "ragged" for of_side in runs for run in of_side)

    def shown(run: Run) -> tuple[str, str, str]:
        """Return what must be the same: dtype, shape or number of dimensions, and form."""
        form = "array" if run.kind in {"number", "ragged"} else ""
        return (
            "objects" if loose and run.kind == "object" else run.dtype,
            _shape_text(run.shape) if sizes else f"{len(run.shape)} dimensions",
            run.form if c.rules.containers == "exact" else form,
        )

    facts = [[(run.start, shown(run)) for run in of_side] for of_side in runs]
    parts = _parting(facts[0], facts[1], in_order=not any_order)
    if parts is None:
        return None
    row, first, second = parts
    a, b = runs[0][first], runs[1][second]
    texts = f"{a.dtype}{_shape_text(a.shape)}", f"{b.dtype}{_shape_text(b.shape)}"
    allowed = None
    if a.dtype != b.dtype:
        what = "dtype"
        message = f"column {name!r} is {texts[0]} on one side and {texts[1]} on the other"
        if a.shape == b.shape and are_numbers(runs):
            allowed = c.rules.allows(Effect.DTYPES)
    elif a.shape != b.shape:
        what = "shape"
        message = f"the values of {name!r} have shape {_shape_text(a.shape) or '[]'} on one "
        message += f"side and {_shape_text(b.shape) or '[]'} on the other"
    else:
        what = "form"
        texts = f"{a.form} ({a.kind})", f"{b.form} ({b.kind})"
        message = f"column {name!r} comes as {texts[0]} on one side and as {texts[1]} on the other"
    if row:
        message += f", from row {row} on"
    return Finding(Promise.SCHEMA, message, name, row, *texts, allowed, what)


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
