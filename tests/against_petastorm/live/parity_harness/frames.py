"""The DataFrames of the scenarios, by name; one object per name and session.

One object, because the original compares plans and rows made by Python are a new plan each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parity_harness import columns
from parity_harness.columns import Column

_BUILDERS: dict[str, Callable[[Any], Any]] = {}
_MADE: dict[tuple[int, str], Any] = {}


def builder(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Register a function of the session under its name."""
    _BUILDERS[function.__name__] = function
    return function


def frame(spark: Any, name: str) -> Any:
    """Give the frame of that name: a registered one, or `only:<column>` with that one column."""
    key = (id(spark), name)
    if key not in _MADE:
        kind, _, rest = name.partition(":")
        _MADE[key] = (
            from_columns(spark, [columns.column(rest)])
            if kind == "only"
            else _BUILDERS[name](spark)
        )
    return _MADE[key]


def from_columns(spark: Any, chosen: Sequence[Column], files: int = 0) -> Any:
    """Make a frame of six rows: one file, or two with three rows each."""
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(c.name, _spark_type(c), c.nullable) for c in chosen])
    rows = list(zip(*(c.values for c in chosen), strict=True))
    if not files:
        two = any(c.name.endswith(("2f", "rg1", "rg2", "acrossrg")) for c in chosen)
        files = 2 if two else 1
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, files), schema)


def _spark_type(column: Column) -> Any:
    from pyspark.ml.linalg import VectorUDT
    from pyspark.mllib.linalg import VectorUDT as OldVectorUDT
    from pyspark.sql.types import ArrayType, _parse_datatype_string

    if column.ddl in columns.VECTORS:
        return OldVectorUDT() if column.ddl.startswith("mllib") else VectorUDT()
    parsed = _parse_datatype_string(column.ddl)
    if isinstance(parsed, ArrayType):
        parsed.containsNull = column.element_nullable
    return parsed


@builder
def scalars1(spark: Any) -> Any:
    return from_columns(spark, columns.scalar_columns(files=1))


@builder
def scalars2(spark: Any) -> Any:
    return from_columns(spark, columns.scalar_columns(files=2))


@builder
def arrays1(spark: Any) -> Any:
    return from_columns(spark, columns.array_columns(files=1))


@builder
def arrays2(spark: Any) -> Any:
    return from_columns(spark, columns.array_columns(files=2))


@builder
def vectors1(spark: Any) -> Any:
    return from_columns(spark, columns.vector_columns(files=1))


@builder
def vectors2(spark: Any) -> Any:
    return from_columns(spark, columns.vector_columns(files=2))


@builder
def unsupported1(spark: Any) -> Any:
    return _with_id(spark, columns.unsupported_columns(files=1))


@builder
def unsupported2(spark: Any) -> Any:
    return _with_id(spark, columns.unsupported_columns(files=2))


def _with_id(spark: Any, chosen: list[Column]) -> Any:
    return from_columns(
        spark, [Column("id", "bigint", tuple(range(columns.ROWS))), *chosen], files=0
    )


@builder
def floats1(spark: Any) -> Any:
    only = ("float", "double")
    return from_columns(
        spark,
        columns.scalar_columns(files=1, only=only) + columns.array_columns(files=1, only=only),
    )


@builder
def floats2(spark: Any) -> Any:
    only = ("float", "double")
    return from_columns(
        spark,
        columns.scalar_columns(files=2, only=only) + columns.array_columns(files=2, only=only),
    )


def _vector_frame(kind: str, variant: str) -> Callable[[Any], Any]:
    def build(spark: Any) -> Any:
        null_row = 2 if variant == "somenull" else -1
        values = tuple(
            None if i == null_row else columns.vector(kind, i) for i in range(columns.ROWS)
        )
        return from_columns(spark, [Column("v", kind, values)])

    return build


for _kind in columns.VECTORS:
    for _variant in ("nonull", "somenull"):
        _BUILDERS[f"{_kind}_{_variant}"] = _vector_frame(_kind, _variant)


@builder
def void(spark: Any) -> Any:
    return spark.sql("select id, null as v from range(3)")


@builder
def ancient_timestamp(spark: Any) -> Any:
    return spark.sql("select id, timestamp'1500-01-01 00:00:00' as v from range(3)").coalesce(1)


@builder
def ancient_date(spark: Any) -> Any:
    return spark.sql("select id, date'1000-01-01' as v from range(3)").coalesce(1)


@builder
def far_timestamp_ntz(spark: Any) -> Any:
    return spark.sql("select id, timestamp_ntz'2500-01-01 00:00:00' as v from range(3)").coalesce(1)
