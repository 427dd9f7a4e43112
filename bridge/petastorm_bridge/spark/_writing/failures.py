"""A conversion that fails: nothing is left, and one sentence says what happened and where."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from petastorm_bridge.fs_utils import masked
from petastorm_bridge.spark._directory.store import Store
from petastorm_bridge.spark._session import MaterializationError

from .executor import ERROR_MARK

# Where the text of a failed job, hundreds of lines of Java and Python, says what happened; the first
# pattern that is found decides, its last place counts.
_TELLING_LINES = (
    f"{re.escape(ERROR_MARK)} (.*)$",
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$",
    r"^Caused by: (\S+: .*)$",
    r"Lost task [^\n]* executor [^)\n]*\): (.*)$",
)
# How Spark and Spark Connect say that somebody cancelled a job.
_CANCELLED = r"(Job \d+ cancelled[^\n]*|\[?OPERATION_CANCELED\]?[^\n]*)"


@contextlib.contextmanager
def new_directory(
    store: Store, url: str, refusals: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Make the directory; when the block fails, remove it and say what failed and where.

    Args:
        store: Where it is to be.
        url: Its URL, for messages.
        refusals: Exceptions that say everything themselves.

    Raises:
        MaterializationError: Of every exception of the block but refusals, Spark's
            ``AnalysisException`` and those, such as ``KeyboardInterrupt``, that are no
            ``Exception``.
    """
    made = False
    try:
        with store.creating():
            made = True
            yield
    except BaseException as error:
        gone = made and _is_gone(store)
        remains = _remove(store) if made else ""
        if not isinstance(error, Exception) or isinstance(error, refusals):
            raise
        if _is_analysis_error(error):
            raise
        raise MaterializationError(
            f"Cannot convert the DataFrame to MDS in {masked(url)}: {masked(_reason(error, gone), url)} "
            f"Nothing was left there{remains}."
        ) from error


def _is_gone(store: Store) -> bool:
    try:
        return not store.is_there()
    except Exception:  # noqa: BLE001 - a store that cannot be reached tells nothing
        return False


def _remove(store: Store) -> str:
    """Remove the directory; return what to add to "Nothing was left there"."""
    try:
        others = store.remove_ours()
    except Exception as removal:  # noqa: BLE001 - the first error is the one to tell
        return f" (but it could not be removed: {removal})"
    return f" but what others had put there: {', '.join(others)}" if others else ""


def _is_analysis_error(error: Exception) -> bool:
    from pyspark.errors import AnalysisException

    return isinstance(error, AnalysisException)


def _reason(error: Exception, gone: bool) -> str:
    """Return the one sentence of an error that a person wants to read."""
    if gone:
        return (
            "this directory was deleted or moved, or the one above it was, while the shards were "
            "being written."
        )
    if isinstance(error, OSError):
        text = f"{error.strerror}: {error.filename}" if error.strerror else str(error)
        return (
            f"{text.rstrip('.')}. Point the Spark conf petastorm.spark.converter.parentCacheDirUrl "
            "at a directory that can be written and has room."
        )
    text = str(error)
    if cancelled := re.search(_CANCELLED, text):
        return f"Spark cancelled the job: {cancelled[1].strip().rstrip('.')}."
    if "No module named 'petastorm_bridge'" in text:
        return (
            "the Spark workers cannot import petastorm_bridge. Install it on the cluster "
            "(on Databricks: %pip install petastorm-bridge), not only on the driver."
        )
    for pattern in _TELLING_LINES:
        lines = re.findall(pattern, text, re.MULTILINE)
        if lines:
            return f"{lines[-1].strip().rstrip('.')}."
    return f"{type(error).__name__}: {text.strip().partition(chr(10))[0].rstrip('.')}."
