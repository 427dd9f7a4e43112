"""How Spark is to write Parquet for Petastorm's readers, for the time of a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["writing_settings"]

_MEGABYTE = 1 << 20
_SUMMARY = "parquet.summary.metadata.level"


@contextmanager
def writing_settings(spark: Any, row_group_size_mb: int | None, summary: bool) -> Iterator[None]:
    """Set Parquet's options in the block, then put back what was there.

    Args:
        spark: Spark session, classic or Connect.
        row_group_size_mb: Megabytes of a row group; None leaves Spark's.
        summary: Whether a job writes the footers of all files into one more file.
    """
    # The size of a row group is looked at every so many rows: images are large.
    settings = {
        _SUMMARY: "ALL" if summary else "NONE",
        "parquet.summary.metadata.propagate-errors": "true",
        "parquet.block.size.row.check.min": "3",
        "parquet.row-group.size.row.check.min": "3",
    }
    if row_group_size_mb:
        settings["parquet.block.size"] = str(row_group_size_mb * _MEGABYTE)
    put_back = _applied(spark, settings)
    try:
        yield
    finally:
        put_back()


def _applied(spark: Any, settings: Mapping[str, str]) -> Callable[[], None]:
    """Apply settings; return what puts back those that were there."""
    hadoop = _hadoop_configuration(spark)
    if hadoop is not None:
        get, set_, unset = hadoop.get, hadoop.set, hadoop.unset
    else:
        # Spark Connect: the options of a session go with every job that writes.
        get, set_, unset = _session_value(spark), spark.conf.set, spark.conf.unset
    before = {key: get(key) for key in settings}
    for key, value in settings.items():
        set_(key, value)

    def put_back() -> None:
        for key, value in before.items():
            if value is None:
                unset(key)
            else:
                set_(key, value)

    return put_back


def _session_value(spark: Any) -> Callable[[str], Any]:
    return lambda key: spark.conf.get(key, None)


def _hadoop_configuration(spark: Any) -> Any:
    """Return Hadoop's configuration; None where the session has no Spark context (Spark Connect)."""
    try:
        return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - Spark has no other way
    except Exception:  # noqa: BLE001 - each kind of session refuses in its own way
        return None
