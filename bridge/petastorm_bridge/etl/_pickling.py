"""Schemas and indexes pickled as Petastorm pickles them, so that the original reads them.

The classes here have the names and the state of the original's and nothing else. What is pickled of them
names this module; the names in the pickle, which are text of their own, are then exchanged.
"""

from __future__ import annotations

import pickle
import pickletools
import warnings
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np

from petastorm_bridge import unischema
from petastorm_bridge._tables.spark_types import STAND_INS
from petastorm_bridge.errors import BridgeWarning

__all__ = ["pickled_indexes", "pickled_schema"]

# The last protocol whose names are lines of text, and which has bytes.
_PROTOCOL = 3
# What the original's schemas are asked for; fields so called are no attributes there either.
_METHODS = {name for name in vars(unischema.Unischema) if not name.startswith("_")}
_CODEC_STATES = {
    "CompressedImageCodec": ("_image_codec", "_quality"),
    "CompressedNdarrayCodec": (),
    "NdarrayCodec": (),
    "ScalarCodec": ("_spark_type",),
}
_INDEX_STATE = ("_index_name", "_column_name", "_index_data")


class Unischema:
    """Stands for ``petastorm.unischema.Unischema``."""

    home = "petastorm.unischema"


class UnischemaField(
    namedtuple(  # noqa: PYI024 - as the original's
        "UnischemaField", ["name", "numpy_dtype", "shape", "codec", "nullable"]
    )
):
    """Stands for ``petastorm.unischema.UnischemaField``."""

    __slots__ = ()
    home = "petastorm.unischema"


def _stand_ins(home: str, names: Any) -> dict[str, type]:
    return {name: type(name, (), {"__module__": __name__, "home": home}) for name in names}


_CODECS = _stand_ins("petastorm.codecs", _CODEC_STATES)
_INDEXERS = _stand_ins(
    "petastorm.etl.rowgroup_indexers", ("SingleFieldIndexer", "FieldNotNullIndexer")
)
_SPARK_TYPES = _stand_ins("pyspark.sql.types", STAND_INS.keys() - {"StructType"})
globals().update({**_CODECS, **_INDEXERS, **_SPARK_TYPES})  # where pickle looks names up


def pickled_schema(schema: Any) -> bytes:
    """Return a schema, ours or the original's, as the original pickles its own; TypeError if it is none."""
    if not hasattr(schema, "fields") or not isinstance(schema.fields, Mapping):
        raise TypeError(f"A Unischema is needed, not a {type(schema).__name__}.")
    fields = OrderedDict((name, _field(field)) for name, field in schema.fields.items())
    stand_in = Unischema()
    attributes = {name: field for name, field in fields.items() if name not in _METHODS}
    vars(stand_in).update(_name=schema._name, _fields=fields, **attributes)  # noqa: SLF001 - public there
    return _renamed(pickle.dumps(stand_in, _PROTOCOL))


def pickled_indexes(indexers: Mapping[str, Any]) -> bytes:
    """Return row group indexes by name as the original pickles its own."""
    return _renamed(pickle.dumps({k: _indexer(v) for k, v in indexers.items()}, _PROTOCOL))


def _field(field: Any) -> UnischemaField:
    shape = tuple(None if size is None else int(size) for size in field.shape)
    codec = _codec(field.name, field.codec)
    return UnischemaField(field.name, field.numpy_dtype, shape, codec, field.nullable)


def _codec(field: str, codec: Any) -> Any:
    name = type(codec).__name__
    if codec is None or name not in _CODECS:
        if codec is not None:
            warnings.warn(
                f"Field {field!r} has a codec of your own, {name}. Readers refuse classes that they do "
                "not know in a stored schema: neither Petastorm nor the bridge will open this dataset.",
                BridgeWarning,
                stacklevel=2,
            )
        return codec
    return _with_state(_CODECS[name], codec, _CODEC_STATES[name])


def _with_state(cls: type, original: Any, names: tuple[str, ...]) -> Any:
    made = cls()
    vars(made).update({name: _value(getattr(original, name)) for name in names})
    return made


def _value(value: Any) -> Any:
    name = type(value).__name__
    if name in _SPARK_TYPES:
        made = _with_state(_SPARK_TYPES[name], value, STAND_INS[name].arguments)
        if name == "DecimalType":
            made.hasPrecisionInfo = True
        return made
    return value


def _indexer(indexer: Any) -> Any:
    name = type(indexer).__name__
    if name not in _INDEXERS:
        warnings.warn(
            f"Index {indexer.index_name!r} is of a class of your own, {name}. Readers refuse classes that they do not "
            "know: the bridge will open none of the dataset's indexes.",
            BridgeWarning,
            stacklevel=4,
        )
        return indexer
    made = _with_state(_INDEXERS[name], indexer, _INDEX_STATE)
    if name == "SingleFieldIndexer":
        groups = {_plain(value): set(held) for value, held in made._index_data.items()}  # noqa: SLF001 - of a stand-in
        made._index_data = defaultdict(set, groups)  # noqa: SLF001 - asked for values that it lacks
    return made


def _plain(value: Any) -> Any:
    """Return NumPy's numbers and texts as Python's, which are equal to them and have the same hash."""
    is_plain = isinstance(value, np.generic) and value.dtype.kind in "biufUS"
    return value.item() if is_plain else value


def _renamed(data: bytes) -> bytes:
    """Return a pickle in which the classes of this module have the names of the original's."""
    # A pickler of one's own could write them at once, but only Python's slow one can be told to, whose table of
    # functions dill changes for the whole process.
    parts = []
    done = 0
    for opcode, argument, position in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            assert isinstance(argument, str)
            assert position is not None
            module, _, name = argument.partition(" ")
            parts.append(data[done:position])
            module, name = _home(module, name)
            parts.append(f"c{module}\n{name}\n".encode())
            done = position + len(f"c{argument}\n")
    return b"".join([*parts, data[done:]])


def _home(module: str, name: str) -> tuple[str, str]:
    if module == __name__:
        return globals()[name].home, name
    if module == "numpy" and name == "bool":  # as NumPy 2 calls it, which older ones do not have
        return module, "bool_"
    return module.replace("numpy._core", "numpy.core"), name
