"""A Parquet store or a dataset of Petastorm's own becomes MDS, without Spark or Java unless asked for.

``petastorm-bridge convert SRC DST`` does the same from a shell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from petastorm_bridge._workers.threads import usable_cores
from petastorm_bridge.mds import codecs
from petastorm_bridge.mds.layout import MAX_SHARD_BYTES
from petastorm_bridge.mds.writer import DEFAULT_SIZE_LIMIT
from petastorm_bridge.reader._rows.schema import UNISCHEMA_KEY, read_schema

from ._columns import UnsupportedColumnsError, plan_columns
from ._places import destination_at, open_parquet, refuse_overlap
from ._run import Conversion, convert
from ._stored_columns import plan_stored_columns
from ._work import ConversionError, Setup

__all__ = ["Conversion", "ConversionError", "UnsupportedColumnsError", "convert_dataset"]


def convert_dataset(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    size_limit: int = DEFAULT_SIZE_LIMIT,
    compression: str | None = None,
    hashes: Sequence[str] | None = None,
    workers: int | None = None,
    verify: bool = True,
    progress: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    spark: Any = None,
) -> Conversion:
    """Convert a dataset to MDS shards that ``streaming.StreamingDataset`` and the bridge read.

    The rows keep their order. The directory is a dataset only when all of it is written, and verified; a
    run that was killed or failed goes on where it ended when it is repeated with the same arguments.

    Args:
        source: Path or URL of a Parquet file or directory, partitioned or not, of a dataset that
            Petastorm's ``materialize_dataset`` wrote, or those of the files of one table.
        destination: The directory to make, on this machine.
        columns: Names of columns to convert; None for all.
        size_limit: Bytes of a shard at most, before compression.
        compression: As ``streaming.MDSWriter`` has it, say ``"zstd:3"``; None for none.
        hashes: Names of hashes to store of every shard; None for the bridge's default.
        workers: Number of processes; None for one per core. Not with ``spark``.
        verify: Read every value back and compare it with the source. Without it nothing is read back but
            the shards of an earlier run, whose sizes and hashes are compared.
        progress: Show progress on stderr.
        storage_options: For the ``fsspec`` filesystem of a source in a store.
        spark: A Spark session whose executors do the work instead, a task for each part. They see source
            and destination under the same names (volumes, DBFS, a network file system) and have the
            bridge installed.

    Raises:
        UnsupportedColumnsError: MDS has no place for some columns.
        FileExistsError: The destination holds something else.
        BlockingIOError: Another process is converting into it.
        ValueError: Source and destination overlap, the source has no rows or no column of a
            name, or another argument cannot be used.
        DatasetError: The source cannot be read.
        ConversionError: What was stored is not what the source holds; there is no dataset then.
        OSError: The destination cannot be written.
        RuntimeError: A worker process has died.
    """
    if spark is not None and workers is not None:
        raise ValueError("workers is for processes of this machine: with Spark its cores decide.")
    workers = usable_cores() if workers is None else workers
    hashes = [codecs.default_hash()] if hashes is None else hashes
    _check_options(size_limit, compression or None, hashes, workers)
    target = destination_at(destination)
    refuse_overlap(source, target)
    opened = open_parquet(source, storage_options)
    pickled = (opened.common_metadata(beside_files=True) or {}).get(UNISCHEMA_KEY)
    if pickled is None:
        plan = plan_columns(opened, columns)
    else:
        plan = plan_stored_columns(opened, read_schema(pickled), columns)
    setup = Setup(
        opened,
        opened.group_sizes(),
        plan,
        target,
        size_limit,
        compression or None,
        tuple(hashes),
        verify,
    )
    return convert(setup, workers, progress, spark)


def _check_options(
    size_limit: int, compression: str | None, hashes: Sequence[str], workers: int
) -> None:
    if not 0 < size_limit <= MAX_SHARD_BYTES:
        raise ValueError(
            f"The size limit of a shard is {size_limit} bytes; give 1 to {MAX_SHARD_BYTES}."
        )
    codecs.parse_compression(compression)
    for name in hashes:
        codecs.digest(name, b"")  # raises, saying which hashes there are
    if workers < 1:
        raise ValueError(f"The number of workers is {workers}; give 1 or more.")
