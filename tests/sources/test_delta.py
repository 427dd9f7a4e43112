"""Delta tables are read as deltalake's own engine reads them, in place and without Spark."""

import datetime as dt
import decimal
import itertools
import json
import math
import os
import pickle
import sys
import uuid
import zlib

import numpy as np
import pyarrow as pa
import pytest
from delta_log import base85, deletion_vector, field, stored_vector, write_table

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge._sources.open import open_source
from petastorm_bridge._sources.table_formats import TableFormatError
from petastorm_bridge.errors import DatasetNotFoundError
from petastorm_bridge.predicates import in_set
from petastorm_bridge.pytorch import DataLoader
from petastorm_bridge.spark import make_spark_converter

deltalake = pytest.importorskip("deltalake", reason="writes the tables, and is the judge")


_ARROW = int(pa.__version__.split(".", maxsplit=1)[0])
by_deltalake = pytest.mark.skipif(
    _ARROW < 16, reason="deltalake writes string views, which Arrow reads from release 16 on"
)


def rows(url, **options):
    """All rows that a reader gives, as tuples, sorted by their text."""
    options = {"reader_pool_type": "dummy"} | options
    found = []
    with make_batch_reader(str(url), **options) as reader:
        for group in reader:
            columns = [_python(column) for column in group]
            found += zip(*columns, strict=True)
        names = list(reader.schema.fields)
    return names, sorted(found, key=repr)


def live(path, version=None):
    """What deltalake's engine reads, in the same form."""
    table = deltalake.DeltaTable(str(path), version=version)
    result = deltalake.QueryBuilder().register("t", table).execute("select * from t").read_all()
    columns = [[_plain(value) for value in column.to_pylist()] for column in pa.table(result)]
    return result.column_names, sorted(zip(*columns, strict=True), key=repr)


def _python(column):
    # A null text is the text 'None', as in Petastorm.
    return [None if value == "None" else _plain(value) for value in np.asarray(column).tolist()]


def _plain(value):
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    # Integers beside nulls are floats in a batch, as in Petastorm.
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return None if isinstance(value, float) and math.isnan(value) else value


def same(path, version=None):
    asked = path if version is None else f"{path}@v{version}"
    assert rows(f"file://{asked}") == live(path, version)


def table(start, stop, **more):
    ids = np.arange(start, stop)
    return pa.table(
        {
            "id": ids,
            "x": ids / 2,
            "text": [f"r{i}" for i in ids],
            "v": [[float(i), 1.0] for i in ids],
            "price": [decimal.Decimal(int(i)) / 4 for i in ids],
            "ts": pa.array(
                [dt.datetime(2024, 1, 1, 0, 0, int(i)) for i in ids], pa.timestamp("us", "UTC")
            ),
            **more,
        }
    )


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A table of five versions: written, appended to, overwritten, evolved, deleted from."""
    path = tmp_path_factory.mktemp("delta") / "t"
    properties = deltalake.WriterProperties(max_row_group_size=4)
    options = {"writer_properties": properties}
    deltalake.write_deltalake(path, table(0, 10), **options)
    deltalake.write_deltalake(path, table(10, 20), mode="append", **options)
    deltalake.write_deltalake(path, table(20, 31), mode="overwrite", **options)
    evolved = table(31, 40, late=pa.array(np.arange(9), pa.int32()))
    deltalake.write_deltalake(path, evolved, mode="append", schema_mode="merge", **options)
    deltalake.DeltaTable(path).delete("id % 3 = 0")
    return path


@by_deltalake
@pytest.mark.difference("log-tables-are-read")
@pytest.mark.parametrize("version", [None, 0, 1, 2, 3, 4])
def test_every_version_has_the_rows_that_deltalake_reads(history, version):
    same(history, version)


@by_deltalake
def test_a_moment_names_the_version_that_was_the_current_one(history):
    log = history / "_delta_log" / f"{1:020}.json"
    commit = json.loads(log.read_text().splitlines()[0])["commitInfo"]["timestamp"]
    moment = dt.datetime.fromtimestamp(commit / 1000, dt.timezone.utc)
    stamp = moment.strftime("%Y%m%d%H%M%S") + f"{commit % 1000:03}"
    os.utime(log, (commit / 1000, commit / 1000))
    assert len(rows(f"file://{history}@{stamp}")[1]) == 20
    for wrong, told in (
        ("20000101000000000", "newer than 2000-01-01"),
        ("20241301000000000", "no moment"),
    ):
        with pytest.raises(TableFormatError, match=told):
            rows(f"file://{history}@{wrong}")


@by_deltalake
def test_a_version_that_does_not_exist_is_refused(history):
    with pytest.raises(TableFormatError, match="cannot be read with deltalake"):
        rows(f"file://{history}@v99")


@by_deltalake
def test_a_directory_that_is_called_like_a_version_is_itself(tmp_path):
    path = tmp_path / "t@v0"
    deltalake.write_deltalake(path, table(0, 3))
    deltalake.write_deltalake(path, table(3, 5), mode="append")
    assert len(rows(f"file://{path}")[1]) == 5
    assert len(rows(f"file://{path}@v0")[1]) == 3


AWKWARD = ["a b", "c/d", "e=f", "50%", "ü", None]


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory):
    path = tmp_path_factory.mktemp("delta") / "p"
    keys = [AWKWARD[i % 6] for i in range(24)]
    days = [None if i % 4 == 3 else dt.date(2024, 1, 1 + i % 4) for i in range(24)]
    data = table(0, 24, key=keys, day=pa.array(days, pa.date32()))
    deltalake.write_deltalake(path, data, partition_by=["key", "day"])
    deltalake.DeltaTable(path).delete("id = 7")
    return path


@by_deltalake
def test_partition_columns_are_columns_of_the_table(partitioned):
    same(partitioned)
    _, found = rows(f"file://{partitioned}", filters=[("key", "=", "c/d")])
    assert {row[6] for row in found} == {"c/d"}
    assert len(found) == 3
    _, found = rows(f"file://{partitioned}", filters=[("key", "in", ["a b", "ü"]), ("id", "<", 9)])
    assert sorted(row[0] for row in found) == [0, 4, 6]
    _, found = rows(f"file://{partitioned}", predicate=in_set(["e=f"], "key"))
    assert sorted(row[0] for row in found) == [2, 8, 14, 20]


@by_deltalake
def test_a_directory_of_a_table_has_the_live_rows_of_that_partition(partitioned):
    _, everything = live(partitioned)
    folders = sorted(name for name in os.listdir(partitioned) if name.startswith("key="))
    parts = [rows(f"file://{partitioned}/{name}")[1] for name in folders]
    assert sorted(itertools.chain(*parts), key=repr) == everything
    assert all(len({row[6] for row in part}) == 1 for part in parts)
    inner = rows(f"file://{partitioned}/key=c%252Fd/day=__HIVE_DEFAULT_PARTITION__")[1]
    assert sorted(row[0] for row in inner) == [19]
    with pytest.raises(TableFormatError, match=r"belongs to .*, which is a Delta table"):
        rows(f"file://{partitioned}/key=a b@v77")


@by_deltalake
def test_other_arguments_mean_what_they_mean_elsewhere(history):
    url = f"file://{history}"
    total = len(live(history)[1])
    shards = [rows(url, cur_shard=i, shard_count=3)[1] for i in range(3)]
    assert sorted(map(len, shards)) == sorted([total // 3 + (i < total % 3) for i in range(3)])
    assert sorted(itertools.chain(*shards), key=repr) == live(history)[1]
    assert rows(url, schema_fields=["late", "id"])[0] == ["id", "late"]
    for pool in ("thread", "process"):
        assert rows(url, reader_pool_type=pool, workers_count=2, shuffle_rows=True) == live(history)
    spec = TransformSpec(lambda frame: frame.loc[frame.id % 2 == 0, ["id"]], selected_fields=["id"])
    assert {row[0] % 2 for row in rows(url, transform_spec=spec)[1]} == {0}
    with DataLoader(make_batch_reader(url, schema_fields=["id", "v"]), batch_size=5) as loader:
        assert len(loader) == -(-total // 5)
        batches = list(loader)
    assert sum(len(batch["id"]) for batch in batches) == total
    assert tuple(batches[0]["v"].shape) == (5, 2)


@by_deltalake
def test_a_converter_stays_with_the_version_that_it_was_made_of(tmp_path):
    path = tmp_path / "t"
    deltalake.write_deltalake(path, table(0, 10))
    deltalake.write_deltalake(path, table(10, 14), mode="overwrite")
    converter = make_spark_converter(f"file://{path}")
    deltalake.write_deltalake(path, table(20, 29), mode="overwrite")
    assert len(converter) == 4
    assert converter.file_urls == [f"file://{path}@v1"]
    assert len(make_spark_converter(f"file://{path}@v0")) == 10
    copy = pickle.loads(pickle.dumps(converter))
    with copy.make_torch_dataloader(num_epochs=1, schema_fields=["id"]) as loader:
        assert sorted(i for batch in loader for i in batch["id"].tolist()) == [10, 11, 12, 13]
    converter.delete()
    same(path)


LONG = {"id": "long", "x": "double"}


def two_columns(start, stop):
    return pa.table({"id": np.arange(start, stop), "x": np.arange(start, stop) / 2})


def test_deletion_vectors_take_rows_away(tmp_path):
    fields = [field(name, kind) for name, kind in LONG.items()]
    files = {
        "a%20b.parquet": (None, deletion_vector([0, 3, 4, 9])),
        "all.parquet": (two_columns(20, 25), deletion_vector(range(5))),
        "none.parquet": (two_columns(30, 35), {}),
    }
    # The log has the name of the file percent-encoded.
    write_table(tmp_path, fields, {"a b.parquet": (two_columns(0, 10), {})})
    told = json.dumps({"numRecords": 10})
    size = os.path.getsize(tmp_path / "a b.parquet")
    files["a%20b.parquet"][1].update(stats=told, size=size)
    write_table(tmp_path, fields, files, features=["deletionVectors"])
    same(tmp_path)
    assert [row[0] for row in rows(f"file://{tmp_path}")[1]] == [
        1,
        2,
        30,
        31,
        32,
        33,
        34,
        5,
        6,
        7,
        8,
    ]
    assert len(rows(f"file://{tmp_path}", shuffle_rows=True, filters=[("id", "<", 7)])[1]) == 4
    source = pickle.loads(pickle.dumps(open_source(f"file://{tmp_path}")))
    assert source.row_counts == [2, 3, 2 - 1, 0, 0, 4, 1]


def positions():
    """Sets of rows of 200,000 for which a bitmap has each kind of container."""
    random = np.random.default_rng(0)
    dense = np.flatnonzero(random.random(200_000) < 0.5)
    return {
        "few": np.unique(random.integers(0, 200_000, 50)),
        "half": dense,
        "runs": np.concatenate([np.arange(100, 9000), np.arange(70_000, 190_000)]),
        "mixed": np.concatenate([np.arange(65_536), dense[dense > 70_000][:9000], [199_999]]),
        "all": np.arange(200_000),
        "none": np.arange(0),
    }


@pytest.mark.parametrize("is_in_file", [False, True])
def test_vectors_of_all_kinds(tmp_path, is_in_file):
    """Of the library that Delta's own writers use, in the log and in files."""
    roaring = pytest.importorskip("pyroaring", reason="writes the bitmaps")
    data = pa.table({"id": np.arange(200_000)})
    name, content, files = uuid.uuid4(), b"\x01", {}
    for kind, deleted in positions().items():
        for is_optimized in (False, True):
            bitmap = roaring.BitMap64(deleted.tolist())
            if is_optimized:
                bitmap.run_optimize()
            vector = b"\xd1\xd3\x39\x64" + bitmap.serialize()
            told = stored_vector(vector, len(deleted))
            if is_in_file:
                place = {"storageType": "u", "pathOrInlineDv": "ab" + base85(name.bytes)}
                told["deletionVector"] |= place | {"offset": len(content)}
                checksum = zlib.crc32(vector).to_bytes(4, "big")
                content += len(vector).to_bytes(4, "big") + vector + checksum
            files[f"{kind}-{is_optimized}.parquet"] = (data, told)
    (tmp_path / "ab").mkdir()
    file = tmp_path / "ab" / f"deletion_vector_{name}.bin"
    file.write_bytes(content)
    write_table(tmp_path, [field("id", "long")], files, features=["deletionVectors"], rows=50_000)
    kept = {}
    for batch in deltalake.DeltaTable(str(tmp_path)).deletion_vectors():
        vectors = pa.record_batch(batch)
        for uri, keep in zip(vectors.column(0).to_pylist(), vectors.column(1), strict=True):
            mask = keep.values.to_numpy(zero_copy_only=False)
            kept[os.path.basename(uri)] = np.r_[mask, np.full(200_000 - len(mask), True)]
    counts = [int(part.sum()) for name in sorted(kept) for part in np.split(kept[name], 4)]
    assert kept.keys() == files.keys()
    assert open_source(f"file://{tmp_path}").row_counts == counts
    expected = np.concatenate([np.flatnonzero(kept[name]) for name in sorted(kept)])
    url = f"file://{tmp_path}"
    with make_batch_reader(url, reader_pool_type="dummy", shuffle_row_groups=False) as reader:
        assert np.array_equal(np.concatenate([group.id for group in reader]), expected)
    if is_in_file:
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(TableFormatError, match="has no deletion vector of"):
            rows(url)


def test_the_last_vector_of_a_file_counts(tmp_path):
    """Written anew by one version after the other, taken back by one, and in a checkpoint."""
    files = {"a b.parquet": (two_columns(0, 5), {})}
    write_table(tmp_path, [field(n, kind) for n, kind in LONG.items()], files,
                features=["deletionVectors"])  # fmt: skip
    log = tmp_path / "_delta_log"
    *start, added = (log / f"{0:020}.json").read_text().splitlines()
    add = json.loads(added)["add"] | {"path": "a%20b.parquet"}
    (log / f"{0:020}.json").write_text("\n".join([*start, json.dumps({"add": add})]))
    last = None
    for version, deleted in enumerate([[1], [1, 2], None, [0, 4]], 1):
        remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
        vector = {} if deleted is None else deletion_vector(deleted)
        actions = [{"remove": remove | (last or {})}, {"add": add | vector}]
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))
        last = vector
    expected = [[0, 1, 2, 3, 4], [0, 2, 3, 4], [0, 3, 4], [0, 1, 2, 3, 4], [1, 2, 3]]
    for version, ids in enumerate(expected):
        same(tmp_path, version)
        assert [row[0] for row in rows(f"file://{tmp_path}@v{version}")[1]] == ids
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    for name in range(4):
        (log / f"{name:020}.json").unlink()
    same(tmp_path)
    assert [row[0] for row in rows(f"file://{tmp_path}")[1]] == expected[-1]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_columns_are_found_in_old_files(tmp_path, mode):
    def mapped(name, kind, number, physical):
        told = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
        return field(name, kind, **told)

    fields = [mapped("id", "long", 1, "col-1"), mapped("part", "date", 2, "col-2")]
    fields.append(mapped("x", "double", 3, "col-3"))
    schema = pa.schema(
        [
            pa.field("col-3", pa.float64(), metadata={"PARQUET:field_id": "3"}),
            pa.field("col-1", pa.int64(), metadata={"PARQUET:field_id": "1"}),
            pa.field("x", pa.string(), metadata={"PARQUET:field_id": "7"}),  # dropped, name taken
        ]
    )
    data = pa.table([[0.5, 1.5], [1, 2], ["no", "no"]], schema=schema)
    files = {
        "x7/a.parquet": (data, {"partitionValues": {"col-2": "2024-05-01"}}),
        "x8/b.parquet": (data.select(["col-1"]), {"partitionValues": {"col-2": None}}),
    }
    options = {"configuration": {"delta.columnMapping.mode": mode}, "partitions": ["part"]}
    write_table(tmp_path, fields, files, features=["columnMapping"], **options)
    names, found = rows(f"file://{tmp_path}")
    assert names == ["id", "part", "x"]
    day = dt.date(2024, 5, 1)
    assert set(found) == {(1.0, day, 0.5), (1.0, None, None), (2.0, day, 1.5), (2.0, None, None)}
    same(tmp_path)
    assert len(rows(f"file://{tmp_path}/part=2024-05-01")[1]) == 2


def test_widened_types_and_microseconds_hold_the_values_of_old_files(tmp_path):
    fields = [field("id", "long"), field("ts", "timestamp")]
    old = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "ts": pa.array([1704067200123456000], pa.timestamp("ns")),
        }
    )
    new = pa.table({"id": [2**40], "ts": pa.array([None], pa.timestamp("us", "UTC"))})
    write_table(tmp_path, fields, {"a.parquet": (old, {}), "b.parquet": (new, {})})
    with make_batch_reader(f"file://{tmp_path}", shuffle_row_groups=False) as reader:
        first, second = reader
    assert (first.id.tolist(), second.id.tolist()) == ([1], [2**40])
    assert str(first.ts[0]).startswith("2024-01-01T00:00:00.123456")
    assert np.isnat(second.ts[0])


@by_deltalake
def test_without_the_package_the_way_out_is_told(history, monkeypatch):
    monkeypatch.delitem(sys.modules, "petastorm_bridge._sources.delta", raising=False)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    for open_it in (make_batch_reader, make_spark_converter):
        with pytest.raises(
            TableFormatError, match=r"pip install 'petastorm-bridge\[delta\]'"
        ) as caught:
            open_it(f"file://{history}")
        assert 'spark.read.format("delta").load(' in str(caught.value)


def test_what_cannot_be_honoured_is_refused_by_name(tmp_path):
    fields = [field("id", "long")]
    files = {"a.parquet": (two_columns(0, 3), {})}
    for feature, told in {
        "futureThing": "futureThing",
        "catalogManaged": "catalog-managed",
    }.items():
        write_table(tmp_path, fields, files, features=[feature])
        with pytest.raises(TableFormatError, match=told):
            rows(f"file://{tmp_path}")


OUTSIDE = {
    "above": ("../../etc/passwd", "not in its own directory"),
    "above, encoded": ("%2E%2E/other/x.parquet", "not in its own directory"),
    "absolute": ("/etc/passwd", "not in its own directory"),
    "uri": ("file:///etc/passwd", "not in its own directory"),
    "with a zero": ("a%00b.parquet", "not in its own directory"),
    "other store": ("s3://bucket/x.parquet", "not in its own directory"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_log_that_points_elsewhere_is_refused(tmp_path, name):
    path, told = OUTSIDE[name]
    write_table(tmp_path / "t", [field("id", "long")], {path: (None, {})})
    with pytest.raises(TableFormatError, match=told):
        rows(f"file://{tmp_path}/t")


def test_a_refusal_shows_the_beginning_of_a_long_name(tmp_path):
    write_table(tmp_path / "t", [field("id", "long")], {"a" * 40_000 + ":x": (None, {})})
    with pytest.raises(TableFormatError, match="not in its own directory") as caught:
        rows(f"file://{tmp_path}/t")
    assert len(str(caught.value)) < 2000


def test_a_shallow_clone_is_refused_and_the_own_files_are_read_by_any_name(tmp_path):
    deltalake.write_deltalake(tmp_path / "source", two_columns(0, 6))
    (origin,) = (tmp_path / "source").glob("*.parquet")
    fields = [field(name, kind) for name, kind in LONG.items()]
    (tmp_path / "link").symlink_to(tmp_path / "source")
    linked = tmp_path / "link" / origin.name
    for uri in (f"file://{origin}", str(origin), f"file://{linked}"):
        files = {uri: (None, {}), "own.parquet": (two_columns(6, 8), {})}
        write_table(tmp_path / "clone", fields, files)
        with pytest.raises(TableFormatError, match="shallow clones"):
            rows(f"file://{tmp_path}/clone")
        write_table(tmp_path / "source", fields, {uri: (None, {"size": origin.stat().st_size})})
        assert len(rows(f"file://{tmp_path}/source")[1]) == 6


def test_missing_files_and_truncated_logs_are_named(tmp_path):
    path = tmp_path / "t"
    deltalake.write_deltalake(path, two_columns(0, 6))
    (data,) = path.glob("*.parquet")
    moved = data.rename(tmp_path / "elsewhere.parquet")
    with pytest.raises(DatasetNotFoundError, match=rf"{data.name} holds rows of .* vacuum"):
        rows(f"file://{path}")
    data.symlink_to(moved)  # whoever may write links may also copy files
    same(path)
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(DatasetNotFoundError, match="no file"):
        rows(f"file://{path}")
    log = path / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text()[:200])
    with pytest.raises(TableFormatError, match="cannot be read with deltalake"):
        rows(f"file://{path}")


def test_pipes_make_nothing_wait(tmp_path):
    deltalake.write_deltalake(tmp_path, two_columns(0, 6))
    os.mkfifo(tmp_path / "_delta_log" / f"{1:020}.json")
    with pytest.raises(TableFormatError, match="a pipe, a socket or a device"):
        rows(f"file://{tmp_path}")


def test_an_empty_table_has_columns_and_no_rows(tmp_path):
    deltalake.DeltaTable.create(tmp_path / "t", two_columns(0, 1).schema)
    with pytest.warns(UserWarning, match="No matching data"):
        assert rows(f"file://{tmp_path}/t") == (["id", "x"], [])
