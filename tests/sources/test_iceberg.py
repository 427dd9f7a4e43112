"""Iceberg tables are read as pyiceberg reads them, in place, without a catalog or Spark."""

import datetime as dt
import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources.table_formats import TableFormatError
from petastorm_bridge.errors import DatasetNotFoundError
from petastorm_bridge.spark import make_spark_converter

pytest.importorskip("pyiceberg", reason="writes the tables, and is the judge")
pytest.importorskip("sqlalchemy", reason="pyiceberg's catalog for tests needs it")
if int(pa.__version__.split(".", maxsplit=1)[0]) < 17:
    pytest.skip("pyiceberg writes with Arrow 17 or newer", allow_module_level=True)

from iceberg_deletes import delete_rows
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, IntegerType, LongType, NestedField, StringType

pytestmark = [
    pytest.mark.filterwarnings("ignore:Delete operation did not match:UserWarning"),
    # An overwrite commits a snapshot without rows on its way.
    pytest.mark.filterwarnings("ignore:No matching data is available:UserWarning"),
]


def rows(url, **options):
    with make_batch_reader(str(url), reader_pool_type="dummy", **options) as reader:
        names = list(reader.schema.fields)
        found = [row for group in reader for row in zip(*map(_python, group), strict=True)]
    return names, sorted(found, key=repr)


def _python(column):
    # A null text is the text 'None' and a null beside numbers NaN, as in Petastorm.
    return [None if str(v) in ("None", "nan") else v for v in np.asarray(column).tolist()]


def live(metadata, snapshot=None):
    """What pyiceberg reads, in the same form."""
    found = StaticTable.from_metadata(metadata).scan(snapshot_id=snapshot).to_arrow()
    columns = [column.to_pylist() for column in found]
    return found.column_names, sorted(zip(*columns, strict=True), key=repr)


def same(table, metadata=None):
    root = table.location()
    assert rows(root) == live(metadata or table.metadata_location)


def data(start, stop, **more):
    ids = np.arange(start, stop)
    return pa.table({"id": ids, "x": ids / 2, "k": [f"k{i % 3}" for i in ids], **more})


@pytest.fixture
def catalog(tmp_path):
    catalog = InMemoryCatalog("c", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    return catalog


@pytest.mark.difference("log-tables-are-read")
def test_every_snapshot_has_the_rows_that_pyiceberg_reads(catalog):
    table = catalog.create_table("n.t", schema=data(0, 1).schema)
    with pytest.warns(UserWarning, match="No matching data"):
        assert rows(table.location()) == (["id", "x", "k"], [])
    table.append(data(0, 10))
    same(table)
    table.append(data(10, 20))
    same(table)
    table.overwrite(data(20, 31))
    same(table)
    table.delete("id > 27 or k = 'k0'")
    same(table)
    with table.update_schema() as update:
        update.rename_column("id", "number")
        update.delete_column("x")
        update.add_column("x", StringType())  # another one of that name
        update.add_column("late", LongType())
    same(table)
    table.append(pa.table({"number": [40], "k": ["z"], "x": ["text"], "late": [1]}))
    same(table)
    for snapshot in table.metadata.snapshots:
        url = f"{table.location()}@v{snapshot.snapshot_id}"
        assert rows(url) == live(table.metadata_location, snapshot.snapshot_id)
        moment = dt.datetime.fromtimestamp(snapshot.timestamp_ms / 1000, dt.timezone.utc)
        stamp = moment.strftime("%Y%m%d%H%M%S") + f"{snapshot.timestamp_ms % 1000:03}"
        assert rows(f"{table.location()}@{stamp}") == rows(url)
    for wrong, told in (("v1", "has no snapshot 1"), ("20000101000000000", "newer than 2000")):
        with pytest.raises(TableFormatError, match=told):
            rows(f"{table.location()}@{wrong}")


def test_a_metadata_file_and_the_hint_name_a_version(catalog):
    table = catalog.create_table("n.t", schema=data(0, 1).schema)
    table.append(data(0, 4))
    old = table.metadata_location
    table.append(data(4, 9))
    assert rows(old) == live(old)
    assert len(rows(old)[1]) == 4
    folder = table.location().removeprefix("file://") + "/metadata"
    for hint in (os.path.basename(old), os.path.basename(old).removesuffix(".metadata.json")):
        with open(f"{folder}/version-hint.text", "w") as stream:
            stream.write(hint)
        assert len(rows(table.location())[1]) == 4
    converter = make_spark_converter(old)
    assert (len(converter), converter.file_urls) == (4, [old])
    os.remove(f"{folder}/version-hint.text")
    converter = make_spark_converter(table.location())
    table.append(data(9, 10))
    assert len(converter) == 9
    with converter.make_torch_dataloader(num_epochs=1, schema_fields=["id"]) as loader:
        assert sum(len(batch["id"]) for batch in loader) == 9


def test_partitions_are_columns_even_where_files_lack_them(catalog, tmp_path):
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "day", DateType()),
        NestedField(3, "k", StringType()), NestedField(4, "n", IntegerType()),
        NestedField(5, "x", DoubleType()),
    )  # fmt: skip
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "day"),
        PartitionField(3, 1001, IdentityTransform(), "k"),
    )
    table = catalog.create_table("n.t", schema=schema, partition_spec=spec)
    days = [None if i % 4 == 3 else dt.date(2024, 1, 1 + i % 4) for i in range(12)]
    stored = {"id": range(12), "day": days, "k": ["a b", "c/d", None] * 4}
    stored |= {"n": pa.array(range(12), pa.int32()), "x": np.arange(12) / 2}
    table.append(pa.table(stored))
    same(table)
    root = table.location()
    assert len(rows(root, filters=[("k", "=", "c/d")])[1]) == 4
    part = f"{root}/data/day=2024-01-01"
    assert {row[1] for row in rows(part)[1]} == {dt.date(2024, 1, 1)}
    with table.update_schema() as update:
        update.update_column("n", LongType())
    same(table)


def test_the_value_of_a_partition_is_that_of_the_file_where_it_has_one(catalog):
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", DoubleType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
    table = catalog.create_table("n.t", schema=schema, partition_spec=spec)
    table.append(pa.table({"id": [1, 2], "x": [1 / 3, 0.1]}))
    same(table)
    assert rows(table.location())[1] == [(1, 1 / 3), (2, 0.1)]
    for task in table.scan().plan_files():  # the manifest has the value alone
        path = task.file.file_path.removeprefix("file://")
        pq.write_table(pq.read_table(path).drop_columns(["x"]), path)
    found = rows(table.location())[1]
    assert found == live(table.metadata_location)[1]
    assert [row[1] for row in found] == pytest.approx([1 / 3, 0.1])


def test_files_without_field_ids_go_by_the_name_mapping(catalog):
    table = catalog.create_table("n.t", schema=data(0, 1).schema)
    folder = table.location().removeprefix("file://") + "/data"
    os.makedirs(folder)
    pq.write_table(data(0, 5), f"{folder}/loose.parquet")
    table.add_files([f"file://{folder}/loose.parquet"])
    with table.update_schema() as update:
        update.rename_column("k", "key")
    same(table)
    assert rows(table.location())[0] == ["id", "x", "key"]
    with table.transaction() as change:
        change.remove_properties("schema.name-mapping.default")
    with pytest.raises(TableFormatError, match="no name mapping"):
        rows(table.location())


@pytest.mark.parametrize("kind", ["PARQUET", "PUFFIN"])
def test_rows_that_delete_files_name_are_gone(catalog, kind):
    table = catalog.create_table("n.t", schema=data(0, 1).schema)
    table.append(data(0, 10))
    table.append(data(10, 14))
    path = next(
        task.file.file_path for task in table.scan().plan_files() if task.file.record_count == 10
    )
    delete_rows(table, path, [0, 3, 9], kind=kind)
    newest = f"{table.location()}/metadata/00099-by-hand.metadata.json"
    same(table, newest)
    assert sorted(row[0] for row in rows(table.location())[1]) == [
        1,
        2,
        4,
        5,
        6,
        7,
        8,
        *range(10, 14),
    ]


def test_what_cannot_be_read_right_is_refused(catalog, monkeypatch):
    table = catalog.create_table("n.t", schema=data(0, 1).schema)
    table.append(data(0, 10))
    (task,) = table.scan().plan_files()
    root = table.location()
    delete_rows(table, task.file.file_path, [1], content=DataFileContent.EQUALITY_DELETES)
    with pytest.raises(TableFormatError, match="equality deletes"):
        rows(root)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "petastorm_bridge._sources.iceberg")
        patch.setitem(sys.modules, "pyiceberg.table", None)
        with pytest.raises(TableFormatError, match=r"pip install 'petastorm-bridge\[iceberg\]'"):
            rows(root)
    folder = root.removeprefix("file://")
    os.mkfifo(f"{folder}/metadata/version-hint.text")
    with pytest.raises(TableFormatError, match="a pipe, a socket or a device"):
        rows(root)
    os.remove(f"{folder}/metadata/version-hint.text")
    os.remove(f"{folder}/metadata/00099-by-hand.metadata.json")
    os.remove(task.file.file_path.removeprefix("file://"))
    with pytest.raises(DatasetNotFoundError, match="expiry of snapshots"):
        rows(root)
    current = table.metadata_location.removeprefix("file://")
    with open(current) as stream:
        text = json.load(stream)
    for broken in ("{", json.dumps({**text, "current-snapshot-id": 5})):
        with open(current, "w") as stream:
            stream.write(broken)
        with pytest.raises(
            TableFormatError, match=r"cannot be read with pyiceberg|has no snapshot 5"
        ):
            rows(root)
