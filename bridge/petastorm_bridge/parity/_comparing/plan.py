"""Which columns are compared, and in what form; the promise of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.compute as pc

from petastorm_bridge.parity._recordings.cells import Array, Cells, Tolerance
from petastorm_bridge.parity._recordings.recording import Block, CannotCompareError, Recording, Run
from petastorm_bridge.parity._result import Finding, Promise, PromiseResult, State

from .describe import counted, listed
from .rules import Effect, Rules

__all__ = ["ColumnPlan", "Plan", "are_numbers", "make_plan", "shards_are_exact", "why_any_order"]


@dataclass(frozen=True)
class ColumnPlan:
    """How one column is compared.

    Attributes:
        name: The column.
        dtype: The dtype that both sides are converted to; None leaves them as they are.
        tolerance: How far numbers may be apart.
        any_nan: Whether NaNs are made alike.
        strip: Whether NUL characters at the end of strings are removed.
        rounded: Whether integers are compared as doubles.
    """

    name: str
    dtype: str | None = None
    tolerance: Tolerance | None = None
    any_nan: bool = False
    strip: bool = False
    rounded: bool = False

    def prepare(self, block: Block) -> Cells:
        """Return this column of a block in the form in which it is compared."""
        cells = block.columns[self.name]
        if cells.kind == "text" and self.strip:
            return replace(cells, values=pc.utf8_rtrim(cells.values, characters="\0"))
        if cells.kind == "ragged" and self.any_nan:
            return replace(cells, values=[None if v is None else _one_nan(v) for v in cells.values])
        if cells.kind != "number":
            return cells
        dtype = "float64" if self.rounded and cells.dtype == "int64" else self.dtype
        if dtype is not None and dtype != cells.dtype:
            cells = replace(cells, dtype=dtype, values=cells.values.astype(dtype))
        return replace(cells, values=_one_nan(cells.values)) if self.any_nan else cells


def _one_nan(values: Array) -> Array:
    """Make all NaNs alike, also those within complex numbers."""
    if values.dtype.kind not in "fc":
        return values
    parts = np.ascontiguousarray(values)
    parts = parts.view(parts.real.dtype) if values.dtype.kind == "c" else parts
    missing = np.isnan(parts)
    if not missing.any():
        return values
    made = np.where(missing, parts.dtype.type(np.nan), parts)
    return np.asarray(made.view(values.dtype).reshape(values.shape))


@dataclass(frozen=True)
class Plan:
    """The columns to compare, and how the schema fared."""

    columns: tuple[ColumnPlan, ...]
    schema: PromiseResult
    notes: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @cached_property
    def _by_name(self) -> dict[str, ColumnPlan]:
        return {column.name: column for column in self.columns}

    def __getitem__(self, name: str) -> ColumnPlan:
        return self._by_name[name]


def make_plan(a: Recording, b: Recording, rules: Rules) -> Plan:
    """Compare the schemas and decide what else can be compared.

    Raises:
        CannotCompareError: The rules name columns that are not there.
    """
    ignored, known = set(rules.ignore), {*a.names, *b.names}
    names = [[n for n in side.names if n not in ignored] for side in (a, b)]
    for name in (*rules.ignore, *rules.key):
        if name not in known:
            raise CannotCompareError(f"there is no column {name!r}; there are {listed(a.names)}")
    findings = [*_missing(names[0], names[1], rules), *_order(names[0], names[1], rules)]
    if not findings:
        findings += _order_of_some(a, b, rules)
    findings += [*_containers(a, b, rules)]
    plans = []
    second = set(names[1])
    for name in (n for n in names[0] if n in second):
        plan, found = _column(a, b, name, rules)
        findings += found
        if plan is not None:
            plans.append(plan)
    notes = _form_notes(a, b, [plan.name for plan in plans])
    return Plan(tuple(plans), _schema_result(findings, len(names[0])), tuple(notes))


def _schema_result(findings: list[Finding], columns: int) -> PromiseResult:
    broken = [f for f in findings if f.allowed is None]
    if broken:
        text = f"{counted(len(broken), 'difference')} in {counted(columns, 'column')}"
        return PromiseResult(Promise.SCHEMA, State.DIFFERENT, text, tuple(findings))
    state = State.ALLOWED if findings else State.SAME
    text = counted(columns, "column")
    text += f", {counted(len(findings), 'allowed difference')}" if findings else ""
    return PromiseResult(Promise.SCHEMA, state, text, tuple(findings))


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
    parts = _parting(facts[0], facts[1], in_order=not why_any_order(a, b, rules))
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


def _containers(a: Recording, b: Recording, rules: Rules) -> list[Finding]:
    sides = [side.manifest["containers"] for side in (a, b)]
    if sides[0] == sides[1] or rules.containers == "any" or not (a.rows and b.rows):
        return []
    message = "the batches are containers of other types"
    return [Finding(Promise.SCHEMA, message, a=", ".join(sides[0]), b=", ".join(sides[1]))]


def _column(
    a: Recording, b: Recording, name: str, rules: Rules
) -> tuple[ColumnPlan | None, list[Finding]]:
    runs = [_known(side.runs(name)) for side in (a, b)]
    _check_formats(a, b, name, runs)
    dtypes = list(dict.fromkeys(run.dtype for side in runs for run in side))
    found = _first_difference(a, b, name, runs, rules)
    if found is None:
        empty = [_known(side.empty_runs(name)) for side in (a, b)]
        found = _first_difference(a, b, name, empty, rules, empty=True)
    plan = ColumnPlan(
        name,
        tolerance=rules.tolerance(dtypes[0]) if len(dtypes) == 1 else None,
        any_nan=rules.nan == "any",
        strip=rules.allows(Effect.TRAILING_NULS) is not None,
        rounded=rules.allows(Effect.ROUNDED_LONGS) is not None and dtypes == ["int64"],
    )
    everywhere = [name in side.everywhere for side in (a, b)]
    if not any(everywhere):
        raise CannotCompareError(
            f"column {name!r} is missing in some batches of both sides; leave it out (--ignore {name})"
        )
    if not all(everywhere):
        side = "second" if everywhere[0] else "first"
        message = f"column {name!r} is missing in some batches of the {side} side"
        return None, [Finding(Promise.SCHEMA, message, name, what="missing")]
    if found is None:
        return plan, []
    if found.allowed:
        wide = str(np.result_type(*dtypes))
        return replace(plan, dtype=wide, tolerance=rules.tolerance(wide)), [found]
    comparable = len(dtypes) == 1
    return (plan if comparable else None), [found]


def _known(runs: list[Run]) -> list[Run]:
    """Drop the runs of which only nulls are known, unless there is nothing else."""
    return [run for run in runs if run.dtype != "null"] or runs


def _check_formats(a: Recording, b: Recording, name: str, runs: list[list[Run]]) -> None:
    """Refuse what recordings of several formats write in several ways."""
    if a.formats | b.formats == a.formats & b.formats:
        return
    if any("dict" in run.dtype.split("|") for side in runs for run in side):
        raise CannotCompareError(
            f"column {name!r} has dicts, which formats {a.formats | b.formats} of recordings write "
            "in different ways; record both sides again with this version"
        )


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
    try:
        return all(
            run.kind == "number" and np.dtype(run.dtype).kind in "biufc"
            for side in runs
            for run in side
        )
    except (TypeError, ValueError):  # bfloat16, fields
        return False


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


def _shape_text(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('?' if n is None else str(n) for n in shape)}]" if shape else ""


def _form_notes(a: Recording, b: Recording, names: list[str]) -> list[str]:
    notes = []
    containers = [", ".join(side.manifest["containers"]) for side in (a, b)]
    if containers[0] != containers[1] and a.rows and b.rows:
        notes.append(f"Batches are {containers[0]} on one side and {containers[1]} on the other.")
    forms = [{c["name"]: "/".join(c["forms"]) for c in side.manifest["columns"]} for side in (a, b)]
    other = [n for n in names if forms[0].get(n) != forms[1].get(n)]
    if other:
        first = other[0]
        come = "comes" if len(other) == 1 else "come"
        notes.append(
            f"{counted(len(other), 'column')} {come} in another form, for instance {first!r}: "
            f"{forms[0].get(first)} on one side and {forms[1].get(first)} on the other."
        )
    return notes
