"""How Spark is to write Parquet for Petastorm's readers, for the time of a block."""

from __future__ import annotations

from collections.abc import Iterator
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
    conf = _configuration(spark)
    before = {key: conf.get(key, None) for key in settings}
    try:
        for key, value in settings.items():
            conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                conf.unset(key)
            else:
                conf.set(key, value)


def _configuration(spark: Any) -> Any:
    """Return Hadoop's configuration; of Spark Connect the session's, which goes with every job that writes."""
    try:
        return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - Spark has no other way
    except Exception:  # noqa: BLE001 - each kind of session refuses in its own way
        return spark.conf
