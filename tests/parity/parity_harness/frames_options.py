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
def r10000f20(spark: Any) -> Any:
    return spark.range(0, 10_000, 1, 20)


@builder
def r10000f1(spark: Any) -> Any:
    return spark.range(0, 10_000, 1, 1)
