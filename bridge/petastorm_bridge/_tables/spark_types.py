"""Spark's types by name, for schemas that are read where pyspark is not installed.

A stored schema names classes of ``pyspark.sql.types``. Each has a light stand-in here, with the name
and the attributes of the original and nothing else; :func:`to_pyspark` makes the original of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from petastorm_bridge.mds.errors import missing_extra


class SparkType:
    """A Spark type as a class name and attributes.

    Args:
        attributes: What distinguishes it from others of its class, by the name of the original's
            constructor argument, e.g. ``precision=10, scale=2``.
    """

    arguments: tuple[str, ...] = ()
    """What the original's constructor takes."""

    def __init__(self, **attributes: Any) -> None:
        unknown = set(attributes) - set(self.arguments)
        if unknown:
            raise ValueError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}.")
        self.__dict__.update(attributes)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted(self.__dict__))))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({inner})"


_WITHOUT_ARGUMENTS = (
    "BinaryType", "BooleanType", "ByteType", "DateType", "DoubleType", "FloatType", "IntegerType",
    "LongType", "NullType", "ShortType", "StringType", "TimestampNTZType", "TimestampType",
)  # fmt: skip
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_WITHOUT_ARGUMENTS, ()),
    "ArrayType": ("elementType", "containsNull"),
    "CharType": ("length",),
    "DayTimeIntervalType": ("startField", "endField"),
    "DecimalType": ("precision", "scale"),
    "MapType": ("keyType", "valueType", "valueContainsNull"),
    "StructField": ("name", "dataType", "nullable", "metadata"),
    "StructType": ("fields",),
    "VarcharType": ("length",),
}

STAND_INS: Mapping[str, type[SparkType]] = {
    name: type(name, (SparkType,), {"arguments": arguments, "__module__": __name__})
    for name, arguments in _ARGUMENTS.items()
}
"""The stand-ins by the names of their originals."""

globals().update(STAND_INS)  # so that they can be pickled


def as_type(name: str) -> SparkType:
    """Return a type that needs no arguments: ``as_type("LongType")``."""
    return STAND_INS[name]()


def is_named(spark_type: Any, *names: str) -> bool:
    """Return whether this is an instance of a Spark type so called, pyspark's own or a stand-in."""
    return any(base.__name__ in names for base in type(spark_type).__mro__)


def to_pyspark(spark_type: Any) -> Any:
    """Return pyspark's own type for a stand-in; anything else as it is.

    Raises:
        ImportError: pyspark is not installed.
    """
    if isinstance(spark_type, list):
        return [to_pyspark(each) for each in spark_type]
    if not isinstance(spark_type, SparkType):
        return spark_type
    try:
        import pyspark.sql.types as sql_types
    except ImportError:
        raise missing_extra("pyspark", "spark") from None
    arguments = {name: to_pyspark(value) for name, value in spark_type.__dict__.items()}
    return getattr(sql_types, type(spark_type).__name__)(**arguments)
