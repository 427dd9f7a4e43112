"""How a bridge's outcome may stand beside the original's when they are meant to differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity_harness import columns
from parity_harness.comparison import compare
from parity_harness.judge import Relation
from parity_harness.outcome import Items, Outcome, Tensor, describe


def loaded(outcome: Outcome) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of a loaded outcome, its batches put together."""
    return _columns(outcome.value)


def _columns(value: object) -> dict[str, np.ndarray[Any, Any]]:
    assert isinstance(value, Items), f"nothing was loaded: {value}"
    batches = value.values[value.keys.index("batches")]
    assert isinstance(batches, Items)
    parts: dict[str, list[np.ndarray[Any, Any]]] = {}
    for batch in batches.values:
        assert isinstance(batch, Items)
        for key, tensor in zip(batch.keys, batch.values, strict=True):
            assert isinstance(tensor, Tensor)
            parts.setdefault(key, []).append(tensor.data)
    return {key: np.concatenate(arrays) for key, arrays in parts.items()}


def _raised(outcome: Outcome, error: str) -> str | None:
    if outcome.raised is None:
        return f"nothing was raised, but {error} was expected"
    names = [name.rpartition(".")[2] for name in outcome.raised.types]
    return None if error in names else f"{error} was expected, not {outcome.raised}"


def gives(value: object) -> Relation:
    """The bridge gives exactly this value; whatever the original does."""

    def holds(original: Outcome, bridge: Outcome) -> str | None:
        if bridge.raised:
            return f"the bridge raised {bridge.raised}"
        found = list(compare(describe(value), bridge.value))
        return f"the bridge gives something else: {found[0]}" if found else None

    return holds


def works(error: str, **wanted: list[Any]) -> Relation:
    """The original raises `error` (`HangError` for a hang), the bridge loads these columns."""

    def holds(original: Outcome, bridge: Outcome) -> str | None:
        if complaint := _raised(original, error):
            return f"petastorm: {complaint}"
        if bridge.raised:
            return f"the bridge raised {bridge.raised}"
        found = loaded(bridge) if wanted else {}
        for name, values in wanted.items():
            if name not in found or found[name].tolist() != values:
                return f"column {name!r} should be {values}, found {found}"
        return None

    return holds


def loads(**wanted: list[Any]) -> Relation:
    """The bridge loads these columns; whatever the original does."""
    return each_loads(wanted)


def each_loads(*wanted: dict[str, list[Any]]) -> Relation:
    """The bridge's loads, one after the other, give these columns in this order."""

    def holds(original: Outcome, bridge: Outcome) -> str | None:
        if not isinstance(bridge.value, Items):
            return f"nothing was loaded: {bridge}"
        several = bridge.value.container == "list"
        values = bridge.value.values if several else (bridge.value,)
        found = [{k: v.tolist() for k, v in _columns(value).items()} for value in values]
        same = [list(one.items()) for one in found] == [list(one.items()) for one in wanted]
        return None if same else f"{found} instead of {list(wanted)}"

    return holds


def item(key: str | int, value: object) -> Relation:
    """One item of what the bridge gives has this value, in the original's it has not."""

    def holds(original: Outcome, bridge: Outcome) -> str | None:
        if not isinstance(bridge.value, Items):
            return f"no items: {bridge}"
        index = bridge.value.keys.index(key) if isinstance(key, str) else key
        found = bridge.value.values[index]
        return None if found == value else f"item {key!r} is {found!r}, not {value!r}"

    return holds


def raises(error: str, original_error: str | None = None) -> Relation:
    """The bridge raises `error`; the original something else, or nothing."""

    def holds(original: Outcome, bridge: Outcome) -> str | None:
        if original_error and (complaint := _raised(original, original_error)):
            return f"petastorm: {complaint}"
        return _raised(bridge, error)

    return holds


def one_dtype(original: Outcome, bridge: Outcome) -> str | None:
    """The bridge's numbers are float64 in every batch; their values are the original's.

    `InMemBatchedDataLoader` of the original casts NaN to an integer; those values are not compared.
    """
    for name, values in loaded(bridge).items():
        if values.dtype != np.float64:
            return f"{name} is {values.dtype}"
        theirs = loaded(original)[name].astype(np.float64)
        same = (values == theirs) | np.isnan(values)
        if values.shape != theirs.shape or not same.all():
            return f"{name} has other values: {values} instead of {theirs}"
    return None


def exact_longs(name: str) -> Relation:
    """64-bit integers keep their values; a null stays the smallest integer."""

    def flat(value: Any) -> list[int]:
        items = value if isinstance(value, list) else [value]
        return [-(2**63) if item is None else item for item in items]

    def holds(original: Outcome, bridge: Outcome) -> str | None:
        wanted = [item for value in columns.column(name).values for item in flat(value)]
        found = loaded(bridge)[name].ravel().tolist()
        return None if found == wanted else f"{found} instead of {wanted}"

    return holds


def equal_shards(original: Outcome, bridge: Outcome) -> str | None:
    """The shards hold every row once, and their sizes differ by at most one row."""
    if not isinstance(bridge.value, Items):
        return f"no shards: {bridge}"
    shards = [shard.data for shard in bridge.value.values if isinstance(shard, Tensor)]
    sizes = {len(shard) for shard in shards}
    together = np.sort(np.concatenate(shards))
    if max(sizes) - min(sizes) > 1:
        return f"sizes {sizes}"
    if together.tolist() != list(range(len(together))):
        return "rows are missing or repeated"
    return None


def whole_rows(original: Outcome, bridge: Outcome) -> str | None:
    """In the bridge's batches the columns of a row belong together."""
    found = loaded(bridge)
    whole = (found["id"] == found["d"]) & (found["id"] == found["i"])
    whole &= (found["a"] == found["id"][:, None]).all(axis=1)
    return None if whole.all() else f"mixed rows: {found}"


def same_columns(*, but: tuple[str, ...] = ()) -> Relation:
    """The bridge loads the columns of the original, of another dtype where named in `but`."""

    def holds(original: Outcome, bridge: Outcome) -> str | None:
        theirs, ours = loaded(original), loaded(bridge)
        if list(theirs) != list(ours):
            return f"columns {list(ours)} instead of {list(theirs)}"
        for name, values in ours.items():
            if not np.array_equal(values, theirs[name]):
                return f"{name}: {values} instead of {theirs[name]}"
            integers = values.dtype.kind in "iu" and theirs[name].dtype.kind == "f"
            if values.dtype != theirs[name].dtype and not (name in but and integers):
                return f"{name} is {values.dtype} instead of {theirs[name].dtype}"
        return None

    return holds


def both_raise(original: Outcome, bridge: Outcome) -> str | None:
    """Both raise, for one of several reasons."""
    return None if original.raised and bridge.raised else "one of them raises nothing"


def all_rows_differ(original: Outcome, bridge: Outcome) -> str | None:
    """No two rows of the bridge's matrix are equal, some of the original's are."""
    assert isinstance(original.value, Tensor)
    assert isinstance(bridge.value, Tensor)
    theirs, ours = ({tuple(row) for row in v.data.tolist()} for v in (original.value, bridge.value))
    if len(theirs) == len(original.value.data):
        return "no rows of the original are equal"
    return None if len(ours) == len(bridge.value.data) else "rows are equal"


def same_dtypes_in_every_call(original: Outcome, bridge: Outcome) -> str | None:
    """A transform sees one dtype per column, the one that nulls anywhere ask for."""
    assert isinstance(original.value, Items)
    assert isinstance(bridge.value, Items)
    first, second = (_dtypes(call) for call in bridge.value.values)
    theirs = _dtypes(original.value.values[0])
    if first != theirs:
        return f"the row group with nulls has {first}, not {theirs}"
    return None if first == second else f"dtypes {first}, then {second}"


def _dtypes(call: object) -> dict[str, object]:
    assert isinstance(call, Items)
    facts = zip(call.keys, call.values, strict=True)
    return {name: value.values[0] for name, value in facts if isinstance(value, Items)}


def torch_longs(*values: int) -> Tensor:
    """What a torch tensor of 64-bit integers is described as."""
    return Tensor("torch", "int64", (len(values),), np.array(values))
