"""Judge the promises that are about rows: count, rows, order, batches, values."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from petastorm_bridge.parity._recordings.cells import Array
from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity._result import Finding, Promise, PromiseResult, State

from .describe import are, counted, describe_row, describe_value, listed, place_text
from .order import shards_are_exact, why_any_order
from .plan import Plan
from .rows import Rows
from .rules import Effect, Rules
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
        plan: The compared columns.
        rows: What became of the rows.
        notes: What a reader should know besides.
    """

    a: Recording
    b: Recording
    rules: Rules
    labels: tuple[str, str]
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
        short = self.a.rows > self.b.rows
        rows, repeats = self._unmatched(first=short)
        words = f"{counted(abs(self.a.rows - self.b.rows), 'row')} "
        words += "too few on the second side" if short else "too many on the second side"
        padding = self.padding_text(first=short)
        if padding:
            words += f": {padding}"
        elif repeats and repeats == len(rows):
            side = "first" if short else "second"
            words += f": the {side} side repeats {counted(repeats, 'row')}"
        if len(rows):
            row = int(rows[0])
            where = place_text(self.a if short else self.b, row)
            kind = "that are repeated" if repeats == len(rows) else "without counterpart"
            words += (
                f"; the first of those {kind} is {where}" if len(rows) > 1 else f"; it is {where}"
            )
        allowed = self._count_allowed(short=short, repeats=repeats == len(rows), padding=padding)
        texts = self._row_texts(rows, first=short)
        row_number = int(rows[0]) if len(rows) else min(self.a.rows, self.b.rows)
        return Finding(Promise.COUNT, words, None, row_number, texts[0], texts[1], allowed)

    def _count_allowed(self, *, short: bool, repeats: bool, padding: str) -> str | None:
        if padding and (allowed := self.rules.allows(Effect.PADDING)):
            return allowed
        if not short and not len(self.rows.missing):
            return self.rules.allows(Effect.LOST_IN_A)
        if short and repeats and not len(self.rows.extra):
            return self.rules.allows(Effect.EXTRA_IN_A)
        return None

    def padding_text(self, *, first: bool) -> str:
        """Say that the rows too many are a StreamingDataset's padding, if they are."""
        side = self.a if first else self.b
        rows, repeats = self._unmatched(first=first)
        if not side.padded or not repeats or repeats != len(rows):
            return ""
        label = self.labels[0 if first else 1]
        return (
            f"{label!r} repeats {counted(repeats, 'row')}, the padding with which StreamingDataset gives "
            "every rank as many rows"
        )

    def _unmatched(self, *, first: bool) -> tuple[Array, int]:
        if first:
            return self.rows.missing, self.rows.missing_repeats
        return self.rows.extra, self.rows.extra_repeats

    def _row_texts(self, rows: Array, *, first: bool) -> tuple[str | None, str | None]:
        if not len(rows):
            return None, None
        side = self.a if first else self.b
        text = describe_row(gather(side, self.plan, rows[:1]))
        return (text, None) if first else (None, text)

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
        if self.rows.strayed and self._shards_exact and self.rows.first_strayed:
            findings.append(self._strayed())
        agreeing = self.rows.agreeing
        if findings and agreeing is not None and self.a.rows == self.b.rows:
            known = set(agreeing)
            others = [name for name in self.plan.names if name not in known]
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
        if self.rows.strayed and self._shards_exact:
            text += f", {self.rows.strayed:,} on another rank"
        return _judged(Promise.ROWS, text, findings)

    def _lost(self, *, first: bool) -> list[Finding]:
        rows, repeats = self._unmatched(first=first)
        if not len(rows):
            return []
        side = self.a if first else self.b
        where = place_text(side, int(rows[0]))
        if repeats == len(rows):
            other = "second" if first else "first"
            words = f"{where} is there more often than on the {other} side"
        else:
            words = f"{where} is {'missing on' if first else 'only on'} the second side"
        if len(rows) > 1:
            words += f" (and {len(rows) - 1:,} more)"
        padding = self.padding_text(first=first)
        if padding:
            words += f": {padding}"
        allowed = self._count_allowed(short=first, repeats=repeats == len(rows), padding=padding)
        texts = self._row_texts(rows, first=first)
        return [Finding(Promise.ROWS, words, None, int(rows[0]), *texts, allowed)]

    def _strayed(self) -> Finding:
        assert self.rows.first_strayed is not None
        left, right = self.rows.first_strayed
        ranks = self.a.place(left)[0], self.b.place(right)[0]
        text = describe_row(gather(self.a, self.plan, np.array([left])))
        words = f"{counted(self.rows.strayed, 'row')} {are(self.rows.strayed)} on the wrong rank; the first is "
        words += f"{place_text(self.a, left)}, which is {place_text(self.b, right)} "
        words += "on the second side"
        return Finding(
            Promise.ROWS, words, None, left, f"rank {ranks[0]}: {text}", f"rank {ranks[1]}"
        )

    def order(self) -> PromiseResult:
        """Judge the promise of this name."""
        reason = why_any_order(self.a, self.b, self.rules)
        if reason:
            return _unchecked(Promise.ORDER, reason)
        if not self.rows.moved or self.rows.first_moved is None:
            if len(self.rows.missing) or len(self.rows.extra):
                return PromiseResult(Promise.ORDER, State.SAME, "of the rows that both sides have")
            return PromiseResult(
                Promise.ORDER, State.SAME, f"{counted(self.a.rows, 'row')} in order"
            )
        if len(self.rows.missing) or len(self.rows.extra) or self.a.rows != self.b.rows:
            text = f"{counted(self.rows.moved, 'row')} {are(self.rows.moved)} at another place since rows are missing or extra"
            return _unchecked(Promise.ORDER, text)
        left, right = self.rows.first_moved
        share = self.rows.moved / max(1, self.a.rows)
        texts = [
            describe_row(gather(side, self.plan, np.array([left]))) for side in (self.a, self.b)
        ]
        words = f"{place_text(self.a, left)} is {place_text(self.b, right)} on the second side"
        finding = Finding(Promise.ORDER, words, None, left, texts[0], texts[1])
        text = f"{self.rows.moved:,} of {counted(self.a.rows, 'row')} ({share:.2%}) {are(self.rows.moved)} at another place"
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
                words += f", which is row {right} on the second side"
            if stats.how_far:
                words += f"; {stats.how_far}"
            texts = describe_value(one, other)
            findings.append(Finding(Promise.VALUES, words, name, left, *texts))
        compared = max((s.compared for s in self.rows.stats.values()), default=0)
        text = f"{counted(compared, 'row')} of {counted(len(self.plan.columns), 'column')}"
        if findings:
            text += f"; {counted(len(findings), 'column')} {'differs' if len(findings) == 1 else 'differ'}"
        if self.rows.ambiguous and findings:
            self.notes.append(
                f"{counted(self.rows.ambiguous, 'row')} could not be told apart by the columns that agree "
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
