"""The Spark session, without a hard dependency on pyspark and its JVM-only corners; the logger."""

from __future__ import annotations

import logging
import sys
from typing import Any

from petastorm_bridge.mds.errors import missing_extra

# Called as a user who swapped the prefix would look for it.
logger = logging.getLogger("petastorm_bridge.spark.spark_dataset_converter")


def refuse_on_executor() -> None:
    """Raise if this code runs inside a Spark task.

    Raises:
        RuntimeError: Petastorm's type and text.
    """
    if is_on_executor():
        raise RuntimeError("_get_spark_session should not be invoked from executor side.")


def is_on_executor() -> bool:
    """Tell whether this code runs inside a Spark task."""
    if sys.modules.get("pyspark") is None:
        return False
    from pyspark.taskcontext import TaskContext

    return TaskContext.get() is not None


def spark_session() -> Any:
    """Return the active Spark session, creating one if there is none; driver side only.

    Raises:
        RuntimeError: Called inside a Spark task.
        ImportError: No pyspark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise missing_extra("pyspark", "spark") from error
    refuse_on_executor()
    return SparkSession.builder.getOrCreate()


def conf_value(session: Any, key: str) -> str | None:
    """Return a session configuration value, None if it is unset.

    Serverless compute refuses to look up keys it does not know, default or not.
    """
    try:
        value = session.conf.get(key, None)
    except Exception as error:
        if "CONFIG_NOT_AVAILABLE" not in str(error):
            raise
        return None
    return None if value is None else str(value)


def is_local_mode(session: Any) -> bool:
    """Return whether Spark runs inside the driver's process (``local``, ``local[4]``)."""
    master = conf_value(session, "spark.master") or ""
    return master.strip().lower().startswith("local")


def application_id(session: Any) -> str:
    """Return the Spark application's id, for people who look at leftover directories."""
    return conf_value(session, "spark.app.id") or "unknown"
