"""Directories of Delta and Iceberg tables: refused as plain Parquet, and nothing else is."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import petastorm_bridge
from petastorm_bridge._sources import table_formats
from petastorm_bridge._sources.table_formats import TableFormatError, _places
from petastorm_bridge.spark import make_spark_converter

DELTA = ["t/_delta_log/00000000000000000000.json"]
CLEANED = ["t/_delta_log/_last_checkpoint", "t/_delta_log/00000000000000000010.checkpoint.parquet"]
ICEBERG = ["t/metadata/00001-aaaa.metadata.json", "t/metadata/snap-1.avro"]


def write(root, data, others=()):
    for path in data:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [1, 2]}), root / path)
    for path in others:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("{}")


def ids(url, package=petastorm_bridge):
    with package.make_batch_reader(url, reader_pool_type="dummy") as reader:
        return [i for group in reader for i in group.id.tolist()]


TABLES = {
    "Delta": (["t/a.parquet"], DELTA, "t", "t"),
    "Delta, log cleaned": (["t/a.parquet"], CLEANED, "t", "t"),
    "Delta partition": (["t/k=1/j=2/a.parquet"], DELTA, "t/k=1", "t"),
    "Delta partition below": (["t/k=1/j=2/a.parquet"], DELTA, "t/k=1/j=2", "t"),
    "Delta with random prefixes": (["t/x7/a.parquet"], DELTA, "t/x7", "t"),
    "Iceberg": (["t/data/a.parquet"], ICEBERG, "t", "t"),
    "Iceberg data": (["t/data/a.parquet"], ICEBERG, "t/data", "t"),
    "Iceberg partition": (["t/data/k=1/a.parquet"], ICEBERG, "t/data/k=1", "t"),
}


@pytest.mark.difference("log-tables-are-read")
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("slash", ["", "/"])
def test_tables_with_a_log_are_refused(tmp_path, name, slash):
    data, log, asked, table = TABLES[name]
    write(tmp_path, data, log)
    kind = name.split(maxsplit=1)[0].strip(",").lower()
    for open_it in (petastorm_bridge.make_batch_reader, make_spark_converter):
        with pytest.raises(TableFormatError) as caught:
            open_it(f"file://{tmp_path / asked}{slash}")
        assert isinstance(caught.value, ValueError)
        way_out = f"make_spark_converter(spark.read.format(\"{kind}\").load('{tmp_path / table}'))"
        assert way_out in str(caught.value)


@pytest.mark.difference("log-tables-are-read")
def test_petastorm_reads_deleted_rows(tmp_path):
    petastorm = pytest.importorskip("petastorm", reason="shows what the original does")
    write(tmp_path, ["t/deleted.parquet", "t/live.parquet"], DELTA)
    assert ids(f"file://{tmp_path}/t", petastorm) == [1, 2, 1, 2]


def test_a_list_of_live_files_is_read(tmp_path):
    write(tmp_path, ["t/live.parquet", "t/deleted.parquet"], DELTA)
    assert ids([f"file://{tmp_path}/t/live.parquet"]) == [1, 2]
    assert ids(f"file://{tmp_path}/t/live.parquet") == [1, 2]


ORDINARY = {
    "empty log": (["t/a.parquet"], ["t/_delta_log/notes.txt"]),
    "log is a file": (["t/a.parquet"], ["t/_delta_log"]),
    "metadata of another kind": (["t/data/a.parquet"], ["t/metadata/schema.json"]),
    "file of that name": (["t/a.parquet"], ["t/_x.metadata.json"]),
    "log of a neighbour": (["t/a.parquet"], ["u/_delta_log/00000000000000000000.json"]),
    "log further up": (["t/data/deep/a.parquet"], ["_delta_log/00000000000000000000.json"]),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_directories_are_read(tmp_path, name):
    data, others = ORDINARY[name]
    write(tmp_path, data, others)
    assert ids(f"file://{(tmp_path / data[0]).parent}") == [1, 2]


def test_directories_above_that_may_not_be_looked_at_are_no_reason_to_fail(tmp_path):

    class Closed(fs.LocalFileSystem):
        def get_file_info(self, _):
            raise PermissionError("not yours")

    table_formats.refuse_table_formats(Closed(), str(tmp_path))


def test_a_relative_path_and_the_root_have_no_place_above():

    assert list(_places("k=1")) == ["k=1"]
    assert list(_places("/")) == []
    assert list(_places("bucket/t/k=1/")) == ["bucket/t/k=1", "bucket/t", "bucket"]
