"""Which columns are compared, and in what form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from petastorm_bridge.parity._recordings.cells import Array, Cells, Tolerance
from petastorm_bridge.parity._recordings.manifest import CannotCompareError
from petastorm_bridge.parity._recordings.recording import Block, Recording
from petastorm_bridge.parity._result import Finding, Promise, PromiseResult, State
from petastorm_bridge.parity.recorder import counted

from .columns import column_findings, compare_formats
from .describe import listed
from .rules import Effect, Rules


@dataclass(frozen=True)
class ColumnPlan:
    """How one column is compared.

    Attributes:
        dtype: The dtype that both sides are converted to; None leaves them as they are.
        tolerance: How far numbers may be apart.
        any_nan: Whether NaNs are made alike.
        strip: Whether NUL characters at the end of strings are removed.
        rounded: Whether integers are compared as doubles.
    """

    dtype: str | None = None
    tolerance: Tolerance | None = None
    any_nan: bool = False
    strip: bool = False
    rounded: bool = False

    def prepare(self, cells: Cells) -> Cells:
        """Return the column of some rows in the form in which it is compared."""
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
    """The columns to compare, by name, and how the schema fared."""

    columns: dict[str, ColumnPlan]
    schema: PromiseResult
    notes: list[str]

    def prepare(self, block: Block) -> Block:
        """Return these columns of a block in the form in which they are compared."""
        columns = {name: c.prepare(block.columns[name]) for name, c in self.columns.items()}
        return replace(block, columns=columns)


def make_plan(a: Recording, b: Recording, rules: Rules, sides: tuple[str, str]) -> Plan:
    """Compare the schemas and decide what else can be compared.

    Args:
        a: The first side.
        b: The second side.
        rules: How to compare.
        sides: What to call the sides within a sentence.

    Raises:
        CannotCompareError: The rules name columns that are not there.
    """
    ignored, known = set(rules.ignore), {*a.names, *b.names}
    names = [[n for n in side.names if n not in ignored] for side in (a, b)]
    for name in (*rules.ignore, *rules.key):
        if name not in known:
            raise CannotCompareError(f"there is no column {name!r}; there are {listed(a.names)}")
    for name in rules.key:
        if name in ignored:
            raise CannotCompareError(f"column {name!r} cannot be the key and be ignored as well")
    findings = column_findings(a, b, names, rules, sides[1])
    plans = {}
    second = set(names[1])
    for name in (n for n in names[0] if n in second):
        plan, differences = _column(a, b, name, rules, sides)
        findings += differences
        if plan is not None:
            plans[name] = plan
    return Plan(plans, _schema_result(findings, len(names[0])), _form_notes(a, b, plans))


def _schema_result(findings: list[Finding], columns: int) -> PromiseResult:
    broken = [f for f in findings if f.allowed is None]
    if broken:
        text = f"{counted(len(broken), 'difference')} in {counted(columns, 'column')}"
        return PromiseResult(Promise.SCHEMA, State.DIFFERENT, text, tuple(findings))
    state = State.ALLOWED if findings else State.SAME
    text = counted(columns, "column")
    text += f", {counted(len(findings), 'allowed difference')}" if findings else ""
    return PromiseResult(Promise.SCHEMA, state, text, tuple(findings))


def _column(
    a: Recording, b: Recording, name: str, rules: Rules, sides: tuple[str, str]
) -> tuple[ColumnPlan | None, list[Finding]]:
    dtypes, finding = compare_formats(a, b, name, rules)
    plan = ColumnPlan(
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
        side = sides[everywhere.index(False)]
        message = f"column {name!r} is missing in some batches of {side}"
        return None, [Finding(Promise.SCHEMA, message, name, what="missing")]
    if finding is None:
        return plan, []
    if finding.allowed:
        wide = str(np.result_type(*dtypes))
        return replace(plan, dtype=wide, tolerance=rules.tolerance(wide)), [finding]
    comparable = len(dtypes) == 1
    return (plan if comparable else None), [finding]


def _form_notes(a: Recording, b: Recording, names: Iterable[str]) -> list[str]:
    notes = []
    containers = [", ".join(side.manifest["containers"]) for side in (a, b)]
    if containers[0] != containers[1] and a.rows and b.rows:
        notes.append(f"Batches are {containers[0]} on one side and {containers[1]} on the other.")
    forms = [{n: "/".join(c["forms"]) for n, c in side.columns.items()} for side in (a, b)]
    other = [n for n in names if forms[0].get(n) != forms[1].get(n)]
    if other:
        first = other[0]
        come = "comes" if len(other) == 1 else "come"
        notes.append(
            f"{counted(len(other), 'column')} {come} in another form, for instance {first!r}: "
            f"{forms[0].get(first)} on one side and {forms[1].get(first)} on the other."
        )
    return notes
