"""Ranges and histograms of the columns of both sides, for people who would rather look than read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from petastorm_bridge.parity._recordings.cells import Array, Cells
from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity._result import Profile

from .walk import BLOCK_ROWS, Progress

BINS = 24


@dataclass(frozen=True)
class ColumnProfiles:
    """Both sides of a column, with histograms over the same bins, and where those begin and end."""

    a: Profile | None
    b: Profile | None
    measures: str
    axis: tuple[str, str] = ("", "")


def profiles(
    a: Recording, b: Recording, progress: Progress | None = None
) -> dict[str, ColumnProfiles]:
    """Read both sides once more and count values (or lengths) in bins."""
    facts = [_facts(side) for side in (a, b)]
    names = list(dict.fromkeys([*a.names, *b.names]))
    edges = {name: _edges([side[name] for side in facts if name in side]) for name in names}
    bins = [_count(side, edges, progress) for side in (a, b)]
    by_name = {}
    for name in names:
        both = [
            _profile(side.get(name), counts.get(name))
            for side, counts in zip(facts, bins, strict=True)
        ]
        kinds = {kind for side in facts if name in side for kind in side[name]["kinds"]}
        measures = "values" if kinds == {"number"} else "lengths"
        if edges[name] is None:
            by_name[name] = ColumnProfiles(both[0], both[1], "")
        else:
            axis = _axis([side[name] for side in facts if name in side])
            by_name[name] = ColumnProfiles(both[0], both[1], measures, axis)
    return by_name


def _axis(facts: list[dict[str, Any]]) -> tuple[str, str]:
    """Return the least and the greatest value of both sides, in words; none of dates beside numbers."""
    given = [each for each in facts if each["min"] is not None and each["max"] is not None]
    if len({each["dtypes"][0].startswith(("datetime64", "timedelta64")) for each in given}) > 1:
        return "", ""
    least = min(given, key=lambda each: float(each["min"]))
    greatest = max(given, key=lambda each: float(each["max"]))
    return (
        _bound(least["min"], least["dtypes"][0]),
        _bound(greatest["max"], greatest["dtypes"][0]),
    )


def _facts(side: Recording) -> dict[str, dict[str, Any]]:
    """Put together what the manifests of all ranks say of each column."""
    by_name: dict[str, dict[str, Any]] = {}
    for manifest in side.manifests:
        for column in manifest["columns"]:
            known = by_name.setdefault(column["name"], dict(column))
            if known["name"] in by_name and known is not column and manifest is not side.manifest:
                known["nulls"] += column["nulls"]
                known["nans"] += column["nans"]
                for key, pick in (("min", min), ("max", max)):
                    given = [v for v in (known[key], column[key]) if v is not None]
                    known[key] = pick(given) if given else None
                known["dtypes"] = list(dict.fromkeys(known["dtypes"] + column["dtypes"]))
                known["kinds"] = list(dict.fromkeys(known["kinds"] + column["kinds"]))
    return by_name


def _edges(facts: list[dict[str, Any]]) -> Array | None:
    least = [f["min"] for f in facts if f["min"] is not None]
    greatest = [f["max"] for f in facts if f["max"] is not None]
    if not least or not greatest:
        return None
    low, high = float(min(least)), float(max(greatest))
    if not np.isfinite(high - low):
        return None
    whole = all(isinstance(v, int) for v in [*least, *greatest])
    if low == high:
        low, high = low - 0.5, high + 0.5
    elif whole and high - low < BINS:
        return np.arange(low - 0.5, high + 1)
    with np.errstate(over="ignore"):  # at the last edge, in whose place NumPy then puts the end
        return np.linspace(low, high, BINS + 1)


def _count(
    side: Recording, edges: dict[str, Array | None], progress: Progress | None
) -> dict[str, Array]:
    by_name: dict[str, Array] = {}
    for block in side.blocks(BLOCK_ROWS):
        for name, cells in block.columns.items():
            where = edges[name]
            if where is None:
                continue
            values = _measured(cells)
            inside = values[np.isfinite(values)] if values.dtype.kind == "f" else values
            counts = np.histogram(inside.astype(np.float64), where)[0]
            by_name[name] = by_name[name] + counts if name in by_name else counts
        if progress:
            progress("drawing", block.start + block.rows, side.rows)
    return by_name


def _measured(cells: Cells) -> Array:
    if cells.kind == "number":
        kind = cells.values.dtype.kind
        if kind in "mM":
            given = cells.values[~np.isnat(cells.values)]
            return np.asarray(given.view(np.int64).reshape(-1))
        return np.asarray(cells.values.reshape(-1)) if kind in "biuf" else np.zeros(0)
    if cells.kind == "ragged":
        return np.array([v.size for v in cells.values if v is not None], np.int64)
    if cells.kind == "object":
        return np.zeros(0)
    length = pc.utf8_length if cells.kind == "text" else pc.binary_length
    return np.asarray(length(cells.values).drop_null().to_numpy(zero_copy_only=False))


def _profile(facts: dict[str, Any] | None, bins: Array | None) -> Profile | None:
    if facts is None:
        return None
    shape = "" if not facts["shape"] else str(facts["shape"]).replace("None", "?")
    return Profile(
        "|".join(facts["dtypes"]),
        shape,
        facts["nulls"],
        facts["nans"],
        _bound(facts["min"], facts["dtypes"][0]),
        _bound(facts["max"], facts["dtypes"][0]),
        tuple(int(n) for n in bins) if bins is not None else (),
    )


def _bound(value: Any, dtype: str) -> str:
    if value is None:
        return ""
    if dtype.startswith(("datetime64", "timedelta64")):
        return str(np.int64(value).view(dtype))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
