"""The schema that Petastorm pickles into ``_common_metadata``, read without running a pickle."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import numpy as np

from petastorm_bridge import codecs
from petastorm_bridge._tables.spark_types import STAND_INS, SparkType
from petastorm_bridge.errors import StoredSchemaError
from petastorm_bridge.unischema import Unischema, UnischemaField

from .pickles import Made, Name, items_of, read_pickle

UNISCHEMA_KEY = b"dataset-toolkit.unischema.v1"
"""Under which a pickled schema stands in ``_common_metadata``."""
ROW_GROUPS_KEY = b"dataset-toolkit.num_row_groups_per_file.v1"
"""Under which the number of row groups of each file stands there, in JSON."""

# Petastorm's first names, and ours, which a program may have pickled itself.
PACKAGES = (
    "petastorm",
    "petastorm_bridge",
    "av.experimental.deepdrive.dataset_toolkit",
    "av.ml.dataset_toolkit",
)
_CODECS = (
    "CompressedImageCodec",
    "CompressedNdarrayCodec",
    "DataframeColumnCodec",
    "NdarrayCodec",
    "ScalarCodec",
)
_NUMPY_TYPES = {
    name: name
    for name in (
        "bool_", "bytes_", "cdouble", "clongdouble", "complex64", "complex128", "csingle", "datetime64",
        "double", "float16", "float32", "float64", "half", "int8", "int16", "int32", "int64", "int_",
        "intc", "intp", "longdouble", "longlong", "object_", "short", "single", "str_", "timedelta64",
        "ubyte", "uint", "uint8", "uint16", "uint32", "uint64", "uintc", "uintp", "ulonglong", "ushort",
        "void", "byte",
    )
} | {
    "bool": "bool_",
    "bool8": "bool_",
    "complex_": "complex128",
    "complex256": "clongdouble",
    "float_": "float64",
    "float128": "longdouble",
    "string_": "bytes_",
    "unicode_": "str_",
}  # fmt: skip
_TYPES: dict[tuple[str, str], Any] = {
    **{("numpy", name): getattr(np, today) for name, today in _NUMPY_TYPES.items()},
    **{
        (module, name): type_
        for module in ("builtins", "__builtin__")
        for name, type_ in {
            "bool": bool, "bytes": bytes, "float": float, "int": int, "long": int, "str": str,
            "unicode": str,
        }.items()
    },
    ("decimal", "Decimal"): Decimal,
    ("_decimal", "Decimal"): Decimal,
    ("datetime", "date"): dt.date,
    ("datetime", "datetime"): dt.datetime,
}  # fmt: skip
"""What may stand for the type of a field."""

_COPY = ("copy_reg", "copyreg")
_ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray")
_BUILDING_BLOCKS = ("object", "tuple", "set", "frozenset")
_RESTORE = Name("pyspark.serializers", "_restore")  # how Spark until 3.2 pickles namedtuples

ADMITTED_FOR_VALUES = frozenset(
    {
        *_TYPES,
        *((module, name) for module in _COPY for name in ("_reconstructor", "__newobj__")),
        *((module, "scalar") for module in _ARRAYS),
        *((module, name) for module in ("builtins", "__builtin__") for name in _BUILDING_BLOCKS),
        ("_codecs", "encode"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("numpy", "dtype"),
    }
)
"""What values and collections need of a pickle."""

_ADMITTED = ADMITTED_FOR_VALUES | {
    *((f"{package}.unischema", "Unischema") for package in PACKAGES),
    *((f"{package}.unischema", "UnischemaField") for package in PACKAGES),
    *((f"{package}.codecs", codec) for package in PACKAGES for codec in _CODECS),
    *(("pyspark.sql.types", name) for name in STAND_INS),
    *(("petastorm_bridge._tables.spark_types", name) for name in STAND_INS),
    (_RESTORE.module, _RESTORE.name),
}
_DTYPE = re.compile(r"[biufcSUMmO]\d{0,6}")
_IMAGE_FORMAT = re.compile(r"\.\w{1,16}")
_MAX_AXES = 64


def read_schema(pickled: bytes) -> Unischema:
    """Return the schema that a pickle holds.

    Args:
        pickled: As Petastorm of any version wrote it, under Python 2 or 3.

    Raises:
        StoredSchemaError: It names a class that is no part of a schema (nothing is run), or holds
            no schema, or is damaged.
    """
    return read_pickle(pickled, _ADMITTED, _schema)


def _schema(made: Any) -> Unischema:
    stored = instance(made)
    if stored is None or not is_petastorms(stored[0], "unischema", "Unischema"):
        raise StoredSchemaError("What is stored as the schema is no Unischema.")
    state = attributes(stored[2])
    if "_fields" not in state:
        raise StoredSchemaError("The stored schema has no fields.")
    fields = {text(name): value for name, value in items_of(state["_fields"])}
    return Unischema(text(state.get("_name")), [_field(value) for value in fields.values()])


def instance(value: Any) -> tuple[Name, tuple[Any, ...], Any] | None:
    """Return class, arguments and state of what a pickle makes; None if it makes nothing."""
    if not isinstance(value, Made):
        return None
    made_by, arguments = value.made_by, value.arguments
    if made_by.module in _COPY:
        if not arguments or not isinstance(arguments[0], Name):
            raise StoredSchemaError(f"The stored schema misuses {made_by}.")
        cls, rest = arguments[0], arguments[1:]
        if made_by.name == "_reconstructor":
            inner = rest[1] if len(rest) == 2 else None
            rest = inner if isinstance(inner, tuple) else ()
        return cls, rest, value.state
    return made_by, arguments, value.state


def attributes(state: Any) -> dict[str, Any]:
    """Return the attributes that a state sets, by name; those of None are none."""
    return {} if state is None else {text(name): value for name, value in items_of(state)}


def is_petastorms(name: Name, module: str, cls: str) -> bool:
    return name.name == cls and name.module in {f"{package}.{module}" for package in PACKAGES}


def bytes_of(value: Any) -> bytes | None:
    """Return bytes as any protocol and Python writes them; None for anything else."""
    if isinstance(value, Made):
        if value.made_by == Name("_codecs", "encode") and value.arguments[1:] == ("latin1",):
            value = value.arguments[0]
        elif value.made_by.name == "bytes" and value.arguments == ():
            return b""
    if isinstance(value, str):
        return value.encode("latin-1", "replace")
    return value if isinstance(value, bytes) else None


def numpy_scalar(value: Any) -> Any:
    """Return one of NumPy's numbers or texts that a pickle makes; None for anything else."""
    made = instance(value)
    if made is None or made[0].name != "scalar" or len(made[1]) != 2:
        return None
    dtype, data = instance(made[1][0]), bytes_of(made[1][1])
    if dtype is None or data is None:
        return None
    wanted = numpy_dtype("of a number", *dtype[1:])
    if wanted.hasobject or wanted.itemsize != len(data):
        return None
    return np.frombuffer(data, wanted)[0]


def text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise StoredSchemaError("The stored schema has a name that is no text.")
    return value


def _field(value: Any) -> UnischemaField:
    made = instance(value)
    values: Any = None
    if made is not None and is_petastorms(made[0], "unischema", "UnischemaField"):
        values = made[1]
    elif made is not None and made[0] == _RESTORE and len(made[1]) == 3:
        if made[1][0] != "UnischemaField":
            raise StoredSchemaError("The stored schema has a namedtuple that is no UnischemaField.")
        values = made[1][2]
    if not isinstance(values, tuple) or not 3 <= len(values) <= 5:
        raise StoredSchemaError("The stored schema has a field that is no UnischemaField.")
    name = text(values[0])
    codec = _codec(name, values[3]) if len(values) > 3 else None
    nullable = bool(values[4]) if len(values) > 4 else False
    return UnischemaField(name, _dtype(name, values[1]), _shape(name, values[2]), codec, nullable)


def _dtype(field: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Name) and (value.module, value.name) in _TYPES:
        return _TYPES[value.module, value.name]
    made = instance(value)
    if made is not None and made[0] == Name("numpy", "dtype"):
        return numpy_dtype(field, *made[1:])
    raise StoredSchemaError(f"The stored schema's field {field} has no type that is known.")


def numpy_dtype(field: str, arguments: tuple[Any, ...], state: Any) -> np.dtype[Any]:
    """Return ``numpy.dtype`` of a simple type; the state holds its order of bytes."""
    code = text(arguments[0]) if arguments else ""
    try:
        dtype = np.dtype(code) if _DTYPE.fullmatch(code) else None
    except TypeError:  # of a size that NumPy has not
        dtype = None
    if dtype is None:
        raise StoredSchemaError(f"The stored schema's field {field} has no type that is known.")
    order = text(state[1]) if isinstance(state, tuple) and len(state) > 1 else "="
    return dtype.newbyteorder(">") if order == ">" else dtype


def _shape(field: str, value: Any) -> tuple[int | None, ...]:
    axes = value if isinstance(value, (tuple, list)) else ()
    shape = tuple(_length(axis) for axis in axes[:_MAX_AXES])
    # Some programs store None, or a number, where they mean a single value.
    if len(axes) > _MAX_AXES or any(length is not None and length < 0 for length in shape):
        raise StoredSchemaError(f"The stored schema's field {field} has no shape that is possible.")
    return shape


def _length(value: Any) -> int | None:
    """Return the length of an axis; None for any."""
    if value is None:
        return None
    scalar = numpy_scalar(value)
    if scalar is not None and scalar.dtype.kind in "iu":
        return int(scalar)
    if not isinstance(value, int) or value.bit_length() > 62:
        raise StoredSchemaError("The stored schema has a shape that is not made of numbers.")
    return int(value)


def _codec(field: str, value: Any) -> codecs.DataframeColumnCodec | None:
    if value is None:
        return None
    made = instance(value)
    if made is None or not any(is_petastorms(made[0], "codecs", name) for name in _CODECS):
        raise StoredSchemaError(f"The stored schema's field {field} has a codec that is none.")
    name, state = made[0].name, attributes(made[2])
    # Not made by a call: the images of a dataset may stay unread where there is no OpenCV.
    codec: Any = object.__new__(getattr(codecs, name))
    if name == "ScalarCodec":
        vars(codec).update(_spark_type=_spark_type(state.get("_spark_type")))
    elif name == "CompressedImageCodec":
        image_codec, quality = text(state.get("_image_codec", ".png")), state.get("_quality", 80)
        if not _IMAGE_FORMAT.fullmatch(image_codec) or not isinstance(quality, int):
            raise StoredSchemaError(f"The stored schema's field {field} has no image format.")
        vars(codec).update(_image_codec=image_codec, _quality=quality)
    return codec  # type: ignore[no-any-return]


def _spark_type(value: Any) -> SparkType:
    """Return the stand-in of a Spark type, one and the same wherever the pickle refers to it."""
    made = instance(value)
    if made is None or made[0].name not in STAND_INS:
        raise StoredSchemaError("The stored schema has a scalar codec without a Spark type.")
    if value.understood is None:
        cls, given = STAND_INS[made[0].name], attributes(made[2])
        named = {name: _attribute(given[name]) for name in cls.arguments if name in given}
        value.understood = cls(**named)
    return value.understood  # type: ignore[no-any-return]


def _attribute(value: Any) -> Any:
    """Return one attribute of a Spark type: a number, a text, a type or the fields of a struct."""
    if type(value) is list:
        return [_spark_type(item) for item in value]
    if isinstance(value, Made):
        is_metadata = value.made_by.name == "dict" and not value
        return {} if is_metadata else _spark_type(value)
    if isinstance(value, bytes):
        return text(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise StoredSchemaError("The stored schema has a Spark type with an unknown attribute.")
