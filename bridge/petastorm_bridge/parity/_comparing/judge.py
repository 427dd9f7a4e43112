"""Judge the promises that are about rows: count, rows, order, batches, values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from petastorm_bridge.parity._recordings.cells import Array
from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity._result import Finding, Promise, PromiseResult, State
from petastorm_bridge.parity.recorder import counted

from .comparison import Comparison
from .describe import are, describe_row, describe_value, listed, place_text
from .rows import Rows
from .rules import ALLOWANCES, PADDING, Effect
from .schema import form_notes

# Effects that keep something from being compared, so that nobody can say whether they were met.
_NOT_COMPARED = {Effect.ORDER, Effect.SHARDS, Effect.TRAILING_NULS, Effect.ROUNDED_LONGS}
_NO_COLUMNS = "there are no columns to compare"


def judged(c: Comparison, rows: Rows) -> list[PromiseResult]:
    """Say how each promise about rows fared, once it is known what became of them."""
    sides = [_alone(c, rows, side) for side in range(2)]
    return [
        _count(c, sides),
        _same_rows(c, rows, sides),
        _order(c, rows),
        _batches(c),
        _values(c, rows),
    ]


@dataclass(frozen=True)
class _Alone:
    """The rows of a side without counterpart.

    Attributes:
        rows: Their indices.
        are_repeats: Whether the other side has all of them, only less often.
        padding: That they are a StreamingDataset's padding, in words; empty if they are not.
        allowed: Name of the difference that allows them.
        shown: The first of them in words, on its side.
    """

    rows: Array
    are_repeats: bool
    padding: str
    allowed: str | None
    shown: tuple[str | None, str | None]


def _alone(c: Comparison, rows: Rows, side: int) -> _Alone:
    alone = rows.alone[side]
    are_repeats = len(alone) == len(rows.matches.repeats[side])
    padding = padding_text(c, rows, side)
    effects = [Effect.PADDING] if padding else []
    if not len(rows.alone[1 - side]) and (are_repeats or side == 1):
        effects.append(Effect.LOST_IN_A if side == 1 else Effect.EXTRA_IN_A)
    shown = _shown(c, side, int(alone[0])) if len(alone) else None
    return _Alone(
        alone,
        are_repeats,
        padding,
        next(filter(None, map(c.rules.allows, effects)), None),
        (None, shown) if side else (shown, None),
    )


def padding_text(c: Comparison, rows: Rows, side: int) -> str:
    """Say that a side's rows without counterpart are a StreamingDataset's padding, if they are."""
    number = len(rows.alone[side])
    if not c.sides[side].padded or not number or number > len(rows.matches.repeats[side]):
        return ""
    return (
        f"{c.labels[side]!r} repeats {counted(number, 'row')}, the padding with "
        "which StreamingDataset gives every rank as many rows"
    )


def _shown(c: Comparison, side: int, row: int) -> str:
    return describe_row(c.gather(side, np.array([row])))


def _count(c: Comparison, sides: list[_Alone]) -> PromiseResult:
    a, b = c.sides
    findings = []
    text = counted(a.rows, "row")
    if a.rows != b.rows:
        findings.append(_count_finding(c, sides, 0 if a.rows > b.rows else 1))
        text += f" against {b.rows:,} ({(b.rows - a.rows) / max(1, a.rows):+.2%})"
    elif c.shards_are_exact and a.ranks > 1:
        findings += _rank_findings(a, b)
    if a.ranks > 1 or b.ranks > 1:
        text += f" on {a.ranks} and {counted(b.ranks, 'rank')}"
    return _result(Promise.COUNT, text, findings)


def _count_finding(c: Comparison, sides: list[_Alone], side: int) -> Finding:
    """Say which rows the side that has more has too many."""
    a, b = c.sides
    alone = sides[side]
    words = (
        f"{counted(abs(a.rows - b.rows), 'row')} too {'many' if side else 'few'} on {c.names[1]}"
    )
    row = min(a.rows, b.rows)
    if alone.padding:
        words += f": {alone.padding}"
    elif alone.are_repeats and len(alone.rows):
        words += f": {c.names[side]} repeats {counted(len(alone.rows), 'row')}"
    if len(alone.rows):
        row = int(alone.rows[0])
        kind = "that are repeated" if alone.are_repeats else "without counterpart"
        several = len(alone.rows) > 1
        words += f"; the first of those {kind} is " if several else "; it is "
        words += place_text(c.sides[side], row)
    return Finding(Promise.COUNT, words, None, row, *alone.shown, alone.allowed)


def _rank_findings(a: Recording, b: Recording) -> Iterator[Finding]:
    for rank, (left, right) in enumerate(zip(rank_counts(a), rank_counts(b), strict=True)):
        if left[0] != right[0]:
            yield Finding(
                Promise.COUNT,
                f"rank {rank} has another number of rows or steps",
                row=int(a.rank_starts[rank]),
                a=f"{counted(left[0], 'row')} in {counted(left[1], 'step')}",
                b=f"{counted(right[0], 'row')} in {counted(right[1], 'step')}",
            )


def rank_counts(side: Recording) -> list[tuple[int, int]]:
    """Return the rows and the steps of each rank."""
    return [(int(sizes.sum()), len(sizes)) for sizes in side.batch_sizes]


def _same_rows(c: Comparison, rows: Rows, sides: list[_Alone]) -> PromiseResult:
    if not c.columns:
        return _unchecked(Promise.ROWS, _NO_COLUMNS)
    total = c.sides[0].rows
    findings = []
    text = f"{total - len(sides[0].rows):,} of {total:,} rows are on both sides"
    for side, alone in enumerate(sides):
        number = len(alone.rows)
        if number:
            findings.append(_lost(c, side, alone))
            share = number / max(1, c.sides[side].rows)
            text += f", {number:,} {'extra' if side else 'missing'} ({share:.2%})"
    matches = rows.matches
    if matches.first_strayed and c.shards_are_exact:
        findings.append(_strayed(c, matches.strayed, *matches.first_strayed))
        text += f", {matches.strayed:,} on another rank"
    return _result(Promise.ROWS, text, findings)


def _lost(c: Comparison, side: int, alone: _Alone) -> Finding:
    row, others = int(alone.rows[0]), len(alone.rows) - 1
    words = place_text(c.sides[side], row)
    if alone.are_repeats:
        words += f" is there more often than on {c.names[1 - side]}"
    else:
        words += f" is {'only' if side else 'missing'} on {c.names[1]}"
    words += f" (and {others:,} more)" if others else ""
    words += f": {alone.padding}" if alone.padding else ""
    return Finding(Promise.ROWS, words, None, row, *alone.shown, alone.allowed)


def _strayed(c: Comparison, number: int, left: int, right: int) -> Finding:
    a, b = c.sides
    words = f"{counted(number, 'row')} {are(number)} on the wrong rank; the first is "
    words += f"{place_text(a, left)}, which is {place_text(b, right)} on {c.names[1]}"
    texts = f"rank {a.place(left)[0]}: {_shown(c, 0, left)}", f"rank {b.place(right)[0]}"
    return Finding(Promise.ROWS, words, None, left, *texts)


def _order(c: Comparison, rows: Rows) -> PromiseResult:
    if c.why_any_order:
        return _unchecked(Promise.ORDER, c.why_any_order)
    a, b = c.sides
    moved, first = rows.matches.moved, rows.matches.first_moved
    unmatched = any(map(len, rows.alone))
    if first is None:
        text = (
            "of the rows that both sides have"
            if unmatched
            else f"{counted(a.rows, 'row')} in order"
        )
        return PromiseResult(Promise.ORDER, State.SAME, text)
    if unmatched or a.rows != b.rows:
        text = (
            f"{counted(moved, 'row')} {are(moved)} at another place since rows are missing or extra"
        )
        return _unchecked(Promise.ORDER, text)
    left, right = first
    texts = [_shown(c, side, left) for side in range(2)]
    words = f"{place_text(a, left)} is {place_text(b, right)} on {c.names[1]}"
    finding = Finding(Promise.ORDER, words, None, left, *texts)
    text = f"{moved:,} of {counted(a.rows, 'row')} ({moved / a.rows:.2%}) {are(moved)} at another place"
    return _result(Promise.ORDER, text, [finding])


def _batches(c: Comparison) -> PromiseResult:
    a, b = c.sides
    if c.rules.batches == "any":
        return _unchecked(Promise.BATCHES, "batches may be cut anywhere")
    for side, label in zip(c.sides, c.labels, strict=True):
        if not side.batched:
            return _unchecked(Promise.BATCHES, f"{label!r} has single rows")
    if a.ranks != b.ranks:
        return _unchecked(Promise.BATCHES, "there are not as many ranks")
    sizes = list(zip(a.batch_sizes, b.batch_sizes, strict=True))
    cuts = [_other_cut(a, rank, *of_rank) for rank, of_rank in enumerate(sizes)]
    findings = [finding for finding in cuts if finding is not None]
    text = counted(sum(max(map(len, of_rank)) for of_rank in sizes), "batch", "batches")
    if findings:
        text += f", cut in other places on {counted(len(findings), 'rank')}"
    elif a.rows != b.rows:
        text = "the same as far as both sides go"
    return _result(Promise.BATCHES, text, findings)


def _other_cut(side: Recording, rank: int, a: Array, b: Array) -> Finding | None:
    """Say where the batches of a rank are cut otherwise."""
    common = min(len(a), len(b))
    other = np.flatnonzero(a[:common] != b[:common])
    place = int(other[0]) if len(other) else common
    if not len(other) and len(a) == len(b):
        return None
    if int(a.sum()) != int(b.sum()) and place >= common - 1:
        return None  # the last batch of the shorter side; the count says so
    sizes = [counted(int(s[place]), "row") if place < len(s) else "no batch" for s in (a, b)]
    row = int(side.rank_starts[rank] + a[:place].sum())
    words = f"batch {place}" + (f" of rank {rank}" if side.ranks > 1 else "")
    words += f", which begins at row {row}, has another size"
    return Finding(Promise.BATCHES, words, None, row, *sizes)


def _values(c: Comparison, rows: Rows) -> PromiseResult:
    if not c.columns:
        return _unchecked(Promise.VALUES, _NO_COLUMNS)
    first_differences = [(s.first, name) for name, s in rows.stats.items() if s.first is not None]
    findings = []
    for (left, right, one, other), name in sorted(first_differences, key=lambda item: item[0][:2]):
        stats = rows.stats[name]
        share = stats.differing / max(1, stats.compared)
        words = f"column {name!r} differs in {counted(stats.differing, 'row')} ({share:.2%})"
        words += ", first in " if stats.differing > 1 else ", in "
        words += place_text(c.sides[0], left)
        if left != right:
            words += f", which is row {right} on {c.names[1]}"
        if stats.how_far:
            words += f"; {stats.how_far}"
        texts = describe_value(one, other)
        findings.append(Finding(Promise.VALUES, words, name, left, *texts))
    compared = max((s.compared for s in rows.stats.values()), default=0)
    text = f"{counted(compared, 'row')} of {counted(len(c.columns), 'column')}"
    if findings:
        text += (
            f"; {counted(len(findings), 'column')} {'differs' if len(findings) == 1 else 'differ'}"
        )
    return _result(Promise.VALUES, text, findings)


def _result(promise: Promise, text: str, findings: list[Finding]) -> PromiseResult:
    return PromiseResult.of(promise, text, findings, most=10)


def _unchecked(promise: Promise, text: str) -> PromiseResult:
    return PromiseResult(promise, State.UNCHECKED, text)


def notes(c: Comparison, rows: Rows, promises: Mapping[Promise, PromiseResult]) -> Iterator[str]:
    """Say what a reader should know besides: other forms, what was relaxed, and what was not needed."""
    a, b = c.sides
    yield from form_notes(c)
    if promises[Promise.ROWS].findings and rows.agreeing is not None and a.rows == b.rows:
        number, known = len(rows.agreeing), set(rows.agreeing)
        yield (
            f"As a whole, {counted(number, 'column')} {'holds' if number == 1 else 'hold'} the same values "
            f"on both sides; not so {listed([name for name in c.columns if name not in known])}."
        )
    if promises[Promise.VALUES].findings and rows.matches.ambiguous:
        yield (
            f"{counted(rows.matches.ambiguous, 'row')} could not be told apart by the columns that agree "
            "and were put together in the order they came in; name a column that tells them "
            "apart (--key)."
        )
    for side in range(2):
        padding = padding_text(c, rows, side)
        if padding:
            hint = "" if c.rules.allows(Effect.PADDING) else f" Allow it with {PADDING}."
            yield f"{padding[0].upper()}{padding[1:]}.{hint}"
    used = {f.allowed for result in promises.values() for f in result.findings}
    for name in c.rules.allow:
        if name not in used and ALLOWANCES[name] not in _NOT_COMPARED | {Effect.PADDING}:
            yield f"The difference {name} is allowed but was not met as such."
    for recording, label in zip(c.sides, c.labels, strict=True):
        if any(manifest["limited"] for manifest in recording.manifests):
            yield f"{label!r} may have more rows: it was read up to a limit."
