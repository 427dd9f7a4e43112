"""Tables and options whose batches are recorded from the real Petastorm.

A scenario is data: a table, a loader, options. One more is one line, and then, in an environment with
Petastorm, `pytest tests/against_petastorm/recorded --parity-record -k <name>`.
"""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

ROWS = 23
FILES = 3
_START = dt.datetime(2020, 2, 28, 3, 4, 5)


@dataclass(frozen=True)
class Scenario:
    """What is loaded, and how.

    Attributes:
        name: Also the recording's.
        table: Name of a function below.
        loader: ``torch``, ``batched``, ``inmem`` or ``tf``.
        options: For ``make_batch_reader``, and ``shuffling_queue_capacity``.
        batch_size: Rows in a batch.
        rules: How it is compared.
    """

    name: str
    table: str
    loader: str = "torch"
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 5
    rules: Mapping[str, Any] = field(default_factory=dict)


def numbers() -> pa.Table:
    """Every number type, with extreme values."""
    columns: dict[str, Any] = {"id": pa.array(range(ROWS), pa.int64())}
    for kind in ("int8", "int16", "int32", "int64", "uint8"):
        info = np.iinfo(kind)
        values = np.linspace(0, 100, ROWS).astype(kind)
        values[[1, 2]] = info.min, info.max
        columns[kind] = pa.array(values)
    for kind in ("float32", "float64"):
        values = np.arange(ROWS).astype(kind) / 3
        values[[1, 2, 3, 4]] = np.nan, np.inf, -0.0, np.finfo(kind).tiny
        columns[kind] = pa.array(values)
    columns["flag"] = pa.array(np.arange(ROWS) % 3 == 0)
    return pa.table(columns)


def nulls() -> pa.Table:
    """Numbers with a null in every file."""
    some = [None if i % 4 == 1 else i for i in range(ROWS)]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int32()),
            "small": pa.array(some, pa.int8()),
            "long": pa.array(some, pa.int64()),
            "x": pa.array(some, pa.float64()),
            "f": pa.array(some, pa.float32()),
        }
    )


def arrays() -> pa.Table:
    """Arrays of one length."""
    grid = np.arange(ROWS * 4).reshape(ROWS, 4)
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "ints": pa.array(grid.tolist(), pa.list_(pa.int32())),
            "floats": pa.array((grid / 7).tolist(), pa.list_(pa.float32())),
            "doubles": pa.array((grid[:, :1] / 7).tolist(), pa.list_(pa.float64())),
        }
    )


def text() -> pa.Table:
    """Strings, bytes, dates and timestamps."""
    days = [_START.date() + dt.timedelta(days=i) for i in range(ROWS)]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "word": pa.array([f"é{i % 5}" * (i % 3) for i in range(ROWS)]),
            "raw": pa.array([bytes([i, 0, 255]) * (i % 3) for i in range(ROWS)]),
            "day": pa.array(days),
            "when": pa.array(
                [_START + dt.timedelta(hours=i) for i in range(ROWS)], pa.timestamp("us")
            ),
            "words": pa.array([[f"a{i}", ""] for i in range(ROWS)], pa.list_(pa.string())),
        }
    )


TABLES: dict[str, Callable[[], pa.Table]] = {f.__name__: f for f in (numbers, nulls, arrays, text)}

_SEEDED = {"shuffle_row_groups": True, "seed": 11, "workers_count": 1}
_ANY_ORDER = {"order": "shuffled"}

SCENARIOS = (
    Scenario("numbers torch", "numbers"),
    Scenario("numbers batched", "numbers", "batched"),
    Scenario("numbers inmem", "numbers", "inmem"),
    Scenario("numbers tf", "numbers", "tf"),
    Scenario("nulls torch", "nulls"),
    Scenario("nulls batched", "nulls", "batched"),
    Scenario("nulls tf", "nulls", "tf"),
    Scenario("arrays torch", "arrays"),
    Scenario("arrays batched", "arrays", "batched"),
    Scenario("arrays tf", "arrays", "tf"),
    Scenario("text tf", "text", "tf"),
    Scenario("two epochs straddle a batch", "numbers", options={"num_epochs": 2}),
    Scenario("two epochs tf", "arrays", "tf", {"num_epochs": 2}),
    Scenario("one giant batch", "arrays", batch_size=100),
    Scenario("batches of one", "arrays", batch_size=1),
    Scenario("seeded row groups", "arrays", options=_SEEDED),
    Scenario("seeded rows", "arrays", options={**_SEEDED, "shuffle_rows": True}),
    Scenario(
        "shuffle buffer", "arrays", options={"shuffling_queue_capacity": 10}, rules=_ANY_ORDER
    ),
    Scenario(
        "shuffle buffer batched",
        "arrays",
        "batched",
        {"shuffling_queue_capacity": 10},
        rules=_ANY_ORDER,
    ),
    Scenario(
        "some columns",
        "numbers",
        options={"schema_fields": ["id", "f.*"]},
        rules={"allow": ["table-order"]},
    ),
    Scenario("drop partitions", "arrays", options={"shuffle_row_drop_partitions": 2}),
    Scenario(
        "predicate",
        "arrays",
        options={"predicate": "odd"},
        rules={"allow": ["predicate-keeps-dtypes"]},
    ),
    Scenario("transform", "arrays", options={"transform_spec": "edit"}),
    Scenario("transform tf", "arrays", "tf", {"transform_spec": "edit"}),
)


def write(table: str, folder: Path) -> list[str]:
    """Write a table as three Parquet files; returns their URLs."""
    data, rows = TABLES[table](), -(-ROWS // FILES)
    paths = [folder / f"part-{part:05d}.parquet" for part in range(FILES)]
    for part, path in enumerate(paths):
        parquet.write_table(data.slice(part * rows, rows), path)
    return [path.as_uri() for path in paths]


def edit(frame: Any) -> Any:
    """Change a column, add one of two dimensions."""
    frame["ints"] = frame["ints"].map(lambda v: v.astype("int64") * 2)
    frame["grid"] = frame["floats"].map(lambda v: np.asarray(v).reshape(2, 2) + 1)
    return frame


def open_loader(package: str, scenario: Scenario, urls: list[str]) -> Any:
    """Open a scenario's loader on Petastorm or the bridge: nothing but the name differs."""
    module = importlib.import_module(package)
    options = {"num_epochs": 1, "shuffle_row_groups": False, "workers_count": 4, **scenario.options}
    capacity = options.pop("shuffling_queue_capacity", 0)
    if "predicate" in options:
        predicates = importlib.import_module(f"{package}.predicates")
        options["predicate"] = predicates.in_lambda(["id"], lambda ids: ids % 2 == 1)
    if "transform_spec" in options:
        options["transform_spec"] = importlib.import_module(f"{package}.transform").TransformSpec(
            edit,
            edit_fields=[("ints", np.int64, (4,), False), ("grid", np.float32, (2, 2), False)],
            removed_fields=["doubles"],
        )
    reader = module.make_batch_reader(urls, **options)
    if scenario.loader == "tf":
        dataset = importlib.import_module(f"{package}.tf_utils").make_petastorm_dataset(reader)
        return dataset.unbatch().batch(scenario.batch_size)
    pytorch = importlib.import_module(f"{package}.pytorch")
    if scenario.loader == "inmem":
        return pytorch.InMemBatchedDataLoader(reader, batch_size=scenario.batch_size)
    loader = {"torch": pytorch.DataLoader, "batched": pytorch.BatchedDataLoader}[scenario.loader]
    return loader(reader, batch_size=scenario.batch_size, shuffling_queue_capacity=capacity)


_NOT_IN_STREAMING = {
    "schema_fields": "reads every column",
    "shuffle_row_drop_partitions": "has no parts of row groups",
    "predicate": "has no predicates",
    "transform_spec": "has no transforms",
}


def not_in_streaming(scenario: Scenario) -> str | None:
    """Why plain streaming cannot give a scenario's batches, if it cannot."""
    if scenario.loader == "tf":
        return "has no tf.data.Dataset"
    if scenario.table == "nulls":
        return "has no nulls"
    if scenario.options.get("num_epochs", 1) != 1:
        return "lets no batch straddle epochs"
    return next((why for name, why in _NOT_IN_STREAMING.items() if name in scenario.options), None)


def open_streaming(scenario: Scenario, folder: Path) -> Any:
    """Write a scenario's table as MDS and open plain streaming over it."""
    from streaming import StreamingDataLoader, StreamingDataset

    from petastorm_bridge.mds.commit import commit_dataset
    from petastorm_bridge.mds.writer import ShardWriter

    table = TABLES[scenario.table]()
    writer = ShardWriter(table.schema, str(folder), prefix="shard")
    for batch in table.to_batches():
        writer.write(batch)
    commit_dataset(str(folder), table.schema, writer.finish())
    shuffled = is_shuffled(scenario)
    dataset = StreamingDataset(
        local=str(folder), batch_size=scenario.batch_size, shuffle=shuffled, shuffle_seed=11
    )
    return StreamingDataLoader(dataset, batch_size=scenario.batch_size)


def is_shuffled(scenario: Scenario) -> bool:
    """Whether a scenario's rows come in another order than the table's."""
    return bool({"shuffle_row_groups", "shuffling_queue_capacity"} & set(scenario.options))


def rows_of(scenario: Scenario) -> int:
    """How many rows a complete pass has."""
    rows = ROWS // 2 if "predicate" in scenario.options else ROWS
    return rows * int(scenario.options.get("num_epochs", 1))
