"""Some rows that differ, side by side, for people who would rather look than read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from petastorm_bridge.parity._recordings.cells import Array, Cells
from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity._result import Sample

from .describe import describe_value, place_text, show
from .judge import Judge
from .walk import EXAMPLES, compare_columns, gather

_CHANGED = 6  # rows of both sides
_ALONE = 3  # rows that one side has, of each
_DIFFERING = 12  # columns
_AGREEING = 3


def samples(judge: Judge) -> tuple[tuple[str, ...], tuple[Sample, ...]]:
    """Return the columns that are shown, and the rows.

    Args:
        judge: What judged the rows; its sides are read once more, at these rows only.
    """
    pairs = np.array(_pairs(judge), np.int64).reshape(-1, 2)
    missing, extra = judge.rows.missing[:_ALONE], judge.rows.extra[:_ALONE]
    if not (len(pairs) or len(missing) or len(extra)):
        return (), ()
    names, examples = _changed(judge, pairs)
    examples += [
        *_alone(judge, names, missing, first=True),
        *_alone(judge, names, extra, first=False),
    ]
    return names, tuple(examples)


def _pairs(judge: Judge) -> list[tuple[int, int]]:
    """Return places on both sides: of every column in turn, so that none takes all the room."""
    examples = [stats.examples for stats in judge.rows.stats.values()]
    in_turn = (pairs[turn] for turn in range(EXAMPLES) for pairs in examples if turn < len(pairs))
    return sorted(list(dict.fromkeys(in_turn))[:_CHANGED])


def _rows(judge: Judge, side: Recording, rows: Array) -> dict[str, Cells]:
    return gather(side, judge.plan, rows) if len(rows) else {}


def _shown(judge: Judge, differing: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a few columns that tell the rows apart, and of those that differ."""
    agreeing = [name for name in judge.plan.columns if name not in differing]
    keys = [name for name in judge.rules.key if name in agreeing]
    return tuple((keys or agreeing)[:_AGREEING] + list(differing)[:_DIFFERING])


def _changed(judge: Judge, pairs: Array) -> tuple[tuple[str, ...], list[Sample]]:
    """Return the columns that are shown, and the rows of both sides; int64 [n, 2]."""
    sides = _rows(judge, judge.a, pairs[:, 0]), _rows(judge, judge.b, pairs[:, 1])
    differ = compare_columns(judge.plan, *sides) if len(pairs) else {}
    names = _shown(judge, [name for name, rows in differ.items() if rows.any()])
    examples = []
    for at, (row_a, row_b) in enumerate(pairs.tolist()):
        differs = tuple(bool(differ[name][at]) for name in names)
        texts = []
        for name, other in zip(names, differs, strict=True):
            one, two = (side[name].cell(at) for side in sides)
            texts.append(describe_value(one, two) if other else (show(one), show(two)))
        places = place_text(judge.a, row_a), place_text(judge.b, row_b)
        values = tuple(text[0] for text in texts), tuple(text[1] for text in texts)
        examples.append(Sample(*places, *values, differs))
    return names, examples


def _alone(judge: Judge, names: Sequence[str], rows: Array, *, first: bool) -> list[Sample]:
    side = judge.a if first else judge.b
    cells = _rows(judge, side, rows)
    nothing = ("",) * len(names)
    examples = []
    for at, row in enumerate(rows):
        texts = tuple(show(cells[name].cell(at)) for name in names)
        place, none = place_text(side, int(row)), (False,) * len(names)
        if first:
            examples.append(Sample(place, "", texts, nothing, none))
        else:
            examples.append(Sample("", place, nothing, texts, none))
    return examples
