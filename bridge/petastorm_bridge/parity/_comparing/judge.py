"""Judge the promises that are about rows: count, rows, order, batches, values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from petastorm_bridge.parity._recordings.cells import Array
from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity._result import Finding, Promise, PromiseResult, State
from petastorm_bridge.parity.recorder import counted

from .describe import are, describe_row, describe_value, listed, place_text
from .plan import Plan
from .rows import Rows
from .rules import Effect, Rules, shards_are_exact, why_any_order
from .walk import gather

_SHOWN = 10


@dataclass
class Judge:
    """Says how each promise fared, once it is known what became of the rows.

    Attributes:
        a: How it should be.
        b: What is judged.
        rules: How to compare.
        labels: What to call the sides.
        sides: What to call them within a sentence.
        plan: The compared columns.
        rows: What became of the rows.
        notes: What a reader should know besides.
    """

    a: Recording
    b: Recording
    rules: Rules
    labels: tuple[str, str]
    sides: tuple[str, str]
    plan: Plan
    rows: Rows
    notes: list[str] = field(default_factory=list)

    @property
    def _shards_exact(self) -> bool:
        return shards_are_exact(self.a, self.b, self.rules)

    def count(self) -> PromiseResult:
        """Judge the promise of this name."""
        findings = []
        if self.a.rows != self.b.rows:
            findings.append(self._count_finding())
        elif self._shards_exact and self.a.ranks > 1:
            findings += self._rank_findings()
        text = counted(self.a.rows, "row")
        if self.a.rows != self.b.rows:
            share = (self.b.rows - self.a.rows) / max(1, self.a.rows)
            text = f"{counted(self.a.rows, 'row')} against {self.b.rows:,} ({share:+.2%})"
        if self.a.ranks > 1 or self.b.ranks > 1:
            text += f" on {self.a.ranks} and {counted(self.b.ranks, 'rank')}"
        return _judged(Promise.COUNT, text, findings)

    def _count_finding(self) -> Finding:
        first = self.a.rows > self.b.rows
        rows, are_repeats = self._unmatched(first=first)
        words = f"{counted(abs(self.a.rows - self.b.rows), 'row')} too "
        words += f"{'few' if first else 'many'} on {self.sides[1]}"
        padding = self.padding_text(first=first)
        if padding:
            words += f": {padding}"
        elif are_repeats and len(rows):
            words += f": {self.sides[0 if first else 1]} repeats {counted(len(rows), 'row')}"
        if len(rows):
            where = place_text(self.a if first else self.b, int(rows[0]))
            kind = "that are repeated" if are_repeats else "without counterpart"
            words += (
                f"; the first of those {kind} is {where}" if len(rows) > 1 else f"; it is {where}"
            )
        row = int(rows[0]) if len(rows) else min(self.a.rows, self.b.rows)
        return self._unmatched_finding(Promise.COUNT, words, row, first=first)

    def _unmatched_finding(self, promise: Promise, words: str, row: int, *, first: bool) -> Finding:
        """Return a finding that the rows without counterpart allow, or show the first of."""
        rows, are_repeats = self._unmatched(first=first)
        allowed = self.rules.allows(Effect.PADDING) if self.padding_text(first=first) else None
        if not allowed and not first and not len(self.rows.missing):
            allowed = self.rules.allows(Effect.LOST_IN_A)
        elif not allowed and first and are_repeats and not len(self.rows.extra):
            allowed = self.rules.allows(Effect.EXTRA_IN_A)
        shown = None
        if len(rows):
            shown = describe_row(gather(self.a if first else self.b, self.plan, rows[:1]))
        a, b = (shown, None) if first else (None, shown)
        return Finding(promise, words, None, row, a, b, allowed)

    def padding_text(self, *, first: bool) -> str:
        """Say that the rows too many are a StreamingDataset's padding, if they are."""
        side = self.a if first else self.b
        rows, are_repeats = self._unmatched(first=first)
        if not side.padded or not are_repeats or not len(rows):
            return ""
        return (
            f"{self.labels[0 if first else 1]!r} repeats {counted(len(rows), 'row')}, the padding with "
            "which StreamingDataset gives every rank as many rows"
        )

    def _unmatched(self, *, first: bool) -> tuple[Array, bool]:
        """Return the rows that only one side has, and whether the other has all of them less often."""
        rows = self.rows.missing if first else self.rows.extra
        return rows, len(rows) == len(self.rows.matches.repeats[0 if first else 1])

    def _rank_findings(self) -> list[Finding]:
        counts = [rank_counts(side) for side in (self.a, self.b)]
        return [
            Finding(
                Promise.COUNT,
                f"rank {rank} has another number of rows or steps",
                row=int(self.a.rank_starts[rank]),
                a=f"{counted(left[0], 'row')} in {counted(left[1], 'step')}",
                b=f"{counted(right[0], 'row')} in {counted(right[1], 'step')}",
            )
            for rank, (left, right) in enumerate(zip(*counts, strict=True))
            if left[0] != right[0]
        ]

    def same_rows(self) -> PromiseResult:
        """Judge the promise of this name."""
        if not self.plan.columns:
            return _unchecked(Promise.ROWS, "there are no columns to compare")
        findings = [*self._lost(first=True), *self._lost(first=False)]
        matches = self.rows.matches
        if matches.first_strayed and self._shards_exact:
            findings.append(self._strayed(*matches.first_strayed))
        agreeing = self.rows.agreeing
        if findings and agreeing is not None and self.a.rows == self.b.rows:
            known = set(agreeing)
            others = [name for name in self.plan.columns if name not in known]
            self.notes.append(
                f"As a whole, {counted(len(agreeing), 'column')} "
                f"{'holds' if len(agreeing) == 1 else 'hold'} the same values on both sides; "
                f"not so {listed(others)}."
            )
        text = f"{self.a.rows - len(self.rows.missing):,} of {self.a.rows:,} rows are on both sides"
        for rows, where in ((self.rows.missing, "missing"), (self.rows.extra, "extra")):
            total = self.a.rows if where == "missing" else self.b.rows
            if len(rows):
                text += f", {len(rows):,} {where} ({len(rows) / max(1, total):.2%})"
        if matches.strayed and self._shards_exact:
            text += f", {matches.strayed:,} on another rank"
        return _judged(Promise.ROWS, text, findings)

    def _lost(self, *, first: bool) -> list[Finding]:
        rows, are_repeats = self._unmatched(first=first)
        if not len(rows):
            return []
        words = place_text(self.a if first else self.b, int(rows[0]))
        if are_repeats:
            words += f" is there more often than on {self.sides[1 if first else 0]}"
        else:
            words += f" is {'missing' if first else 'only'} on {self.sides[1]}"
        if len(rows) > 1:
            words += f" (and {len(rows) - 1:,} more)"
        padding = self.padding_text(first=first)
        words += f": {padding}" if padding else ""
        return [self._unmatched_finding(Promise.ROWS, words, int(rows[0]), first=first)]

    def _strayed(self, left: int, right: int) -> Finding:
        ranks = self.a.place(left)[0], self.b.place(right)[0]
        text = describe_row(gather(self.a, self.plan, np.array([left])))
        number = self.rows.matches.strayed
        words = f"{counted(number, 'row')} {are(number)} on the wrong rank; the first is "
        words += (
            f"{place_text(self.a, left)}, which is {place_text(self.b, right)} on {self.sides[1]}"
        )
        texts = f"rank {ranks[0]}: {text}", f"rank {ranks[1]}"
        return Finding(Promise.ROWS, words, None, left, *texts)

    def order(self) -> PromiseResult:
        """Judge the promise of this name."""
        reason = why_any_order(self.a, self.b, self.rules)
        if reason:
            return _unchecked(Promise.ORDER, reason)
        moved, first = self.rows.matches.moved, self.rows.matches.first_moved
        unmatched = len(self.rows.missing) or len(self.rows.extra)
        if first is None:
            text = f"{counted(self.a.rows, 'row')} in order"
            text = "of the rows that both sides have" if unmatched else text
            return PromiseResult(Promise.ORDER, State.SAME, text)
        if unmatched or self.a.rows != self.b.rows:
            text = f"{counted(moved, 'row')} {are(moved)} at another place since rows are missing or extra"
            return _unchecked(Promise.ORDER, text)
        left, right = first
        texts = [
            describe_row(gather(side, self.plan, np.array([left]))) for side in (self.a, self.b)
        ]
        words = f"{place_text(self.a, left)} is {place_text(self.b, right)} on {self.sides[1]}"
        finding = Finding(Promise.ORDER, words, None, left, texts[0], texts[1])
        share = moved / max(1, self.a.rows)
        text = f"{moved:,} of {counted(self.a.rows, 'row')} ({share:.2%}) {are(moved)} at another place"
        return _judged(Promise.ORDER, text, [finding])

    def batches(self) -> PromiseResult:
        """Judge the promise of this name."""
        if self.rules.batches == "any":
            return _unchecked(Promise.BATCHES, "batches may be cut anywhere")
        for side, label in zip((self.a, self.b), self.labels, strict=True):
            if not side.batched:
                return _unchecked(Promise.BATCHES, f"{label!r} has single rows")
        if self.a.ranks != self.b.ranks:
            return _unchecked(Promise.BATCHES, "there are not as many ranks")
        findings, total = [], 0
        for rank, sizes in enumerate(zip(self.a.batch_sizes, self.b.batch_sizes, strict=True)):
            total += max(len(sizes[0]), len(sizes[1]))
            finding = self._other_cut(rank, *sizes)
            if finding is not None:
                findings.append(finding)
        text = counted(total, "batch", "batches")
        if findings:
            text += f", cut in other places on {counted(len(findings), 'rank')}"
        elif self.a.rows != self.b.rows:
            text = "the same as far as both sides go"
        return _judged(Promise.BATCHES, text, findings)

    def _other_cut(self, rank: int, a: Array, b: Array) -> Finding | None:
        common = min(len(a), len(b))
        other = np.flatnonzero(a[:common] != b[:common])
        place = int(other[0]) if len(other) else common
        if not len(other) and len(a) == len(b):
            return None
        ends_early = int(a.sum()) != int(b.sum()) and place >= common - 1
        if ends_early:  # the last batch of the shorter side; the count says so
            return None
        sizes = [counted(int(s[place]), "row") if place < len(s) else "no batch" for s in (a, b)]
        row = int(self.a.rank_starts[rank] + a[:place].sum())
        words = f"batch {place}" + (f" of rank {rank}" if self.a.ranks > 1 else "")
        words += f", which begins at row {row}, has another size"
        return Finding(Promise.BATCHES, words, None, row, sizes[0], sizes[1])

    def values(self) -> PromiseResult:
        """Judge the promise of this name."""
        if not self.plan.columns:
            return _unchecked(Promise.VALUES, "there are no columns to compare")
        first_differences = [
            (s.first, name) for name, s in self.rows.stats.items() if s.first is not None
        ]
        findings = []
        for (left, right, one, other), name in sorted(
            first_differences, key=lambda item: item[0][:2]
        ):
            stats = self.rows.stats[name]
            share = stats.differing / max(1, stats.compared)
            words = f"column {name!r} differs in {counted(stats.differing, 'row')} ({share:.2%})"
            words += ", first in " if stats.differing > 1 else ", in "
            words += place_text(self.a, left)
            if left != right:
                words += f", which is row {right} on {self.sides[1]}"
            if stats.how_far:
                words += f"; {stats.how_far}"
            texts = describe_value(one, other)
            findings.append(Finding(Promise.VALUES, words, name, left, *texts))
        compared = max((s.compared for s in self.rows.stats.values()), default=0)
        text = f"{counted(compared, 'row')} of {counted(len(self.plan.columns), 'column')}"
        if findings:
            text += f"; {counted(len(findings), 'column')} {'differs' if len(findings) == 1 else 'differ'}"
        if self.rows.matches.ambiguous and findings:
            self.notes.append(
                f"{counted(self.rows.matches.ambiguous, 'row')} could not be told apart by the columns that agree "
                "and were put together in the order they came in; name a column that tells them "
                "apart (--key)."
            )
        return _judged(Promise.VALUES, text, findings)


def rank_counts(side: Recording) -> list[tuple[int, int]]:
    """Return the rows and the steps of each rank."""
    return [(int(sizes.sum()), len(sizes)) for sizes in side.batch_sizes]


def _judged(promise: Promise, text: str, findings: list[Finding]) -> PromiseResult:
    broken = [f for f in findings if f.allowed is None]
    state = State.DIFFERENT if broken else State.ALLOWED if findings else State.SAME
    ordered = sorted(findings, key=lambda f: f.allowed is not None)
    return PromiseResult(promise, state, text, tuple(ordered[:_SHOWN]))


def _unchecked(promise: Promise, text: str) -> PromiseResult:
    return PromiseResult(promise, State.UNCHECKED, text)
