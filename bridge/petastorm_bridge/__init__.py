"""The API of Petastorm's Spark converter and readers, on MDS shards.

``import petastorm_bridge as petastorm`` or a prefix swap in the import lines is all that old code
needs. Importing this package loads neither torch, TensorFlow, pyspark, streaming nor petastorm.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import NoDataAvailableError
from .transform import TransformSpec

if TYPE_CHECKING:
    from .reader import make_batch_reader

__all__ = ["NoDataAvailableError", "TransformSpec", "__version__", "make_batch_reader"]

__version__ = "0.1.0"

# What `import petastorm` has loaded as a side effect, so that programs reach it by attribute.
_SUBMODULES = frozenset({"fs_utils", "predicates", "reader", "unischema"})


def __getattr__(name: str) -> Any:
    if name == "make_batch_reader":  # needs pyarrow.parquet and pandas: only when asked for
        from .reader import make_batch_reader

        return make_batch_reader
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name == "make_reader":
        raise AttributeError(
            "petastorm_bridge does not offer make_reader: it reads datasets written with "
            "Petastorm's own codecs (materialize_dataset). For a plain Parquet store or a "
            "converter's files use make_batch_reader."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
