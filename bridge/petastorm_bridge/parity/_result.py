"""What a comparison found, as plain data; the reports are views of it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from petastorm_bridge.parity.recorder import legible


class Promise(str, enum.Enum):
    """What is compared, in this order."""

    SCHEMA = "schema"
    COUNT = "count"
    ROWS = "rows"
    ORDER = "order"
    BATCHES = "batches"
    VALUES = "values"


MEANING = {
    Promise.SCHEMA: "the same columns in the same order, with the same dtypes and shapes",
    Promise.COUNT: "as many rows, on every rank",
    Promise.ROWS: "every row of one side is there on the other, as often, on the same rank",
    Promise.ORDER: "the rows come in the same order",
    Promise.BATCHES: "batches begin and end at the same rows",
    Promise.VALUES: "every value is the same",
}


class State(str, enum.Enum):
    """How a promise or a column fared."""

    SAME = "same"
    DIFFERENT = "different"
    ALLOWED = "allowed"  # different, in a way that was allowed
    UNCHECKED = "unchecked"

    @property
    def word(self) -> str:
        """How reports call it."""
        return "not compared" if self is State.UNCHECKED else self.value


@dataclass(frozen=True)
class Finding:
    """One difference.

    Attributes:
        promise: What is broken.
        message: A sentence.
        column: The column, if one is to blame.
        row: The row's index on the first side, or on the second if only that has it.
        a: What the first side has there, as text.
        b: What the second side has there.
        allowed: Name of the difference that allows it.
        what: Of a column's schema: ``dtype``, ``shape``, ``form`` or ``missing``.
    """

    promise: Promise
    message: str
    column: str | None = None
    row: int | None = None
    a: str | None = None
    b: str | None = None
    allowed: str | None = None
    what: str = ""


@dataclass(frozen=True)
class PromiseResult:
    """How one promise fared: a summary with counts and shares, and the first findings."""

    promise: Promise
    state: State
    summary: str
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(
        cls, promise: Promise, summary: str, findings: Iterable[Finding], most: int | None = None
    ) -> PromiseResult:
        """Judge a promise by its findings, and keep the first of them, those that are not allowed before the others."""
        ordered = sorted(findings, key=lambda finding: finding.allowed is not None)
        is_broken = any(finding.allowed is None for finding in ordered)
        state = State.DIFFERENT if is_broken else State.ALLOWED if ordered else State.SAME
        return cls(promise, state, summary, tuple(ordered[:most]))


@dataclass(frozen=True)
class Profile:
    """One side of a column: its type, its missing values, its range and its histogram."""

    dtype: str
    shape: str
    nulls: int = 0
    nans: int = 0
    least: str = ""
    greatest: str = ""
    bins: tuple[int, ...] = ()


@dataclass(frozen=True)
class ColumnResult:
    """How one column fared.

    Attributes:
        name: The column.
        state: Whether it differs.
        a: Its first side, if profiles were asked for; None if it is not there.
        b: Its second side.
        compared: Number of compared rows.
        differing: Number of rows whose values differ.
        greatest: Greatest absolute difference.
        measures: What the histogram counts: ``values``, ``lengths`` or nothing.
        how_far: How far numbers are apart, in words.
        schema: What differs apart from values: ``dtype``, ``shape``, ``form``, ``missing``.
        first: Of the first row that differs: its place and both values, in words.
        accepted: Options that would accept what differs; empty if nothing does.
        axis: Where the histogram begins and ends, in words.
    """

    name: str
    state: State
    a: Profile | None = None
    b: Profile | None = None
    compared: int = 0
    differing: int = 0
    greatest: float | None = None
    measures: str = ""
    how_far: str = ""
    schema: str = ""
    first: tuple[str, str, str] | None = None
    accepted: str = ""
    axis: tuple[str, str] = ("", "")

    @property
    def counts(self) -> tuple[str, str, str]:
        """Number and share of the rows that differ, and how far, for a table."""
        if not self.differing:
            return self.schema, "", ""
        number = f"{self.schema}, {self.differing:,}" if self.schema else f"{self.differing:,}"
        return number, f"{self.differing / max(1, self.compared):.2%}", self.how_far


@dataclass(frozen=True)
class Sample:
    """A row that differs, or that only one side has, in the columns that are shown.

    Attributes:
        place_a: Where it is on the first side; empty if it is not there.
        place_b: Where it is on the second side.
        a: Its values on the first side, in words; empty texts if it is not there.
        b: Its values on the second side.
        differs: Which of the columns differ.
    """

    place_a: str
    place_b: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    differs: tuple[bool, ...]


@dataclass(frozen=True)
class Side:
    """One recording: its label, where it is, what it comes from, and its counts."""

    label: str
    path: str
    source: str
    rows: int
    batches: int
    ranks: tuple[tuple[int, int], ...]  # rows and steps of each rank
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None


@dataclass(frozen=True)
class Result:
    """A comparison.

    Attributes:
        a: The first side, which is how it should be.
        b: The second side.
        promises: In the fixed order.
        columns: In the first side's order.
        notes: What a reader should know besides: what was relaxed, padding, other containers.
        rules: What was asked for, as text.
        hint: Options with which the sides would be the same; they have been tried.
        samples: Some rows that differ, if they were asked for.
        sample_columns: The columns that they show: a few that agree, then those that differ.
    """

    a: Side
    b: Side
    promises: tuple[PromiseResult, ...]
    columns: tuple[ColumnResult, ...]
    notes: tuple[str, ...] = ()
    rules: dict[str, Any] = field(default_factory=dict)
    hint: str = ""
    samples: tuple[Sample, ...] = ()
    sample_columns: tuple[str, ...] = ()

    @property
    def rules_text(self) -> str:
        """The rules that are not those by default, in one line."""
        given = {name: value for name, value in self.rules.items() if value}
        given = {n: v for n, v in given.items() if v != "exact" and (n, v) != ("containers", "any")}
        return ", ".join(f"{name} {value}" for name, value in given.items()) or "exact"

    @property
    def same(self) -> bool:
        """Whether no promise is broken."""
        return all(result.state is not State.DIFFERENT for result in self.promises)

    @property
    def first_failure(self) -> Finding | None:
        """The first finding of the first broken promise."""
        for result in self.promises:
            if result.state is State.DIFFERENT:
                return next(f for f in result.findings if f.allowed is None)
        return None

    @property
    def first_values(self) -> list[tuple[str, str]]:
        """The sides' labels, and what they have where the first failure is."""
        failure = self.first_failure
        given = [(self.a.label, failure.a), (self.b.label, failure.b)] if failure else []
        return [(label, value) for label, value in given if value is not None]

    @property
    def differing(self) -> list[ColumnResult]:
        """The columns that differ."""
        return [column for column in self.columns if column.state is State.DIFFERENT]

    @property
    def exit_code(self) -> int:
        """0 if they are the same, 1 if they differ."""
        return 0 if self.same else 1

    def promise(self, promise: Promise) -> PromiseResult:
        """Return how one promise fared."""
        return next(result for result in self.promises if result.promise is promise)


@dataclass(frozen=True)
class Report:
    """Comparisons that belong together, as reports show them.

    Attributes:
        title: What was compared.
        results: The comparisons.
        facts: Further lines: the data, the options, how often something was run.
        problems: What could not be compared, and why.
        made: When, and with which command.
    """

    title: str
    results: tuple[Result, ...]
    facts: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    made: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 if all are the same, 1 if any differ, 2 if something could not be compared."""
        if self.problems or not self.results:
            return 2
        return max(result.exit_code for result in self.results)


_Part = TypeVar("_Part")


def legible_report(part: _Part) -> _Part:
    """Return a report, or a part of one, with the control characters of all its texts written out.

    Names of columns and files may hold anything, also what steers a terminal.
    """
    changed: object = part
    if isinstance(part, enum.Enum):
        return part
    if isinstance(part, str):
        changed = legible(part)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        parts = {f.name: legible_report(getattr(part, f.name)) for f in dataclasses.fields(part)}
        changed = dataclasses.replace(part, **parts)
    elif isinstance(part, dict):
        changed = {legible_report(key): legible_report(value) for key, value in part.items()}
    elif isinstance(part, tuple | list):
        changed = type(part)(map(legible_report, part))
    return changed  # type: ignore[return-value] # of the same type
