"""A conversion that fails: nothing is left, and one sentence says what happened and where."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from petastorm_bridge._secrets import masked

from ._errors import MaterializationError
from ._executor import ERROR_MARK
from ._store import Store

__all__ = ["clean_failure"]

# Where the text of a failed job, hundreds of lines of Java and Python, says what happened; the first
# pattern that is found decides, its last place counts.
_TELLING_LINES = (
    f"{re.escape(ERROR_MARK)} (.*)$",
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$",
    r"^Caused by: (\S+: .*)$",
    r"Lost task [^\n]* executor [^)\n]*\): (.*)$",
)


@contextlib.contextmanager
def clean_failure(store: Store, url: str) -> Iterator[None]:
    """Remove the directory when the block fails, and say in a sentence what failed and where."""
    try:
        yield
    except BaseException as error:
        left = ""
        try:
            store.remove_all()
        except Exception as removal:  # noqa: BLE001 - the first error is the one to tell
            left = f" (but it could not be removed: {removal})"
        if not isinstance(error, Exception) or _is_analysis_error(error):
            raise
        raise MaterializationError(
            f"Cannot convert the DataFrame to MDS in {masked(url)}: {masked(_reason(error), url)} "
            f"Nothing was left there{left}."
        ) from error


def _is_analysis_error(error: Exception) -> bool:
    from pyspark.errors import AnalysisException

    return isinstance(error, AnalysisException)


def _reason(error: Exception) -> str:
    """Return the one sentence of an error that a person wants to read."""
    if isinstance(error, OSError):
        text = f"{error.strerror}: {error.filename}" if error.strerror else str(error)
        return (
            f"{text.rstrip('.')}. Point the Spark conf petastorm.spark.converter.parentCacheDirUrl "
            "at a directory that can be written and has room."
        )
    text = str(error)
    if "No module named 'petastorm_bridge'" in text:
        return (
            "the Spark workers cannot import petastorm_bridge. Install it on the cluster "
            "(on Databricks: %pip install petastorm-bridge), not only on the driver."
        )
    for pattern in _TELLING_LINES:
        found = re.findall(pattern, text, re.MULTILINE)
        if found:
            return f"{found[-1].strip().rstrip('.')}."
    return f"{type(error).__name__}: {text.strip().partition(chr(10))[0].rstrip('.')}."
