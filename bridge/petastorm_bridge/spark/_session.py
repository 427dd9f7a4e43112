"""The Spark session and Spark's exceptions, without a hard dependency on pyspark and its JVM-only corners; the logger."""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

from petastorm_bridge.mds.errors import missing_extra

# Called as a user who swapped the prefix would look for it.
logger = logging.getLogger("petastorm_bridge.spark.spark_dataset_converter")


def refuse_on_executor() -> None:
    """Raise RuntimeError, with Petastorm's text, if this code runs inside a Spark task."""
    if is_on_executor():
        raise RuntimeError("_get_spark_session should not be invoked from executor side.")


def is_on_executor() -> bool:
    """Tell whether this code runs inside a Spark task."""
    if sys.modules.get("pyspark") is None:
        return False
    from pyspark.taskcontext import TaskContext

    return TaskContext.get() is not None


def spark_session() -> Any:
    """Return the active Spark session, or a new one; RuntimeError in a task, ImportError without pyspark."""
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


def application_id(session: Any) -> str:
    """Return the Spark application's id, for people who look at leftover directories."""
    return conf_value(session, "spark.app.id") or "unknown"


class MaterializationError(RuntimeError):
    """A DataFrame could not be written as MDS; nothing of it was left behind.

    Petastorm lets Spark's ``Py4JJavaError`` through, hundreds of lines of Java; here it is the
    ``__cause__``.
    """


class ArgumentTypeError(TypeError, AttributeError):
    """An argument has a type that cannot be used.

    Also an ``AttributeError``, which is what Petastorm raises when it trips over such a value.
    """


def analysis_error(message: str) -> Exception:
    """Return a ``ValueError`` that is also Spark's ``AnalysisException``, as Petastorm raises."""
    return _joined("AnalysisException", ValueError)(message)


def illegal_argument(message: str) -> Exception:
    """Return a ``ValueError`` that is also Spark's ``IllegalArgumentException``."""
    return _joined("IllegalArgumentException", ValueError)(message)


def missing_dataset(message: str) -> Exception:
    """Return a ``FileNotFoundError`` that is also Spark's ``AnalysisException``.

    Petastorm lets Spark look for the path and fail; no Spark is needed for that here.
    """
    return _joined("AnalysisException", FileNotFoundError)(message)


@functools.cache
def _joined(spark_name: str, base: type[Exception]) -> type[Exception]:
    """Return an exception type that derives from ``base`` and, if there is pyspark, Spark's."""
    try:
        from pyspark import errors
    except ImportError:
        return base
    spark_type: Any = getattr(errors, spark_name)

    def init(self: Any, message: str) -> None:
        base.__init__(self, message)  # OSError sets its args here, not in __new__
        spark_type.__init__(self, message)

    def text(self: Any) -> str:
        return str(self.args[0])

    name = f"{base.__name__.removesuffix('Error')}{spark_name}"
    return type(name, (base, spark_type), {"__init__": init, "__str__": text})
