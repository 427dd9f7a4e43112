"""The API of Petastorm's Spark converter and readers, on MDS shards.

``import petastorm_bridge as petastorm`` or a prefix swap in the import lines is all that old code
needs. Importing this package loads neither torch, TensorFlow, pyspark, streaming nor petastorm.
"""

from __future__ import annotations

import typing as _typing
from importlib import import_module as _import_module

from ._tables.missing import MISSING as _MISSING
from ._tables.missing import extend_path as _extend_path
from ._tables.missing import sentence as _sentence
from .errors import NoDataAvailableError
from .transform import TransformSpec

if _typing.TYPE_CHECKING:
    from .reader import make_batch_reader, make_reader

__all__ = [
    "NoDataAvailableError",
    "TransformSpec",
    "__version__",
    "make_batch_reader",
    "make_reader",
]

__version__ = "0.1.0"

__path__ = _extend_path(__path__)

# What `import petastorm` has loaded as a side effect, so that programs reach it by attribute.
_SUBMODULES = frozenset(
    {"cache", "etl", "fs_utils", "ngram", "predicates", "reader", "selectors", "unischema", "utils"}
)


def __getattr__(name: str) -> _typing.Any:
    # These need pyarrow.parquet and pandas: only when asked for.
    if name in {"make_batch_reader", "make_reader"}:
        return getattr(_import_module(f"{__name__}.reader"), name)
    if name in _SUBMODULES:
        return _import_module(f"{__name__}.{name}")
    # No ImportError: `hasattr` and `getattr` with a default have to go on working.
    if name in _MISSING:
        raise AttributeError(_sentence(name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    hidden = {"annotations"}
    loaded = {name for name in globals() if name.startswith("__") or not name.startswith("_")}
    return sorted(loaded - hidden | {*__all__, *_SUBMODULES})
