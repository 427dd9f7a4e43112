"""Stores the Java classes that Spark loads, so that each later Java starts sooner.

    python tools/class_archive.py PLACE

Runs a small Spark program whose Java writes the classes that it loaded to the file PLACE (a dynamic archive of
class-data sharing, Java 13 and later). A Java that is started with `-XX:SharedArchiveFile=PLACE` maps
them instead of reading and checking them anew; where it finds other classes, it ignores the file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

# As tests start it (tests/conftest.py).
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> None:
    """Writes the archive under another name first, so that a file with the right one is whole."""
    place = Path(sys.argv[1])
    unfinished = place.with_suffix(".unfinished")
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"{QUICK_START} -XX:ArchiveClassesAtExit={unfinished} -Xlog:cds=off -Xlog:cds+dynamic=off"
    )
    with tempfile.TemporaryDirectory() as folder:
        load_classes(Path(folder))
    unfinished.rename(place)


def load_classes(folder: Path) -> None:
    """Does with Spark what programs and tests do, and waits for its Java to end."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    use(spark, folder)
    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no public way to wait for its Java
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def use(spark: SparkSession, folder: Path) -> None:
    """Tables from Python, files, shuffles, functions in Python, a conversion."""
    from petastorm_bridge.spark import make_spark_converter

    rows = [(i, [float(i)] * 4, i % 3, str(i).encode()) for i in range(100)]
    made = spark.createDataFrame(rows, "id int, x array<float>, label long, image binary")
    url = (folder / "table").as_uri()
    made.repartition(2).write.parquet(url)
    table = spark.read.parquet(url)
    table.groupBy("label").count().orderBy("label").toPandas()
    spark.createDataFrame(table.limit(10).toPandas()).join(table, "id").collect()
    table.mapInPandas(same, table.schema).count()
    table.rdd.mapPartitions(len_of).collect()
    spark.range(10).selectExpr("id", "cast(id as double) x", "named_struct('a', id) s").collect()
    with tempfile.TemporaryDirectory() as cache:
        converter = make_spark_converter(table, parent_cache_dir_url=Path(cache).as_uri())
        converter.delete()


def same(frames: Iterable[pd.DataFrame]) -> Iterable[pd.DataFrame]:
    """The frames that come in."""
    yield from frames


def len_of(rows: Iterable[object]) -> Iterable[int]:
    """The number of rows of a partition."""
    yield sum(1 for _ in rows)


if __name__ == "__main__":
    main()
