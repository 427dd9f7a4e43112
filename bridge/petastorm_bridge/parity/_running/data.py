"""The data of a live comparison: a Parquet directory or a Spark table, and the same as MDS shards."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from petastorm_bridge.parity._recordings.manifest import CannotCompareError

_ROWS = 4096  # written as MDS at a time


def find_data(data: str, folder: str) -> str:
    """Return the Parquet directory for a directory or a Spark table, which is written there.

    Raises:
        CannotCompareError: It is neither.
    """
    if os.path.isdir(data):
        return data
    if os.sep in data or not all(part.isidentifier() for part in data.split(".")):
        raise CannotCompareError(f"there is no directory {data}, and no table can have that name")
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise CannotCompareError(
            f"there is no directory {data}; to read a table, install petastorm-bridge[spark]"
        ) from None
    try:
        session = SparkSession.builder.getOrCreate()
        place = os.path.join(folder, "table")
        session.table(data).write.parquet(Path(place).as_uri())
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CannotCompareError(f"the table {data} cannot be read: {first}") from error
    return place


def parquet_files(data: str) -> list[tuple[str, list[int]]]:
    """Return the path of each file of a table, and the rows of its row groups."""
    from pyarrow import fs, parquet

    from petastorm_bridge._sources.parquet_files import find_files
    from petastorm_bridge._sources.table_formats import refuse_table_formats

    folder = os.path.abspath(data)
    try:
        refuse_table_formats(fs.LocalFileSystem(), folder)
        paths = [file.path for file in find_files(fs.LocalFileSystem(), [folder])]
        footers = [parquet.read_metadata(path) for path in paths]
    except (OSError, ValueError, IndexError) as error:
        raise CannotCompareError(f"{data} is no directory of Parquet files: {error}") from error
    return [
        (path, [footer.row_group(i).num_rows for i in range(footer.num_row_groups)])
        for path, footer in zip(paths, footers, strict=True)
    ]


def urls_of(data: str, paths: Sequence[str]) -> list[str] | str:
    """Return the files' URLs; the directory's if its ``key=value`` parts hold columns."""
    folder = Path(data).absolute()
    if any(Path(path).parent != folder for path in paths):
        return folder.as_uri()
    return [Path(path).as_uri() for path in paths]


def write_mds(data: str, folder: str) -> None:
    """Write a Parquet directory as MDS shards, with the columns of its ``key=value`` parts.

    What Petastorm's ``materialize_dataset`` has encoded stays so, as in ``make_batch_reader``; that is
    why this is not `convert_dataset`.

    Raises:
        CannotCompareError: It cannot be read in whole, or a column's type cannot be stored.
    """
    import pyarrow as pa

    from petastorm_bridge._sources.parquet import ParquetSource
    from petastorm_bridge.mds.commit import commit_dataset
    from petastorm_bridge.mds.errors import DatasetError
    from petastorm_bridge.mds.types import plain_type
    from petastorm_bridge.mds.writer import ShardWriter

    os.makedirs(folder)
    try:
        with warnings.catch_warnings():
            # Columns that readers leave out are written, or refused by name.
            warnings.simplefilter("ignore")
            source = ParquetSource([os.path.abspath(data)], listed=False)
        types = {name: plain_type(kind) for name, kind in source.types_of(source.columns).items()}
        schema = pa.schema(list(types.items()))
        writer = ShardWriter(schema, folder)
        for row_group in range(len(source.row_counts)):
            for batch in source.batches(row_group, types, _ROWS):
                writer.write(batch)
        commit_dataset(folder, schema, writer.finish())
    except (DatasetError, TypeError, ValueError) as error:
        raise CannotCompareError(
            f"streaming: the data cannot be written as MDS: {error}"
        ) from error
