"""What a program gave, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ORIGINAL = "petastorm"
BRIDGE = "petastorm_bridge"


@dataclass(frozen=True, eq=False)
class Tensor:
    """An array of torch, TensorFlow or NumPy."""

    library: str
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray[Any, Any]

    def __repr__(self) -> str:
        return f"{self.library} {self.dtype}{list(self.shape)} {self.data.tolist()!r}"


@dataclass(frozen=True)
class Items:
    """A list, tuple, dictionary or named tuple; `keys` is empty for the first two."""

    container: str
    keys: tuple[str, ...]
    values: tuple[object, ...]


@dataclass(frozen=True)
class Raised:
    """An exception, with the qualified names of its class and its base classes."""

    stage: str
    types: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.types[0]} while {self.stage}: {self.message}"


@dataclass(frozen=True)
class Outcome:
    """What a scenario gave on one package: a described value, or an exception."""

    value: object = None
    raised: Raised | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)


def raised(error: BaseException, stage: str) -> Raised:
    """Describe an exception; the bridge's own classes count as the original's of that name."""
    types = tuple(
        f"{cls.__module__}.{cls.__qualname__}".replace(BRIDGE, ORIGINAL)
        for cls in type(error).__mro__
    )
    return Raised(stage, types, str(error))


def describe(value: object) -> object:
    """Turn what a program returned into `Tensor`, `Items` and plain values."""
    if value is None or isinstance(
        value, bool | int | float | str | bytes | Items | Tensor | Raised
    ):
        return value
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return Tensor("numpy", str(array.dtype), array.shape, array)
    if isinstance(value, Mapping):
        return Items(
            type(value).__name__, tuple(map(str, value)), tuple(map(describe, value.values()))
        )
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Items(f"namedtuple {type(value).__name__}", value._fields, describe_all(value))
    if isinstance(value, list | tuple):
        return Items(type(value).__name__, (), describe_all(value))
    return _describe_foreign(value)


def describe_all(values: Sequence[object]) -> tuple[object, ...]:
    return tuple(describe(value) for value in values)


def _describe_foreign(value: Any) -> object:
    library = type(value).__module__.partition(".")[0]
    if library == "torch" and hasattr(value, "numpy"):
        return Tensor(
            "torch", str(value.dtype).removeprefix("torch."), tuple(value.shape), value.numpy()
        )
    if library == "tensorflow" and hasattr(value, "numpy"):
        return Tensor("tf", value.dtype.name, tuple(value.shape), np.asarray(value.numpy()))
    if library == "tensorflow":  # a TensorSpec
        return str(value)
    raise TypeError(f"a scenario may not return {type(value)}: {value!r}")
