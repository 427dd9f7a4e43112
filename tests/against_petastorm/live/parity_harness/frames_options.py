"""The frames of the option matrix."""

from __future__ import annotations

from typing import Any

from parity_harness.frames import builder


@builder
def ten(spark: Any) -> Any:
    return spark.range(0, 10, 1, 1).selectExpr("id", "cast(id as double) as x")


@builder
def ten2(spark: Any) -> Any:
    return spark.range(0, 10, 1, 2).selectExpr("id", "cast(id as double) as x")


@builder
def hundred(spark: Any) -> Any:
    return spark.range(0, 100, 1, 1).selectExpr("id", "cast(id as double) as x")


@builder
def eight8(spark: Any) -> Any:
    return spark.range(0, 8, 1, 8).selectExpr("id", "cast(id as double) as x")


@builder
def sixteen8(spark: Any) -> Any:
    return spark.range(0, 16, 1, 8).selectExpr("id", "cast(id as double) as x")


@builder
def mixed_order(spark: Any) -> Any:
    return spark.range(0, 6, 1, 1).selectExpr(
        "id as z", "cast(id as double) as a", "cast(id as string) as M", "id * 2 as b", "id"
    )


@builder
def mixed_numbers(spark: Any) -> Any:
    return spark.range(0, 6, 1, 1).selectExpr(
        "id as z",
        "cast(id as double) as a",
        "id % 2 = 0 as M",
        "array(id, id + 1) as b",
        "id",
        "cast(id as short) as B9",
    )


@builder
def empty_range(spark: Any) -> Any:
    return spark.range(0)


@builder
def empty_filter(spark: Any) -> Any:
    return spark.range(5).filter("id < 0").selectExpr("id", "cast(id as double) as x")


@builder
def empty_created(spark: Any) -> Any:
    return spark.createDataFrame([], "id bigint, x double")


@builder
def empty_partition(spark: Any) -> Any:
    return spark.range(0, 8, 1, 4).filter("id < 2 or id >= 6").filter("id < 4")


@builder
def single_row(spark: Any) -> Any:
    return spark.range(0, 1, 1, 2)


@builder
def r1000f8(spark: Any) -> Any:
    return spark.range(0, 1000, 1, 8).selectExpr("id", "cast(id as double) as x")


@builder
def r2000(spark: Any) -> Any:
    return spark.range(0, 2000, 1, 2).selectExpr("id", "array_repeat(cast(id as double), 20) as x")


@builder
def r10000f20(spark: Any) -> Any:
    return spark.range(0, 10_000, 1, 20)


@builder
def r10000f1(spark: Any) -> Any:
    return spark.range(0, 10_000, 1, 1)


@builder
def six(spark: Any) -> Any:
    return spark.range(0, 6, 1, 1).selectExpr("id", "cast(id as double) as x")


@builder
def six_four(spark: Any) -> Any:
    return spark.range(0, 6, 1, 1).selectExpr(
        "id", "cast(id as double) as x", "array(id, id) as a", "'ab' as s"
    )


@builder
def six_array(spark: Any) -> Any:
    return spark.range(0, 6, 1, 1).selectExpr("id", "array(id, id) as a")


@builder
def six_nulls(spark: Any) -> Any:
    return spark.range(0, 6, 1, 1).selectExpr(
        "id", "if(id = 2, null, id) as n", "if(id = 2, null, cast(id as double)) as x"
    )


@builder
def six_ragged(spark: Any) -> Any:
    return spark.range(0, 6, 1, 1).selectExpr("id", "sequence(0, id % 3) as a")


@builder
def images(spark: Any) -> Any:
    rows = [(bytearray(range(i, i + 12)), i) for i in range(6)]
    frame = spark.createDataFrame(rows, "content binary, label int")
    return frame.coalesce(1)


def _seen(spark: Any, variant: str) -> Any:
    from parity_harness import columns
    from parity_harness.columns import Column, column
    from parity_harness.frames import from_columns

    chosen = [Column("id", "bigint", tuple(range(columns.ROWS)))]
    for name in columns.ELEMENTS:
        for kind in (name, f"array_{name}"):
            # A null list in a row is an error of its own; here elements are null.
            null = "elemnull" if kind.startswith("array") else "somenull"
            suffix = {"plain": "nonull", "nulls": null, "two": f"{null}_rg1"}[variant]
            made = column(f"{kind}__{suffix}")
            chosen.append(Column(kind, made.ddl, made.values))
    return from_columns(spark, chosen, files=2 if variant == "two" else 1)


@builder
def seen_plain(spark: Any) -> Any:
    return _seen(spark, "plain")


@builder
def seen_nulls(spark: Any) -> Any:
    return _seen(spark, "nulls")


@builder
def seen_two(spark: Any) -> Any:
    return _seen(spark, "two")


NAMES = (
    "a b", "a.b", "_a", "__a", "a#b", "#a", "class", "1a", "é", "a-b", "count", "index", "fields",
    "_fields", "_replace", "", "a,b", "a;b", "a(b)", "a=b", "x" * 200, "self", "cls", "_asdict",
)  # fmt: skip


@builder
def names(spark: Any) -> Any:
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField(name, LongType()) for name in NAMES])
    rows = [tuple(range(i, i + len(NAMES))) for i in range(6)]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), schema)


@builder
def two_names(spark: Any) -> Any:
    return spark.range(0, 3, 1, 1).selectExpr("id as def", "id as x")


@builder
def three_hundred(spark: Any) -> Any:
    return spark.range(0, 3, 1, 1).selectExpr(*(f"id + {i} as c{i}" for i in range(300)))


@builder
def fields(spark: Any) -> Any:
    return spark.range(0, 3, 1, 1).selectExpr(
        "id", "cast(id as int) as i", "cast(id as double) as d", "'x' as s", "id as z"
    )


@builder
def predicates(spark: Any) -> Any:
    return spark.range(0, 8, 1, 2).selectExpr(
        "id",
        "cast(id as double) as d",
        "array(id, id) as a",
        "cast(id as int) as i",
        "id % 2 = 0 as b",
    )


@builder
def seven_floats(spark: Any) -> Any:
    return spark.range(0, 7, 1, 1).selectExpr("cast(id as double) as x", "cast(id as float) as y")
