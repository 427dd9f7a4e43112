"""The datasets of the races over far places: the same rows as shards and as Parquet, written without Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks._far_reader import COLUMNS, FIRST_VALUES, MDS, PARQUET, WARM, WIDE
from benchmarks._settings import SEED, Far

__all__ = ["write_datasets"]


def write_datasets(near: Path, sizes: Far, names: Sequence[str] = (MDS, PARQUET, WIDE)) -> None:
    """Write the rows as shards, as Parquet and as Parquet of twenty columns, or some of these, and tiny ones of each."""
    tiny = dataclasses.replace(sizes, rows=sizes.batch_size, shards=1)
    for prefix, each in ((WARM, tiny), ("", sizes)):
        for name in names:
            (near / f"{prefix}{name}").mkdir(parents=True)
            if name == MDS:
                _write_mds(near / f"{prefix}{MDS}", each)
                continue
            for number, table in enumerate(_tables(each, is_wide=name == WIDE)):
                file = near / f"{prefix}{name}" / f"part-{number:05}.parquet"
                parquet.write_table(table, file, use_dictionary=False, compression="none")


def _write_mds(directory: Path, sizes: Far) -> None:
    from petastorm_bridge.mds.commit import commit_dataset
    from petastorm_bridge.mds.writer import ShardWriter

    first = next(_tables(sizes, is_wide=False))
    limit = first.nbytes
    writer = ShardWriter(first.schema, str(directory), size_limit=limit, min_rows=1)
    for table in _tables(sizes, is_wide=False):
        for batch in table.to_batches():
            writer.write(batch)
    commit_dataset(str(directory), first.schema, writer.finish())


def _tables(sizes: Far, *, is_wide: bool) -> Iterator[pa.Table]:
    """Yield the rows of one file after the other; the same ones whenever it is called."""
    random = np.random.default_rng(SEED)
    kind = np.dtype(sizes.dtype)
    names = COLUMNS if is_wide else ("values",)
    width = max(1, sizes.row_bytes // kind.itemsize // len(names))
    for ids in np.array_split(np.arange(sizes.rows), sizes.shards):
        columns = {} if is_wide else {"id": pa.array(ids)}
        for name in names:
            values = _noise(random, kind, (len(ids), width))
            values[:, 0] = ids % FIRST_VALUES
            offsets = np.arange(len(ids) + 1, dtype=np.int32) * width
            columns[name] = pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))
        yield pa.table(columns)


def _noise(random: np.random.Generator, kind: np.dtype[Any], shape: tuple[int, int]) -> Any:
    """Return values of a type that hardly compress."""
    if kind.kind == "f":
        return random.standard_normal(shape).astype(kind)
    bounds = np.iinfo(kind)
    return random.integers(bounds.min, bounds.max, shape, kind, endpoint=True)
