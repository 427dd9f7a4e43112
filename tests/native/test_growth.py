"""Writing costs no Python per row."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from growth import assert_grows_linearly, count_calls

from petastorm_bridge.mds.schema import SIDECAR_NAME
from petastorm_bridge.native import BatchForm
from petastorm_bridge.spark._directory.store import store_at
from petastorm_bridge.spark._writing import executor

SCHEMA = pa.schema(
    {
        "holes": pa.int32(),
        "flag": pa.bool_(),
        "at": pa.timestamp("ns", "UTC"),
        "values": pa.list_(pa.float32()),
        "gaps": pa.list_(pa.int64()),
        "text": pa.string(),
    }
)


def batch_of(rows):
    """A batch as Spark gives it, with timestamps in microseconds."""
    numbers = np.arange(rows)
    gaps = pa.array(np.repeat(numbers, 2), pa.int64(), mask=np.arange(2 * rows) % 7 == 0)
    columns = [
        pa.array(numbers, pa.int32(), mask=numbers % 3 == 0),
        pa.array(numbers % 2 == 0),
        pa.array(numbers, pa.timestamp("us", "UTC")),
        pa.ListArray.from_arrays(
            np.arange(0, 3 * rows + 1, 3, np.int32), pa.array(np.zeros(3 * rows, np.float32))
        ),
        pa.ListArray.from_arrays(np.arange(0, 2 * rows + 1, 2, np.int32), gaps),
        pa.array(numbers.astype(str)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=SCHEMA.names)


def write(batch, directory):
    """What one task does, and then the decision on nulls with its second writing."""
    task = executor.WriteTask(store_at(f"file://{directory}"), "", b"", 1 << 30, None)
    _, infos = executor._write(task, SCHEMA, str(directory), "shard.00000.a0", [batch])

    def here(rewrite, infos):
        return [rewrite(str(directory), info) for info in infos]

    return BatchForm([]).settle(SCHEMA, infos, here)


def test_the_calls_do_not_depend_on_the_rows(tmp_path):
    write(batch_of(10), tmp_path)  # imports and caches
    small, large = (batch_of(rows) for rows in (1_000, 64_000))
    few = count_calls(lambda: write(small, tmp_path))
    assert count_calls(lambda: write(large, tmp_path)) <= 1.1 * few
    assert not (tmp_path / SIDECAR_NAME).exists()


def test_what_is_decided(tmp_path):
    schema, infos = write(batch_of(10), tmp_path)
    assert schema.field("holes").type == pa.float64()
    assert schema.field("gaps").type == pa.list_(pa.float64())
    (info,) = infos
    stored = dict(
        zip(info["index"]["column_names"], info["index"]["column_encodings"], strict=True)
    )
    assert stored == {
        "at": "int64",
        "flag": "uint8",
        "gaps": "ndarray:float64:2",
        "holes": "float64",
        "text": "str",
        "values": "ndarray:float32:3",
    }


def test_nothing_is_written_twice_without_nulls(tmp_path):
    batch = batch_of(10)
    filled = [
        column.fill_null(0) if name == "holes" else column
        for name, column in zip(SCHEMA.names, batch.columns, strict=True)
    ]
    filled[4] = filled[3].cast(pa.list_(pa.int64()))
    schema, infos = write(pa.RecordBatch.from_arrays(filled, names=SCHEMA.names), tmp_path)
    assert schema == SCHEMA
    assert [info["index"]["raw_data"]["basename"] for info in infos] == ["shard.00000.a0.00000.mds"]


def test_collating_grows_with_the_batch():
    support = pytest.importorskip("petastorm_bridge.mds_support")
    spec = support.PandasCollate(
        lambda frame: pd.DataFrame({"a": frame["a"] * 2, "v": frame["v"]}), [("a", int, (), False)]
    )

    def prepare(rows):
        samples = [{"a": np.int64(row), "v": np.zeros(3, np.float32)} for row in range(rows)]
        return lambda: spec(samples)

    assert_grows_linearly(prepare, 256)


def test_stacking_without_a_transform_costs_no_python_per_row():
    """As ``to_tf_dataset`` does with most datasets."""
    support = pytest.importorskip("petastorm_bridge.mds_support")
    spec = support.PandasCollate()

    def calls(rows):
        samples = [
            {"a": np.int64(row), "t": str(row), "v": np.zeros(3, np.float32)} for row in range(rows)
        ]
        return count_calls(lambda: spec.transformed(samples))

    calls(10)
    assert calls(1_000) == calls(10)
