"""The columns of the type matrix: a value for every Spark type, and where its nulls are."""

from __future__ import annotations

import datetime
import decimal
import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ROWS = 6
_NULL_ROW = 2
_HALF = ROWS // 2
_DAY = datetime.timedelta(days=1)
_TINY = struct.unpack("<f", b"\x01\x00\x00\x00")[0]


def _utf8(i: int) -> str:
    return "sé" + "x" * i


def _decimal(digits: str) -> Callable[[int], decimal.Decimal]:
    return lambda i: decimal.Decimal(f"{i}.{digits}")


# Type: (Spark's DDL name, value of row i, six extreme values).
_SCALARS: dict[str, tuple[str, Callable[[int], Any], list[Any]]] = {
    "boolean": ("boolean", lambda i: i % 2 == 0, [True] * 5 + [False]),
    "byte": ("tinyint", lambda i: i - 3, [-128, 127, -1, 0, 1, 64]),
    "short": ("smallint", lambda i: i - 300, [-(2**15), 2**15 - 1, -1, 0, 1, 256]),
    "int": ("int", lambda i: i - 70_000, [-(2**31), 2**31 - 1, -1, 0, 1, 65_536]),
    "long": (
        "bigint",
        lambda i: 2**53 + 1 + i,
        [-(2**63), 2**63 - 1, -1, 0, 2**53 + 1, 2**32],
    ),
    "float": (
        "float",
        lambda i: i + 0.5,
        [float("nan"), float("inf"), float("-inf"), -0.0, _TINY, 3.4028234663852886e38],
    ),
    "double": (
        "double",
        lambda i: i + 0.1,
        [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1.7976931348623157e308],
    ),
    "decimal_10_2": (
        "decimal(10,2)",
        _decimal("25"),
        [decimal.Decimal(v) for v in ("-99999999.99", "99999999.99", "0.00", "-0.01", "1", "2")],
    ),
    "decimal_38_18": (
        "decimal(38,18)",
        _decimal("25"),
        [decimal.Decimal(v) for v in ("9" * 20 + "." + "9" * 18, "-1e-18", "0", "1", "2", "3")],
    ),
    "string": ("string", _utf8, ["", "\0", "a\0b", "é\U0001f600", " ", "x" * 300]),
    "binary": (
        "binary",
        lambda i: bytearray(b"b\0" + bytes([65 + i]) * i + b"\0"),
        [bytearray(v) for v in (b"", b"\0", b"\0\0", b"\xff\xfe", b"a\0b\0", b"x" * 300)],
    ),
    "date": (
        "date",
        lambda i: datetime.date(2020, 1, 1) + i * _DAY,
        [
            datetime.date(*v)
            for v in (
                (1970, 1, 1),
                (1969, 12, 31),
                (2000, 2, 29),
                (1900, 1, 1),
                (2100, 1, 1),
                (1677, 12, 1),
            )
        ],
    ),
    "timestamp": (
        "timestamp",
        lambda i: datetime.datetime(2020, 1, 1, 3, 4, 5, 678901) + i * _DAY,
        [
            datetime.datetime(*v)
            for v in (
                (1970, 1, 1),
                (1969, 12, 31, 23, 59, 59, 999999),
                (2262, 1, 1),
                (1900, 1, 2),
                (2000, 2, 29, 12),
                (2020, 7, 1, 0, 0, 0, 1),
            )
        ],
    ),
    "interval_dt": (
        "interval day to second",
        lambda i: i * _DAY + datetime.timedelta(seconds=1),
        [datetime.timedelta(microseconds=v) for v in (0, 1, -1, 10**15, -(10**15), 86_400_000_000)],
    ),
}
_SCALARS["timestamp_ntz"] = ("timestamp_ntz", *_SCALARS["timestamp"][1:])

ELEMENTS = (
    "boolean byte short int long float double string binary date timestamp timestamp_ntz "
    "decimal_10_2 interval_dt"
).split()
VECTORS = ("ml_dense", "ml_sparse", "ml_mixed", "mllib_dense", "mllib_sparse")
UNSUPPORTED = ("map", "struct", "array_array_float", "array_struct")


@dataclass(frozen=True)
class Column:
    """One column of a frame of six rows.

    Attributes:
        name: `<type>__<variant>`.
        ddl: Spark's name of the type.
        values: The six values.
        nullable: Whether the column may hold nulls.
    """

    name: str
    ddl: str
    values: tuple[Any, ...]
    nullable: bool = True
    element_nullable: bool = True


def _nulls(values: list[Any], rows: Callable[[int], bool]) -> list[Any]:
    return [None if rows(i) else value for i, value in enumerate(values)]


def _null_variants(values: list[Any], *, files: int) -> dict[str, list[Any]]:
    if files == 1:
        return {
            "nonull": values,
            "somenull": _nulls(values, lambda i: i == _NULL_ROW),
            "allnull": _nulls(values, lambda i: True),
            "notnullable": values,
        }
    return {
        "nonull2f": values,
        "allnull_rg1": _nulls(values, lambda i: i < _HALF),
        "allnull_rg2": _nulls(values, lambda i: i >= _HALF),
        "somenull_rg1": _nulls(values, lambda i: i == 1),
        "somenull_rg2": _nulls(values, lambda i: i == _HALF + 1),
    }


def scalar_columns(*, files: int, only: tuple[str, ...] = ()) -> list[Column]:
    """Columns of every scalar type in every variant for that number of files."""
    columns = []
    for name, (ddl, value, extremes) in _SCALARS.items():
        variants = _null_variants([value(i) for i in range(ROWS)], files=files)
        if files == 1:
            variants["extremes"] = extremes
            if name == "string":
                variants["emptystr"] = [""] * ROWS
        columns += [
            Column(f"{name}__{variant}", ddl, tuple(values), variant != "notnullable")
            for variant, values in variants.items()
            if not only or name in only
        ]
    return columns


def _array_variants(value: Callable[[int], Any], *, files: int) -> dict[str, list[Any]]:
    pairs = [[value(i), value(i + 1)] for i in range(ROWS)]
    variants = _null_variants(pairs, files=files)
    if files == 2:
        longer = [[value(i)] * (2 if i < _HALF else 3) for i in range(ROWS)]
        variants["uneq_acrossrg"] = longer
        variants["elemnull_rg1"] = [[None, p[1]] if i == 1 else p for i, p in enumerate(pairs)]
        variants["elemnull_rg2"] = [[None, p[1]] if i == 4 else p for i, p in enumerate(pairs)]
        variants["allempty_rg1"] = [[] if i < _HALF else p for i, p in enumerate(pairs)]
        return variants
    variants["elementsnotnullable"] = pairs
    variants["uneq"] = [[value(i)] * (i % 3 + 1) for i in range(ROWS)]
    variants["someempty"] = [[] if i == _NULL_ROW else p for i, p in enumerate(pairs)]
    variants["allempty"] = [[] for _ in range(ROWS)]
    variants["elemnull"] = [[None, p[1]] if i == _NULL_ROW else p for i, p in enumerate(pairs)]
    variants["elemnull_all"] = [[None, None] for _ in range(ROWS)]
    variants["len1"] = [[value(i)] for i in range(ROWS)]
    variants["rownull_len1"] = [None if i == _NULL_ROW else [value(i)] for i in range(ROWS)]
    return variants


def array_columns(*, files: int, only: tuple[str, ...] = ()) -> list[Column]:
    """Columns of arrays of every scalar type in every variant for that number of files."""
    columns = []
    for name in only or ELEMENTS:
        ddl, value, extremes = _SCALARS[name]
        variants = _array_variants(value, files=files)
        if files == 1:
            variants["extremes"] = [[extreme] * 2 for extreme in extremes]
        columns += [
            Column(
                f"array_{name}__{variant}",
                f"array<{ddl}>",
                tuple(values),
                variant != "notnullable",
                variant not in {"notnullable", "elementsnotnullable"},
            )
            for variant, values in variants.items()
        ]
    return columns


def unsupported_columns(*, files: int) -> list[Column]:
    """Columns of the types that the original leaves out."""
    shapes: dict[str, tuple[str, Callable[[int], Any]]] = {
        "map": ("map<string,int>", lambda i: {"k": i}),
        "struct": ("struct<a:int,b:float>", lambda i: (i, i + 0.5)),
        "array_array_float": ("array<array<float>>", lambda i: [[i + 0.5], [1.0]]),
        "array_struct": ("array<struct<a:int>>", lambda i: [(i,), (i + 1,)]),
    }
    return [
        Column(f"{name}__{variant}", ddl, tuple(values), variant != "notnullable")
        for name, (ddl, value) in shapes.items()
        for variant, values in _null_variants([value(i) for i in range(ROWS)], files=files).items()
    ]


def vector_columns(*, files: int) -> list[Column]:
    """Columns of ML and MLlib vectors; nulls fail to convert and have their own frames."""
    variants: dict[str, Callable[[int], int]]
    variants = (
        {"nonull": lambda i: 3, "notnullable": lambda i: 3, "uneq": lambda i: i % 3 + 1}
        if files == 1
        else {"nonull2f": lambda i: 3, "uneq_acrossrg": lambda i: 2 if i < _HALF else 3}
    )
    return [
        Column(
            f"{name}__{variant}",
            name,
            tuple(vector(name, i, size(i)) for i in range(ROWS)),
            variant != "notnullable",
        )
        for name in VECTORS
        for variant, size in variants.items()
    ]


def vector(name: str, i: int, size: int = 3) -> Any:
    """Make row `i` of a vector column."""
    from pyspark.ml import linalg as ml
    from pyspark.mllib import linalg as mllib

    module: Any = mllib if name.startswith("mllib") else ml
    dense = name.endswith("dense") or (name.endswith("mixed") and i % 2 == 0)
    if dense:
        return module.Vectors.dense([float(i), 0.1, 2.0][:size])
    return module.Vectors.sparse(size, {0: float(i + 1)})


@functools.cache
def column(name: str) -> Column:
    """Find a column by its name."""
    for files in (1, 2):
        for family in (scalar_columns, array_columns, unsupported_columns, vector_columns):
            for candidate in family(files=files):
                if candidate.name == name:
                    return candidate
    raise KeyError(name)
