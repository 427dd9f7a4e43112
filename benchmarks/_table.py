"""The numeric table's columns, and the same columns as Parquet files, without Spark."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks._settings import SEED, Settings

LONGS, INTS, DOUBLES, FLOATS = 4, 3, 4, 8

# What dataframe_to_mds would infer, but with the array's length given, which it then need not
# store with every row.
MDS_COLUMNS = (
    {"id": "int64"}
    | {f"long{i}": "int64" for i in range(LONGS)}
    | {f"int{i}": "int32" for i in range(INTS)}
    | {f"double{i}": "float64" for i in range(DOUBLES)}
    | {"floats": f"ndarray:float32:{FLOATS}"}
)


def write_parquet(directory: str, settings: Settings) -> list[str]:
    """Write the numeric table as files of one row group each, as many as partitions."""
    rng = np.random.default_rng(SEED)
    paths = []
    for number, ids in enumerate(np.array_split(np.arange(settings.rows), settings.partitions)):
        columns: dict[str, Any] = {"id": ids}
        for name, kind in MDS_COLUMNS.items():
            if kind.startswith("ndarray"):
                values = pa.array(rng.standard_normal(len(ids) * FLOATS, np.float32))
                offsets = np.arange(len(ids) + 1, dtype=np.int32) * FLOATS
                columns[name] = pa.ListArray.from_arrays(offsets, values)
            elif name != "id":
                columns[name] = (rng.standard_normal(len(ids)) * 1e6).astype(kind)
        paths.append(os.path.join(directory, f"part-{number:05}.parquet"))
        parquet.write_table(pa.table(columns), paths[-1])
    return paths
