"""What can go wrong while a DataFrame becomes a dataset."""

from __future__ import annotations

import functools
from typing import Any


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
