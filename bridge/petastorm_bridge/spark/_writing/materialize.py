"""A DataFrame becomes a directory of MDS shards, written by the executors."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import json
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from petastorm_bridge._sources.parquet_files import MARKER_NAME
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.commit import Rewrite, commit_dataset
from petastorm_bridge.mds.dataset import MdsDataset
from petastorm_bridge.mds.entry import INDEX_NAME
from petastorm_bridge.mds.schema import SIDECAR_NAME
from petastorm_bridge.spark import _session
from petastorm_bridge.spark._directory.dataset import DatasetFiles
from petastorm_bridge.spark._directory.own_files import is_own_file
from petastorm_bridge.spark._directory.store import Store, store_at
from petastorm_bridge.spark._directory.urls import sub_url
from petastorm_bridge.spark._session import analysis_error, logger

from .columns import ColumnPlan, plan_columns
from .executor import RESULT_SCHEMA, WriteTask, rewrite_shards, write_partition
from .failures import new_directory
from .jobs import run_job, showing_progress, small_arrow_batches

Infos = list[dict[str, Any]]
MapShards = Callable[[Rewrite, Iterable[dict[str, Any]]], Infos]

_VISIBLE_WITHIN_SECONDS = 30.0
_MAX_REWRITE_TASKS = 64


@dataclass(frozen=True)
class Options:
    """How a DataFrame is written.

    Attributes:
        size_limit: Bytes per shard.
        compression: MDS compression, or None.
        dtype: Floating-point precision, ``'float32'``, ``'float64'`` or None.
    """

    size_limit: int
    compression: str | None
    dtype: str | None


class Form:
    """The form of Petastorm's converter: columns keep their types, and nulls get flags beside them.

    Attributes:
        refusals: Exceptions of a form's own that reach the caller as they are.
    """

    refusals: tuple[type[Exception], ...] = ()

    def plan(self, df: Any, dtype: str | None, *, case_sensitive: bool) -> ColumnPlan:
        """Return what to write of a DataFrame; see :func:`plan_columns`."""
        return plan_columns(df, dtype, case_sensitive=case_sensitive)

    def settle(
        self,
        schema: pa.Schema,
        infos: Infos,
        map_shards: MapShards,  # noqa: ARG002 - for forms that change something
    ) -> tuple[pa.Schema, Infos]:
        """Decide on what only the written data tell, before they become a dataset.

        Args:
            schema: What was planned.
            infos: What :meth:`ShardWriter.finish` returned for the shards, in row order.
            map_shards: Rewrites some shards, given their infos; returns the new ones.

        Returns:
            The schema of the dataset and the infos of its shards.
        """
        return schema, infos


_CONVERTER = Form()


def materialize(
    df: Any, options: Options, directory_url: str, form: Form = _CONVERTER
) -> DatasetFiles:
    """Write a DataFrame as a dataset, complete or not at all; return what it holds.

    The plan runs once. Every partition writes its own shards, in the partition's order; the driver
    sees their index entries only. The index is put in place last, by a rename.

    Raises:
        AnalysisException: Spark cannot plan it, or could not write it as Parquet either.
        MaterializationError: A task failed, or the directory cannot be written.
        Exception: The form refuses the columns; see :attr:`Form.refusals`.
    """
    if df.isStreaming:
        raise analysis_error(
            "[CALL_ON_STREAMING_DATASET_UNSUPPORTED] A streaming DataFrame cannot be converted. "
            "Write it to a table first and convert that."
        )
    session = df.sparkSession
    case_sensitive = _session.conf_value(session, "spark.sql.caseSensitive") == "true"
    plan = form.plan(df, options.dtype, case_sensitive=case_sensitive)
    store = store_at(directory_url)
    with new_directory(store, directory_url, form.refusals):
        rows, infos = _run(session, plan, options, directory_url)
        there = _wait_until_visible(store, infos)
        map_shards = functools.partial(_rewritten, session, store)
        schema, infos = form.settle(plan.schema, infos, map_shards)
        with store.writing() as directory:
            dataset = commit_dataset(
                directory,
                schema,
                infos,
                extra={
                    "ignored": [list(column) for column in plan.ignored],
                    "spark_schema": df.schema.json(),
                    "dtype": options.dtype,
                },
                num_rows=rows,
                map_shards=map_shards,
            )
        names = [shard.stored["basename"] for shard in dataset.shards]
        if there != {MARKER_NAME, *names}:
            _remove_leftovers(store, dataset)
    logger.info("Materialize dataframe to url %s successfully.", masked(directory_url))
    return DatasetFiles([sub_url(directory_url, name) for name in names or [INDEX_NAME]], rows)


def new_directory_name(session: Any) -> str:
    """Return a unique name that tells people when and by which Spark application it was made."""
    now = dt.datetime.now().astimezone().strftime("%Y%m%d%H%M%S")
    return f"{now}-appid-{_session.application_id(session)}-{uuid.uuid4()}"


def _run(session: Any, plan: ColumnPlan, options: Options, directory_url: str) -> tuple[int, Infos]:
    """Run the job; return the number of rows and the shards' entries in row order."""
    task = WriteTask(
        store=store_at(directory_url),
        url=directory_url,
        schema=plan.schema.serialize().to_pybytes(),
        size_limit=options.size_limit,
        compression=options.compression,
    )
    written = plan.df.mapInArrow(lambda batches: write_partition(task, batches), RESULT_SCHEMA)
    with small_arrow_batches(session, plan.schema), showing_progress(task.store):
        results = sorted(run_job(session, written.collect), key=lambda row: row["partition"])
    infos = [info for row in results for info in json.loads(row["shards"])]
    return sum(row["num_rows"] for row in results), infos


def _rewritten(
    session: Any, store: Store, rewrite: Rewrite, infos: Iterable[dict[str, Any]]
) -> Infos:
    """Return ``[rewrite(directory, info) for info in infos]``, which executors do."""
    todo = list(infos)
    positions = session.range(0, len(todo), 1, min(len(todo), _MAX_REWRITE_TASKS))
    rewritten = positions.mapInArrow(
        lambda batches: rewrite_shards(store, rewrite, todo, batches), RESULT_SCHEMA
    )
    done = run_job(session, rewritten.collect)
    by_position = {row["partition"]: json.loads(row["shards"])[0] for row in done}
    return [by_position[position] for position in range(len(todo))]


def _wait_until_visible(store: Store, infos: list[dict[str, Any]]) -> set[str]:
    """Wait until the driver sees what the executors wrote, which mounted stores may delay; return all it sees."""
    entries = [info["index"]["zip_data"] or info["index"]["raw_data"] for info in infos]
    end = time.monotonic() + _VISIBLE_WITHIN_SECONDS
    while True:
        sizes = store.sizes()
        missing = [e["basename"] for e in entries if sizes.get(e["basename"]) != e["bytes"]]
        if not missing:
            return {*sizes}
        if time.monotonic() > end:
            raise FileNotFoundError(
                f"{len(missing)} shards written by the executors, such as {missing[0]}, are not "
                "visible on the driver. The cache directory must be on storage that every machine "
                "mounts"
            )
        time.sleep(0.1)


def _remove_leftovers(store: Store, dataset: MdsDataset) -> None:
    """Remove what was rewritten, and what failed and speculative attempts left; nothing reads it."""
    kept = {INDEX_NAME, SIDECAR_NAME, MARKER_NAME}
    kept.update(name for shard in dataset.shards for name in shard.basenames)
    for name in {*store.names()} - kept:
        if is_own_file(name):
            with contextlib.suppress(OSError):
                store.remove(name)
