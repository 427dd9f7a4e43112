"""What a comparison asks for: how exact, and which differences are allowed by name."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from petastorm_bridge._tables.differences import DIFFERENCES
from petastorm_bridge.parity._recordings.cells import Tolerance
from petastorm_bridge.parity._recordings.manifest import CannotCompareError


class Effect(str, enum.Enum):
    """What an allowed difference does to the batches."""

    ORDER = "the rows come in another order"
    LOST_IN_A = "the first side lacks rows"
    EXTRA_IN_A = "the first side repeats rows"
    SHARDS = "the rows are shared out among the ranks in another way"
    KEY_ORDER = "the columns come in another order"
    DTYPES = "a number's dtype differs; values are compared in the wider one"
    COLUMNS_IN_B = "the second side has further columns"
    TRAILING_NULS = "strings differ in NUL characters at their end"
    ROUNDED_LONGS = "64-bit integers are rounded to doubles"
    PADDING = "a StreamingDataset repeats rows to give every rank as many"


PADDING = "streaming-padding"

# Known differences that can be seen in batches (the others are about errors, paths and the cache).
ALLOWANCES: Mapping[str, Effect] = {
    "no-lost-rows": Effect.LOST_IN_A,
    "reiteration-starts-clean": Effect.EXTRA_IN_A,
    "partition-order": Effect.ORDER,
    "seed-zero": Effect.ORDER,
    "seed-governs-all": Effect.ORDER,
    "epochs-shuffled-anew": Effect.ORDER,
    "row-permutations-differ": Effect.ORDER,
    "shuffle-buffer-per-epoch": Effect.ORDER,
    "equal-shards": Effect.SHARDS,
    "table-order": Effect.KEY_ORDER,
    "one-dtype-per-column": Effect.DTYPES,
    "predicate-keeps-dtypes": Effect.DTYPES,
    "parquet-one-dtype": Effect.DTYPES,
    "parquet-more-types": Effect.COLUMNS_IN_B,
    "trailing-nuls": Effect.TRAILING_NULS,
    "tf-long-nulls-exact": Effect.ROUNDED_LONGS,
    PADDING: Effect.PADDING,
}


@dataclass(frozen=True)
class Rules:
    """How to compare.

    Attributes:
        order: ``exact``, or ``shuffled`` for rows in any order.
        batches: ``exact``, or ``any`` if batches may be cut at other rows.
        shards: ``exact`` if every rank must have the same rows, ``union`` if all of them together.
        nan: ``exact`` if NaNs must have the same bits, ``any`` if one is as good as another.
        containers: ``exact`` if dicts, tuples, torch tensors and arrays must not be interchanged.
        tolerances: By dtype (``float32``; ``float`` stands for all floating-point ones). Dtypes
            that are not named are compared bit for bit.
        allow: Names of known differences that do not count.
        ignore: Columns that are not compared.
        key: Columns that tell which row is which in shuffled rows; by default, and where one of them
            cannot be compared, those whose values agree as a whole.

    Raises:
        CannotCompareError: A value or name is unknown.
    """

    order: Literal["exact", "shuffled"] = "exact"
    batches: Literal["exact", "any"] = "exact"
    shards: Literal["exact", "union"] = "exact"
    nan: Literal["exact", "any"] = "exact"
    containers: Literal["exact", "any"] = "any"
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    allow: Sequence[str] = ()
    ignore: Sequence[str] = ()
    key: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, annotation in get_type_hints(Rules).items():
            choices = get_args(annotation) if get_origin(annotation) is Literal else ()
            if choices and getattr(self, name) not in choices:
                raise CannotCompareError(
                    f"{name} is {getattr(self, name)!r}; it can be {' or '.join(choices)}"
                )
        for name in self.allow:
            _check_allowance(name)
        for name in self.tolerances:
            if name != "float" and not _is_floating(name):
                raise CannotCompareError(
                    f"no tolerance for {name!r}: only floating-point dtypes can have one "
                    "(float16, float32, float64, or float for all)"
                )

    def tolerance(self, dtype: str) -> Tolerance | None:
        """Return the tolerance for a dtype; None asks for the same bits."""
        if not _is_floating(dtype):
            return None
        return self.tolerances.get(dtype, self.tolerances.get("float"))

    def allows(self, effect: Effect) -> str | None:
        """Return the name of the allowed difference that has this effect, if there is one."""
        return next((name for name in self.allow if ALLOWANCES[name] is effect), None)

    def to_json(self) -> dict[str, Any]:
        """Return the rules as plain data."""
        data = asdict(self)
        data["tolerances"] = {name: asdict(t) for name, t in self.tolerances.items()}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}


def _is_floating(dtype: str) -> bool:
    try:
        return np.dtype(dtype).kind == "f"
    except (TypeError, ValueError):
        return False


def _check_allowance(name: str) -> None:
    if name in ALLOWANCES:
        return
    if name in {difference.name for difference in DIFFERENCES}:
        raise CannotCompareError(
            f"the difference {name!r} is not one of batches, so it cannot be allowed here. "
            f"These can: {', '.join(sorted(ALLOWANCES))}"
        )
    near = difflib.get_close_matches(name, ALLOWANCES, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(ALLOWANCES))}"
    raise CannotCompareError(f"no known difference is called {name!r}; {hint}")
