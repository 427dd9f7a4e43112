"""Which columns are compared, and in what form; the promise of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from ._cells import Cells, Tolerance
from ._recording import Block, CannotCompareError, Recording, Run
from ._result import Finding, Promise, PromiseResult, State
from ._rules import Effect, Rules

__all__ = ["ColumnPlan", "Plan", "make_plan"]


@dataclass(frozen=True)
class ColumnPlan:
    """How one column is compared.

    Attributes:
        name: The column.
        dtype: The dtype that both sides are converted to; None leaves them as they are.
        ragged: Whether shapes differ from row to row somewhere.
        tolerance: How far numbers may be apart.
        any_nan: Whether NaNs are made alike.
        strip: Whether NUL characters at the end of strings are removed.
        rounded: Whether integers are compared as doubles.
    """

    name: str
    dtype: str | None = None
    ragged: bool = False
    tolerance: Tolerance | None = None
    any_nan: bool = False
    strip: bool = False
    rounded: bool = False

    def prepare(self, block: Block) -> Cells:
        """Return this column of a block in the form in which it is compared."""
        cells = block.columns[self.name]
        if cells.kind == "text" and self.strip:
            return replace(cells, values=pc.utf8_rtrim(cells.values, characters="\0"))
        if cells.kind != "number":
            return cells
        dtype = "float64" if self.rounded and cells.dtype == "int64" else self.dtype
        if dtype is not None and dtype != cells.dtype:
            cells = replace(cells, dtype=dtype, values=cells.values.astype(dtype))
        if self.any_nan and cells.values.dtype.kind == "f":
            missing = np.isnan(cells.values)
            if missing.any():
                cells = replace(cells, values=np.where(missing, np.nan, cells.values))
                cells = replace(cells, values=cells.values.astype(cells.dtype))
        return cells


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

    def __getitem__(self, name: str) -> ColumnPlan:
        return next(column for column in self.columns if column.name == name)


def make_plan(a: Recording, b: Recording, rules: Rules) -> Plan:
    """Compare the schemas and decide what else can be compared.

    Raises:
        CannotCompareError: The rules name columns that are not there.
    """
    names = [[n for n in side.names if n not in rules.ignore] for side in (a, b)]
    for name in (*rules.ignore, *rules.key):
        if name not in {*a.names, *b.names}:
            raise CannotCompareError(f"there is no column {name!r}; there are {', '.join(a.names)}")
    findings = [*_missing(names[0], names[1], rules), *_order(names[0], names[1], rules)]
    findings += [*_containers(a, b, rules)]
    plans = []
    for name in (n for n in names[0] if n in names[1]):
        plan, found = _column(a, b, name, rules)
        findings += found
        if plan is not None:
            plans.append(plan)
    notes = _form_notes(a, b, [plan.name for plan in plans])
    return Plan(tuple(plans), _schema_result(findings, len(names[0])), tuple(notes))


def _schema_result(findings: list[Finding], columns: int) -> PromiseResult:
    broken = [f for f in findings if f.allowed is None]
    if broken:
        text = f"{len(broken)} difference(s) in {columns} columns"
        return PromiseResult(Promise.SCHEMA, State.DIFFERENT, text, tuple(findings))
    state = State.ALLOWED if findings else State.SAME
    text = f"{columns} columns" + (f", {len(findings)} allowed difference(s)" if findings else "")
    return PromiseResult(Promise.SCHEMA, state, text, tuple(findings))


def _missing(a: Sequence[str], b: Sequence[str], rules: Rules) -> list[Finding]:
    lost = [
        Finding(Promise.SCHEMA, f"column {name!r} is missing on the second side", name)
        for name in a
        if name not in b
    ]
    allowed = rules.allows(Effect.COLUMNS_IN_B)
    added = [
        Finding(
            Promise.SCHEMA, f"column {name!r} is only on the second side", name, allowed=allowed
        )
        for name in b
        if name not in a
    ]
    return lost + added


def _order(a: Sequence[str], b: Sequence[str], rules: Rules) -> list[Finding]:
    common = [[n for n in a if n in b], [n for n in b if n in a]]
    if common[0] == common[1]:
        return []
    place = next(i for i, pair in enumerate(zip(*common, strict=True)) if pair[0] != pair[1])
    message = f"the columns come in another order, from column {place + 1} on"
    allowed = rules.allows(Effect.KEY_ORDER)
    texts = [", ".join(c) for c in common]
    return [
        Finding(Promise.SCHEMA, message, common[0][place], a=texts[0], b=texts[1], allowed=allowed)
    ]


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
    kinds = {run.kind for side in runs for run in side}
    dtypes = list(dict.fromkeys(run.dtype for side in runs for run in side))
    ragged = "ragged" in kinds
    found = _first_difference(runs, name, rules, rowwise=not (a.batched and b.batched))
    plan = ColumnPlan(
        name,
        ragged=ragged,
        tolerance=rules.tolerance(dtypes[0]) if len(dtypes) == 1 else None,
        any_nan=rules.nan == "any",
        strip=rules.allows(Effect.TRAILING_NULS) is not None,
        rounded=rules.allows(Effect.ROUNDED_LONGS) is not None and dtypes == ["int64"],
    )
    everywhere = [_everywhere(side, name) for side in (a, b)]
    if not any(everywhere):
        raise CannotCompareError(
            f"column {name!r} is missing in some batches of both sides; leave it out (--ignore {name})"
        )
    if not all(everywhere):
        side = "second" if everywhere[0] else "first"
        message = f"column {name!r} is missing in some batches of the {side} side"
        return None, [Finding(Promise.SCHEMA, message, name)]
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


def _everywhere(side: Recording, name: str) -> bool:
    keys = [keys for manifest in side.manifests for keys in manifest["keys"]]
    return all(name in batch for batch in keys)


def _first_difference(
    runs: list[list[Run]], name: str, rules: Rules, *, rowwise: bool
) -> Finding | None:
    """Say where dtype, kind or shape part for the first time."""
    facts = [[(r.start, *_shown(r, rules, rowwise=rowwise)) for r in side] for side in runs]
    steps = sorted({start for side in facts for start, *_ in side})
    for start in steps:
        now = [_at(side, start) for side in facts]
        if rules.order == "shuffled":
            now = [tuple(sorted({fact[1:] for fact in side})) for side in facts]
        if not now[0] or not now[1] or now[0][-3:] == now[1][-3:]:
            continue
        return _finding(name, start, runs, rules)
    return None


def _shown(run: Run, rules: Rules, *, rowwise: bool) -> tuple[str, str, str]:
    shape = f"{len(run.shape)} dimensions" if rowwise else str(_shape_text(run.shape))
    exact = rules.containers == "exact"
    return run.dtype, shape, run.form if exact else "array" if run.kind == "number" else ""


def _at(facts: list[tuple[int, str, str, str]], row: int) -> tuple[object, ...]:
    before = [fact for fact in facts if fact[0] <= row]
    return before[-1] if before else ()


def _finding(name: str, row: int, runs: list[list[Run]], rules: Rules) -> Finding:
    now = [[run for run in side if run.start <= row][-1] for side in runs]
    texts = [f"{run.dtype}{_shape_text(run.shape)}" for run in now]
    allowed = None
    numeric = all(run.kind == "number" for side in runs for run in side)
    same_shape = now[0].shape == now[1].shape
    if now[0].dtype != now[1].dtype:
        message = f"column {name!r} is {texts[0]} on one side and {texts[1]} on the other"
        if numeric and same_shape:
            allowed = rules.allows(Effect.DTYPES)
    elif not same_shape:
        message = f"the values of {name!r} have shape {_shape_text(now[0].shape)} on one side and "
        message += f"{_shape_text(now[1].shape)} on the other"
    else:
        texts = [f"{run.form} ({run.kind})" for run in now]
        message = f"column {name!r} comes as {texts[0]} on one side and as {texts[1]} on the other"
    if row:
        message += f", from row {row} on"
    return Finding(Promise.SCHEMA, message, name, row, texts[0], texts[1], allowed)


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
        notes.append(
            f"{len(other)} column(s) come in another form, for instance {first!r}: "
            f"{forms[0].get(first)} on one side and {forms[1].get(first)} on the other."
        )
    return notes
