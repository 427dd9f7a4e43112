"""Say under which looser rules two sides would be the same; every hint has been tried."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from petastorm_bridge.parity._recordings.cells import Tolerance
from petastorm_bridge.parity._recordings.manifest import CannotCompareError
from petastorm_bridge.parity._result import Promise, PromiseResult, State

from .comparison import Comparison
from .rows import ColumnStats, Rows
from .rules import ALLOWANCES, Effect, Rules
from .schema import are_numbers

_RELAXABLE = {Promise.ORDER, Promise.BATCHES, Promise.VALUES}


def hint(
    c: Comparison,
    rows: Rows,
    promises: Mapping[Promise, PromiseResult],
    is_same: Callable[[Rules], bool],
) -> str:
    """Return the options with which two sides that differ would be the same; empty if none are.

    Args:
        c: What is compared.
        rows: What became of the rows.
        promises: How they fared.
        is_same: Compares the sides under other rules.
    """
    broken = {name for name, result in promises.items() if result.state is State.DIFFERENT}
    if not broken or not broken <= _RELAXABLE:
        return ""
    changes: dict[str, Any] = {}
    if Promise.ORDER in broken:
        changes["order"] = "shuffled"
    if Promise.BATCHES in broken:
        changes["batches"] = "any"
    if Promise.VALUES in broken:
        values = _values(c, rows.stats)
        if values is None:
            return ""
        changes |= values
    try:
        same = is_same(replace(c.rules, **changes))
    except CannotCompareError:
        return ""
    return _options(c.rules, changes) if same else ""


def column_hint(c: Comparison, name: str, stats: ColumnStats, schema: str) -> str:
    """Return the options that accept what differs in one column.

    Args:
        c: What is compared.
        name: The column.
        stats: How its values differ.
        schema: What else differs: ``dtype``, ``shape``, ``form``, ``missing`` or nothing.
    """
    ignored = f"--ignore {shlex.quote(name)}"
    if schema == "dtype":
        runs = [side.runs(name) for side in c.sides]
        shapes = {run.shape for of_side in runs for run in of_side}
        if len(shapes) == 1 and are_numbers(runs):
            return f"--allow {_allowing(Effect.DTYPES)}"
    if schema:
        return ignored
    if not stats.differing:  # only the order of the columns is another
        return f"--allow {_allowing(Effect.KEY_ORDER)}"
    distance = stats.distance
    if distance.floats and not distance.rows and not distance.one_nan:
        # The sign of a zero and the bits of a NaN: within any tolerance, and none of the rest is.
        return f"--tolerance {_dtype(c, name)}=0"
    changes = None if distance.one_nan else _values(c, {name: stats})
    return ignored if changes is None else _options(c.rules, changes)


def _allowing(effect: Effect) -> str:
    """Return what ``--allow`` calls what allows a difference."""
    return next(name for name, each in ALLOWANCES.items() if each is effect)


def _dtype(c: Comparison, name: str) -> str:
    """Return the dtype in which a column is compared."""
    return c.columns[name].dtype or c.sides[0].runs(name)[0].dtype


def _values(c: Comparison, columns: Mapping[str, ColumnStats]) -> dict[str, Any] | None:
    """Return the rules that accept the values of some columns that differ, if any do."""
    tolerances = dict(c.rules.tolerances)
    changes: dict[str, Any] = {}
    for name, stats in columns.items():
        if not stats.differing:
            continue
        distance = stats.distance
        if distance.floats and not distance.rows:
            changes["nan"] = "any"
            continue
        if not distance.floats or distance.one_nan:
            return None
        dtype = _dtype(c, name)
        known = tolerances.get(dtype, tolerances.get("float", Tolerance()))
        relative = _round_up(distance.needed)
        is_relative = relative < 1  # a relative tolerance of 1 accepts any number near zero
        bound = relative if is_relative else _round_up(distance.greatest)
        if math.isinf(bound):  # numbers as far apart as there are, which no tolerance says
            return None
        if is_relative:
            tolerances[dtype] = replace(known, rtol=max(known.rtol, bound))
        else:
            tolerances[dtype] = replace(known, atol=max(known.atol, bound))
    if tolerances != c.rules.tolerances:
        changes["tolerances"] = tolerances
    return changes


def _round_up(number: float) -> float:
    """Return the next larger number of one digit, infinity if there is none."""
    if not number or math.isinf(number):
        return number
    mantissa, _, power = f"{number:e}".partition("e")  # 10.0**-324, of the smallest ones, is 0
    return float(f"{math.floor(float(mantissa)) + 1}e{power}")


def _options(rules: Rules, changes: dict[str, Any]) -> str:
    options = [f"--{name} {value}" for name, value in changes.items() if name != "tolerances"]
    for dtype, tolerance in changes.get("tolerances", {}).items():
        if tolerance != rules.tolerances.get(dtype):
            absolute = f",{tolerance.atol:g}" if tolerance.atol else ""
            options.append(f"--tolerance {dtype}={tolerance.rtol:g}{absolute}")
    return " ".join(options)
