"""Outcomes as JSON: small, readable in a diff, and exact.

Exact means that comparing with what comes back gives what comparing with the outcome itself gives:
numbers keep their bits, except that one NaN stands for all. Messages of exceptions and warnings
are left out; they are never compared, and hold paths and addresses of one run.

| outcome | JSON |
|---|---|
| None, a truth value, a number, a text | itself |
| bytes | `{"$bytes": "<base64>"}` |
| a list or tuple | `{"list": [...]}` |
| a dictionary or named tuple | `{"dict": {...}}`, `{"namedtuple row": {...}}` |
| an array | `{"$torch float32 [2, 3]": [...]}`; a long one is compressed |
| an exception | `{"$raised": ["<stage>", "<class>"]}`; base classes are stored once for all |
"""

from __future__ import annotations

import base64
import json
import lzma
import re
from typing import Any

import numpy as np

from parity_harness.outcome import Items, Outcome, Raised, Tensor

# Longer arrays are compressed; a list of more numbers tells a reader nothing either.
_LONGEST_LIST = 64
_ARRAY = re.compile(r"\$(?P<library>\w+) (?P<dtype>\S+) (?P<shape>\[.*?\])(?: as (?P<kept>\S+))?")


class NotStorableError(TypeError):
    """An outcome holds something that has no stored form; its scenario always runs live."""


def to_json(outcome: Outcome, bases: dict[str, list[str]]) -> Any:
    """Give the stored form of an outcome.

    Args:
        outcome: What the original gave.
        bases: Exception class → it and its base classes, in order; new ones are added.

    Raises:
        NotStorableError: It holds a value of another type than those above.
    """
    if outcome.raised is None:
        return _pack(outcome.value)
    first, *_ = outcome.raised.types
    known = bases.setdefault(first, list(outcome.raised.types))
    if known != list(outcome.raised.types):
        raise NotStorableError(f"there are two classes called {first}")
    return {"$raised": [outcome.raised.stage, first]}


def from_json(stored: Any, bases: dict[str, list[str]]) -> Outcome:
    """Give the outcome of a stored form."""
    if isinstance(stored, dict) and "$raised" in stored:
        stage, first = stored["$raised"]
        return Outcome(raised=Raised(stage, tuple(bases[first]), "(its message is not stored)"))
    return Outcome(value=_unpack(stored))


def _pack(value: object) -> Any:
    if isinstance(value, Items):
        if not value.keys:
            return {value.container: [_pack(item) for item in value.values]}
        items = {key: _pack(item) for key, item in zip(value.keys, value.values, strict=True)}
        if len(items) != len(value.keys):
            raise NotStorableError(f"a key occurs twice: {value.keys}")
        return {value.container: items}
    if isinstance(value, Tensor):
        return _pack_array(value)
    if value is None or type(value) in {bool, int, float, str}:
        return value
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    raise NotStorableError(f"{type(value)} has no stored form: {value!r}")


def _unpack(stored: Any) -> object:
    if not isinstance(stored, dict):
        return stored
    ((tag, value),) = stored.items()
    if tag == "$bytes":
        return base64.b64decode(value)
    if tag.startswith("$"):
        return _unpack_array(tag, value)
    keys, values = (tuple(value), value.values()) if isinstance(value, dict) else ((), value)
    return Items(tag, keys, tuple(map(_unpack, values)))


def _pack_array(tensor: Tensor) -> Any:
    data = tensor.data
    if data.shape != tensor.shape:
        raise NotStorableError(f"an array of shape {data.shape} is said to have {tensor.shape}")
    tag = f"${tensor.library} {tensor.dtype} {list(tensor.shape)}"
    if not _names(tensor.dtype, data.dtype):
        tag += f" as {data.dtype.str}"
    if data.dtype.kind == "O":
        return {tag: [_pack(item) for item in data.ravel().tolist()]}
    if data.dtype.kind in "mM":
        data = data.view(np.int64)
    elif data.dtype.kind not in "biufU":
        raise NotStorableError(f"an array of {data.dtype} has no stored form")
    if data.size <= _LONGEST_LIST or data.dtype.kind == "U":
        return {tag: data.ravel().tolist()}
    return {tag: base64.b64encode(_compress(data)).decode()}


def _unpack_array(tag: str, stored: Any) -> Tensor:
    found = _ARRAY.fullmatch(tag)
    assert found is not None, f"{tag!r} names no array"
    shape = tuple(json.loads(found["shape"]))
    dtype = np.dtype(found["kept"] or found["dtype"])
    if dtype.kind == "O":
        data = np.empty(len(stored), object)
        for index, item in enumerate(stored):
            data[index] = _unpack(item)
    else:
        flat = np.dtype(np.int64) if dtype.kind in "mM" else dtype
        data = _decompress(stored, flat) if isinstance(stored, str) else np.array(stored, flat)
        data = data.view(dtype)
    return Tensor(found["library"], found["dtype"], shape, data.reshape(shape))


def _names(name: str, dtype: np.dtype[Any]) -> bool:
    """Whether a name, which may be torch's or TensorFlow's, is NumPy's name of that dtype."""
    try:
        return np.dtype(name) == dtype
    except TypeError:
        return False


def _filters(itemsize: int) -> list[dict[str, int]]:
    """Ids mostly grow by one: their differences compress to almost nothing."""
    return [{"id": lzma.FILTER_DELTA, "dist": itemsize}, {"id": lzma.FILTER_LZMA2, "preset": 9}]


def _compress(data: np.ndarray[Any, Any]) -> bytes:
    filters = _filters(data.dtype.itemsize)
    return lzma.compress(np.ascontiguousarray(data).tobytes(), lzma.FORMAT_RAW, filters=filters)


def _decompress(stored: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    filters = _filters(dtype.itemsize)
    raw = lzma.decompress(base64.b64decode(stored), lzma.FORMAT_RAW, filters=filters)
    return np.frombuffer(raw, dtype)
