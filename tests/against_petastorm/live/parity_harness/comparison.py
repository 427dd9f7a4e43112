"""How two outcomes differ."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity_harness.outcome import Items, Outcome, Raised, Tensor, describe_all
from petastorm_bridge.parity._recordings.cells import different_numbers

# An error may come earlier than the original's, while opening instead of iterating; never later,
# and never while converting, where it would take the other columns away as well.
_STAGES = {"iterating": {"opening", "iterating"}}


class Kind(str, enum.Enum):
    """What differs; `Kind` is the vocabulary of the expected differences."""

    OUTCOME = "outcome"  # one raised, the other did not
    ERROR = "error"  # another exception type
    STAGE = "stage"  # raised while converting, opening, iterating or closing
    CONTAINER = "container"  # another container type, or another type name
    LENGTH = "length"  # another number of batches or items
    KEYS = "keys"  # other columns
    KEY_ORDER = "key order"
    DTYPE = "dtype"
    SHAPE = "shape"
    VALUE = "value"


@dataclass(frozen=True)
class Mismatch:
    """One difference, and where in the outcome it is."""

    kind: Kind
    where: str
    original: object
    bridge: object

    def __str__(self) -> str:
        return (
            f"{self.kind.value} at {self.where or 'the top'}:\n"
            f"    petastorm: {_shorten(self.original)}\n    bridge:    {_shorten(self.bridge)}"
        )


def differences(original: Outcome, bridge: Outcome) -> list[Mismatch]:
    """List how the bridge's outcome differs from the original's.

    The bridge may raise a subclass of what the original raises. Messages are not compared: the
    bridge's say more.
    """
    if original.raised and bridge.raised:
        return list(_compare_raised(original.raised, bridge.raised))
    if original.raised or bridge.raised:
        left, right = original.raised or original.value, bridge.raised or bridge.value
        return [Mismatch(Kind.OUTCOME, "", left, right)]
    return list(compare(original.value, bridge.value))


def _compare_raised(original: Raised, bridge: Raised) -> Iterator[Mismatch]:
    wanted = original.types[0]
    # Spark's captured exceptions wrap a Java one; users catch their bases, which Python code
    # raises as well.
    if wanted.startswith("pyspark.errors.exceptions.captured."):
        wanted = wanted.replace(".captured.", ".base.")
    if wanted not in bridge.types:
        yield Mismatch(Kind.ERROR, "", str(original), str(bridge))
    if bridge.stage not in _STAGES.get(original.stage, {original.stage}):
        yield Mismatch(Kind.STAGE, "", str(original), str(bridge))


def compare(original: object, bridge: object, where: str = "") -> Iterator[Mismatch]:
    """Compare two described values, bit for bit (two NaNs are equal whatever their payload)."""
    if isinstance(original, Tensor) and isinstance(bridge, Tensor):
        yield from _compare_tensors(original, bridge, where)
    elif isinstance(original, Items) and isinstance(bridge, Items):
        yield from _compare_items(original, bridge, where)
    elif type(original) is not type(bridge):
        yield Mismatch(Kind.CONTAINER, where, original, bridge)
    elif original != bridge and not (original != original and bridge != bridge):  # noqa: PLR0124
        yield Mismatch(Kind.VALUE, where, original, bridge)


def _compare_tensors(original: Tensor, bridge: Tensor, where: str) -> Iterator[Mismatch]:
    if original.library != bridge.library:
        yield Mismatch(Kind.CONTAINER, where, original, bridge)
    elif original.dtype != bridge.dtype:
        yield Mismatch(Kind.DTYPE, where, original, bridge)
    elif original.shape != bridge.shape:
        yield Mismatch(Kind.SHAPE, where, original, bridge)
    elif not same_bits(original.data, bridge.data):
        yield Mismatch(Kind.VALUE, where, original, bridge)


def _compare_items(original: Items, bridge: Items, where: str) -> Iterator[Mismatch]:
    if original.container != bridge.container:
        yield Mismatch(Kind.CONTAINER, where, original.container, bridge.container)
    if sorted(original.keys) != sorted(bridge.keys):
        yield Mismatch(Kind.KEYS, where, original.keys, bridge.keys)
        return
    if original.keys != bridge.keys:
        yield Mismatch(Kind.KEY_ORDER, where, original.keys, bridge.keys)
    if len(original.values) != len(bridge.values):
        yield Mismatch(Kind.LENGTH, where, original, bridge)
        return
    for index, value in enumerate(original.values):
        name = original.keys[index] if original.keys else index
        other = bridge.keys.index(str(name)) if original.keys else index
        yield from compare(value, bridge.values[other], f"{where}[{name!r}]")


def same_bits(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    """Say whether two arrays of one dtype and shape hold the same bits, any NaN equal to any.

    Numbers are compared by the comparer that users have, so that both know the same equality.
    """
    if left.dtype.kind in "OSU":
        return bool(np.array_equal(left, right))
    differ = different_numbers(left, right)
    if left.dtype.kind in "fc":
        differ &= ~(np.isnan(left) & np.isnan(right))
    return not differ.any()


def as_compared(outcome: Outcome, *, order: bool) -> Outcome:
    """Give the outcome itself, or without the order of its rows if that means nothing."""
    return outcome if order else replace(outcome, value=as_rows(outcome.value))


def as_rows(value: object) -> object:
    """Forget order: the sizes of the batches, and each batch list's rows sorted by their bytes.

    Applies to every list of batches (of dictionaries or named tuples of tensors) inside `value`.
    """
    if not isinstance(value, Items):
        return value
    if not value.keys and value.values and all(map(_is_batch, value.values)):
        return _sorted_rows([batch for batch in value.values if isinstance(batch, Items)])
    return Items(value.container, value.keys, tuple(map(as_rows, value.values)))


def _is_batch(value: object) -> bool:
    return isinstance(value, Items) and all(
        isinstance(item, Tensor) and item.shape for item in value.values
    )


def _sorted_rows(batches: list[Items]) -> Items:
    first = batches[0]
    names = tuple(sorted(first.keys))
    if any(batch.keys != first.keys for batch in batches):
        raise AssertionError("the batches of one loader have different columns")
    columns = []
    for name in names:
        tensors = [batch.values[batch.keys.index(name)] for batch in batches]
        columns.append([tensor for tensor in tensors if isinstance(tensor, Tensor)])
    rows = sorted(
        tuple((t.dtype, t.shape[1:], _row_bytes(t.data[i])) for t in tensors)
        for tensors in zip(*columns, strict=True)
        for i in range(tensors[0].shape[0])
    )
    sizes = tuple(tensors[0].shape[0] for tensors in zip(*columns, strict=True))
    return Items(
        "rows",
        ("container", "keys", "sizes", "rows"),
        (first.container, str(first.keys), str(sizes), describe_all([str(row) for row in rows])),
    )


def _row_bytes(value: Any) -> str:
    array = np.asarray(value)
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.nan, array).astype(array.dtype)
    return repr(array.tolist()) if array.dtype.kind == "O" else array.tobytes().hex()


def _shorten(value: object, limit: int = 400) -> str:
    text = str(value) if isinstance(value, Raised) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
