"""A DataFrame becomes a directory of MDS shards, written by the executors."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from petastorm_bridge.fs_utils import local_path
from petastorm_bridge.mds.dataset import INDEX_NAME, commit_dataset, open_dataset
from petastorm_bridge.mds.schema import SIDECAR_NAME

from . import _session
from ._batching import small_arrow_batches
from ._columns import ColumnPlan, plan_columns
from ._deletion import MARKER_NAME, remove_tree, write_marker
from ._errors import MaterializationError, analysis_error
from ._executor import ERROR_MARK, RESULT_SCHEMA, WriteTask, rewriting, writing
from ._log import logger
from ._progress import showing_progress

__all__ = ["Options", "materialize"]

_VISIBLE_WITHIN_SECONDS = 30.0
_MAX_REWRITE_TASKS = 64


# Where the text of a failed job, hundreds of lines of Java and Python, says what happened; the first
# pattern that is found decides, its last place counts.
_TELLING_LINES = (
    f"{re.escape(ERROR_MARK)} (.*)$",
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$",
    r"^Caused by: (\S+: .*)$",
    r"Lost task [^\n]* executor [^)\n]*\): (.*)$",
)


@dataclass(frozen=True)
class Options:
    """How a DataFrame is written.

    Attributes:
        parent_url: URL of the directory that gets the new directory.
        size_limit: Bytes per shard.
        compression: MDS compression, or None.
        dtype: Floating-point precision, ``'float32'``, ``'float64'`` or None.
    """

    parent_url: str
    size_limit: int
    compression: str | None
    dtype: str | None


def materialize(df: Any, options: Options, directory_url: str) -> None:
    """Write a DataFrame as a dataset, complete or not at all.

    The plan runs once. Every partition writes its own shards, in the partition's order; the driver
    sees their index entries only. The index is put in place last, by a rename.

    Args:
        df: Spark DataFrame, classic or Connect.
        options: How to write it.
        directory_url: Directory to make.

    Raises:
        AnalysisException: Spark cannot plan it, or could not write it as Parquet either.
        MaterializationError: A task failed, or the directory cannot be written.
    """
    if df.isStreaming:
        raise analysis_error(
            "[CALL_ON_STREAMING_DATASET_UNSUPPORTED] A streaming DataFrame cannot be converted. "
            "Write it to a table first and convert that."
        )
    session = _session.session_of(df)
    case_sensitive = _session.conf_value(session, "spark.sql.caseSensitive") == "true"
    plan = plan_columns(df, options.dtype, case_sensitive=case_sensitive)
    directory = _local(directory_url)
    with _clean_failure(directory, directory_url):
        _make_directory(directory)
        rows, infos = _run(session, plan, options, directory)
        _wait_until_visible(directory, infos)
        commit_dataset(
            directory,
            plan.schema,
            infos,
            extra={
                "ignored": [list(column) for column in plan.ignored],
                "spark_schema": df.schema.json(),
                "dtype": options.dtype,
            },
            num_rows=rows,
            map_shards=_Rewriter(session),
        )
        _remove_leftovers(directory)
    logger.info("Materialize dataframe to url %s successfully.", directory_url)


def new_directory_name(session: Any) -> str:
    """Return a unique name that tells people when and by which Spark application it was made."""
    now = dt.datetime.now().astimezone().strftime("%Y%m%d%H%M%S")
    return f"{now}-appid-{_session.application_id(session)}-{uuid.uuid4()}"


def _local(url: str) -> str:
    path = local_path(url)
    if path is None:
        raise MaterializationError(
            f"Cannot write to {url}: shards are written as local files. Use storage that every "
            "machine mounts, such as file:///dbfs/…, dbfs:/…, file:///Volumes/… or an NFS path."
        )
    return path


def _make_directory(directory: str) -> None:
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    os.mkdir(directory)
    write_marker(directory)


def _run(
    session: Any, plan: ColumnPlan, options: Options, directory: str
) -> tuple[int, list[dict[str, Any]]]:
    """Run the job; return the number of rows and the shards' entries in row order."""
    task = WriteTask(
        directory=directory,
        schema=plan.schema.serialize().to_pybytes(),
        size_limit=options.size_limit,
        compression=options.compression,
    )
    written = plan.df.mapInArrow(writing(task), RESULT_SCHEMA)
    with small_arrow_batches(session, plan.schema), showing_progress(directory):
        results = sorted(written.collect(), key=lambda row: row["partition"])
    infos = [info for row in results for info in json.loads(row["shards"])]
    return sum(row["num_rows"] for row in results), infos


class _Rewriter:
    """Runs the engine's rewriting of shards as a Spark job, for ``commit_dataset``."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __call__(self, rewrite: Any, infos: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return ``[rewrite(info) for info in infos]``."""
        todo = list(infos)
        tasks = min(len(todo), _MAX_REWRITE_TASKS)
        positions = self._session.range(0, len(todo), 1, tasks)
        done = positions.mapInArrow(rewriting(rewrite, todo), RESULT_SCHEMA).collect()
        by_position = {row["partition"]: json.loads(row["shards"])[0] for row in done}
        return [by_position[position] for position in range(len(todo))]


def _wait_until_visible(directory: str, infos: list[dict[str, Any]]) -> None:
    """Wait until the driver sees what the executors wrote, which mounted stores may delay."""
    entries = [info["index"]["zip_data"] or info["index"]["raw_data"] for info in infos]
    missing = [(os.path.join(directory, e["basename"]), e["bytes"]) for e in entries]
    end = time.monotonic() + _VISIBLE_WITHIN_SECONDS
    while True:
        missing = [(path, size) for path, size in missing if _size(path) != size]
        if not missing:
            return
        if time.monotonic() > end:
            raise FileNotFoundError(
                f"{len(missing)} shards written by the executors, such as {missing[0][0]}, are not "
                "visible on the driver. The cache directory must be on storage that every machine "
                "mounts"
            )
        time.sleep(0.1)


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path)
    except OSError:
        return None


def _remove_leftovers(directory: str) -> None:
    """Remove what failed and speculative attempts left; nothing reads it, it only takes space."""
    kept = {INDEX_NAME, SIDECAR_NAME, MARKER_NAME}
    kept.update(name for shard in open_dataset(directory).shards for name in shard.basenames)
    for name in os.listdir(directory):
        if name not in kept:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(directory, name))


@contextlib.contextmanager
def _clean_failure(directory: str, url: str) -> Iterator[None]:
    """Remove the directory when the block fails, and say in a sentence what failed and where."""
    try:
        yield
    except BaseException as error:
        left = ""
        try:
            if os.path.lexists(directory):
                remove_tree(directory)
        except OSError as removal:
            left = f" (but it could not be removed: {removal})"
        if not isinstance(error, Exception) or _is_analysis_error(error):
            raise
        raise MaterializationError(
            f"Cannot convert the DataFrame to MDS in {url}: {_reason(error)} "
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
