"""Parquet stores become MDS: same rows for stock streaming and for the bridge, whole or not at all."""

import datetime as dt
import decimal
import inspect
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import read_table
from typer.testing import CliRunner

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources.parquet_files import CONVERSION_NAME
from petastorm_bridge.cli import app
from petastorm_bridge.cli._convert import _bytes
from petastorm_bridge.cli._convert import convert as convert_command
from petastorm_bridge.convert import UnsupportedColumnsError, _run, convert_dataset
from petastorm_bridge.convert._columns import ColumnPlan
from petastorm_bridge.convert._parts import Part, cut_parts
from petastorm_bridge.convert._work import ConversionError, compare
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.spark import make_spark_converter


def every_type(rows, first=0):
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "small": pa.array([i % 256 - 128 for i in numbers], pa.int8()),
            "ratio": pa.array([None if i % 11 == 0 else i / 3 for i in numbers], pa.float32()),
            "flag": [i % 2 == 0 for i in numbers],
            "text": [None if i % 7 == 0 else f"text {i}" for i in numbers],
            "label": pa.array([f"label {i % 3}" for i in numbers]).dictionary_encode(),
            "price": pa.array([decimal.Decimal(i) / 100 for i in numbers], pa.decimal128(12, 2)),
            "day": [dt.date(2020, 1, 1) + dt.timedelta(days=i % 9) for i in numbers],
            "seen": pa.array(
                [None if i % 5 == 0 else dt.datetime(2020, 1, 1, second=i % 60) for i in numbers],
                pa.timestamp("us", "UTC"),
            ),
            "ragged": pa.array(
                [None if i % 3 == 0 else list(range(i % 4)) for i in numbers], pa.list_(pa.int32())
            ),
            "vector": pa.array([[i, 0.5] for i in numbers], pa.list_(pa.float32(), 2)),
            "words": [["a", None, f"{i}"] for i in numbers],
        }
    )


def write_store(folder, files=3, rows=700):
    folder.mkdir()
    for number in range(files):
        pq.write_table(
            every_type(rows, number * rows), folder / f"{number}.parquet", row_group_size=300
        )
    return folder


def command(*arguments):
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def plain_rows(table):
    """Rows with NaN as None, which is what MDS has of null floats."""
    return [
        {name: None if value != value else value for name, value in row.items()}  # noqa: PLR0124
        for row in table.to_pylist()
    ]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convert")
    store = write_store(folder / "store")
    done = convert_dataset(
        store, folder / "mds", size_limit=20_000, compression="zstd:3", hashes=["sha1"], workers=2
    )
    return store, folder / "mds", done


def test_all_rows_in_order(converted):
    store, made, done = converted
    wanted = plain_rows(pq.read_table(store))
    assert plain_rows(read_table(open_dataset(str(made)))) == wanted
    assert done.rows == len(wanted) == 2100
    assert done.is_verified
    assert done.taken_over == 0
    files = sorted(path.name for path in made.iterdir())
    shards = json.loads((made / "index.json").read_text())["shards"]
    assert files == sorted(
        ["index.json", "petastorm_bridge_schema.json", *(s["zip_data"]["basename"] for s in shards)]
    )
    assert done.shards == len(shards) > 3
    assert done.size == sum((made / s["zip_data"]["basename"]).stat().st_size for s in shards)
    assert {tuple(s["zip_data"]["hashes"]) for s in shards} == {("sha1",)}


# Streaming leaves compressed files to the collector.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_stock_streaming_reads_it(converted, tmp_path):
    import streaming

    store, made, done = converted
    table = pq.read_table(store)
    wanted = table.to_pylist()
    dataset = streaming.StreamingDataset(
        remote=str(made), local=str(tmp_path / "cache"), shuffle=False, batch_size=1
    )
    assert len(dataset) == len(wanted)
    for row in (0, 1, 299, 300, 1400, 2099):
        sample, source = dataset[row], wanted[row]
        assert set(sample) == set(done.encodings)
        assert sample["id"] == source["id"]
        assert sample["small"] == source["small"]
        assert sample["label"] == source["label"]
        assert sample["price"] == source["price"]
        assert sample["text__is_null"] == (source["text"] is None)
        assert sample["text"] == (source["text"] or "")
        assert sample["ragged"].tolist() == (source["ragged"] or [])
        assert sample["vector"].tolist() == source["vector"]
        assert sample["words"] == source["words"]
        assert np.isnan(sample["ratio"]) == (source["ratio"] is None)


def test_the_bridge_reads_it_as_it_reads_the_store(converted, tmp_path):
    _, made, _ = converted
    plain = tmp_path / "plain"
    plain.mkdir()
    pq.write_table(every_type(2100).drop(["label", "vector"]), plain / "a.parquet")

    def rows(url, names):
        with make_batch_reader(
            f"file://{url}", names, shuffle_row_groups=False, reader_pool_type="dummy"
        ) as reader:
            return [
                tuple(map(str, row)) for batch in reader for row in zip(*batch, strict=True)
            ], reader.schema.fields.keys()

    names = ["^id$", "^small$", "^flag$", "^text$", "^price$", "^day$"]
    assert rows(made, names) == rows(plain, names)


def test_partitions_chosen_columns_and_one_file(tmp_path):
    for kind, year in (("a", 1), ("b", 2)):
        folder = tmp_path / "store" / f"kind={kind}" / f"year={year}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [1, 2], "m": [{"a": 1}, {"a": 2}]}), folder / "0.parquet")
    answer = command(tmp_path / "store", tmp_path / "all")
    assert answer.exit_code == 2
    assert "'m' (struct<a: int64>)" in answer.stderr
    assert "--columns kind,year,x" in answer.stderr
    assert not (tmp_path / "all").exists()
    answer = command(f"file://{tmp_path}/store", tmp_path / "some", "--columns", "x,kind,year")
    assert answer.exit_code == 0, answer.output
    assert read_table(open_dataset(str(tmp_path / "some"))).to_pydict() == {
        "kind": ["a", "a", "b", "b"],
        "year": [1, 1, 2, 2],
        "x": [1, 2, 1, 2],
    }
    file = tmp_path / "store/kind=a/year=1/0.parquet"
    assert command(file, tmp_path / "one", "--columns", "x", "-q").exit_code == 0
    assert read_table(open_dataset(str(tmp_path / "one"))).to_pydict() == {"x": [1, 2]}


def test_files_with_and_without_nulls_get_flags_alike(tmp_path):
    """Flags are seen to be needed when the last row has been read."""
    store = tmp_path / "store"
    store.mkdir()
    pq.write_table(pa.table({"x": pa.array([1, 2], pa.int32())}), store / "0.parquet")
    pq.write_table(pa.table({"x": pa.array([3, None], pa.int64())}), store / "1.parquet")
    done = convert_dataset(store, tmp_path / "mds", size_limit=1, workers=1)
    assert done.encodings == {"x": "int64", "x__is_null": "uint8"}
    assert read_table(open_dataset(done.path)).to_pydict() == {"x": [1, 2, 3, None]}
    assert not [name for name in os.listdir(done.path) if "conversion" in name]


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_run_that_ends_early_goes_on(tmp_path, how):
    store = write_store(tmp_path / "store", files=8, rows=3000)
    made = tmp_path / "mds"
    options = ["--size-limit", "100kb", "--workers", "1", "--no-verify"]
    run = [sys.executable, "-m", "petastorm_bridge", "convert", str(store), str(made), *options]
    with subprocess.Popen(run, stderr=subprocess.PIPE, text=True) as process:
        while not (made / CONVERSION_NAME / "part-00000.json").exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGINT)
        said = process.stderr.read()
    assert not (made / "index.json").exists()
    if how == "interrupted":
        assert process.returncode == 130
        assert "the same command goes on" in said
        assert "Traceback" not in said
    with pytest.raises(DatasetError, match="unfinished conversion"):
        make_batch_reader(f"file://{made}")

    other = command(store, made, "--size-limit", "1mb")
    assert other.exit_code == 2
    assert "unfinished conversion with other size limit" in other.stderr

    # A part whose shards are not what was noted is written anew.
    shard = next(made.glob("shard.00000.*.mds"))
    shard.write_bytes(shard.read_bytes()[:-1])
    before = sum(json.loads(p.read_text())["part"]["rows"] for p in made.glob("*/part-*.json"))
    damaged = json.loads((made / CONVERSION_NAME / "part-00000.json").read_text())["part"]["rows"]
    done = convert_dataset(store, made, size_limit=100 << 10, workers=2)
    assert done.taken_over == before - damaged
    assert done.rows == 24_000
    assert read_table(open_dataset(str(made))).column("id").to_pylist() == list(range(24_000))
    assert not (made / CONVERSION_NAME).exists()


def test_hashes_of_an_earlier_run_are_compared_in_any_case(tmp_path, monkeypatch):
    store = write_store(tmp_path / "store", files=3)
    made = tmp_path / "mds"
    few = {"workers": 1, "size_limit": 10_000, "verify": False}
    with monkeypatch.context() as patch:
        patch.setattr(
            _run, "commit_dataset", lambda *_, **__: 1 / 0
        )  # all is written but the index
        with pytest.raises(ZeroDivisionError):
            convert_dataset(store, made, **few)
    shard = next(made.glob("*.mds"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    done = convert_dataset(store, made, **few)
    assert 0 < done.taken_over < done.rows  # the damaged one was written again
    assert read_table(open_dataset(done.path))["id"].to_pylist() == list(range(done.rows))


def test_what_a_second_run_has_checked_is_said(tmp_path):
    store = write_store(tmp_path / "store", files=1)
    for hashes, checked in (("sha1", "hashes"), ("", "sizes")):
        arguments = (store, tmp_path / checked, "--hashes", hashes, "--no-verify", "-q")
        assert "Checked: nothing, as asked." in command(*arguments).output
        assert f"Checked: {checked} of what an earlier run wrote." in command(*arguments).output


def refused(code, text, *arguments):
    answer = command(*arguments)
    assert (answer.exit_code, text in answer.stderr) == (code, True), answer.stderr
    assert "Traceback" not in answer.output


def test_what_cannot_be_done_is_said_in_one_sentence(tmp_path):
    store = write_store(tmp_path / "store", files=1)
    made = tmp_path / "mds"
    refused(2, "overlap. Convert", store, store / "mds")
    refused(2, "overlap. Convert", store, store)
    refused(2, "overlap. Convert", store, tmp_path)
    refused(2, "no column 'nosuch'", store, made, "--columns", "id,nosuch")
    refused(2, "There is nothing at ", tmp_path / "nothing", made)
    refused(2, "--size-limit 'many'", store, made, "--size-limit", "many")
    refused(2, "No column is named. There are: ", store, made, "--columns", ",")
    refused(2, "DST is empty", store, "")
    refused(2, "/proc/there: No such file or directory. Give a place", store, "/proc/there")
    refused(2, "size limit of a shard is 0", store, made, "--size-limit", "0")
    refused(2, "number of workers is 0", store, made, "--workers", "0")
    refused(2, "rar", store, made, "--compression", "rar")
    refused(2, "md6", store, made, "--hashes", "md6")
    refused(2, "is in a store", store, "s3://bucket/mds")
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "empty/0.parquet")
    refused(2, "has no rows", tmp_path / "empty", made)
    (tmp_path / "delta/_delta_log").mkdir(parents=True)
    (tmp_path / "delta/_delta_log/00000000000000000000.json").write_text("{}")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "delta/0.parquet")
    refused(2, "is a Delta table", tmp_path / "delta", made)
    assert not made.exists()
    made.mkdir()  # an empty directory will do
    assert command(store, made).exit_code == 0
    again = command(store, made)
    assert again.exit_code == 0
    assert "Already converted by an earlier run" in again.output
    refused(2, "holds a dataset already", store, made, "--columns", "id")
    refused(2, "holds MDS shards already", made, tmp_path / "again")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("precious")
    refused(2, "is there already", store, tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["notes.txt"]
    os.truncate(store / "0.parquet", 100)
    refused(2, "cannot be read as Parquet", store, tmp_path / "damaged")


@pytest.mark.modern
@pytest.mark.slow
def test_a_full_disk_leaves_no_dataset(tmp_path):
    store = write_store(tmp_path / "store", files=2, rows=3000)
    script = (
        "import resource, sys; from petastorm_bridge.cli import app; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)); app()"
    )
    run = [sys.executable, "-c", script, "convert", str(store), str(tmp_path / "mds"), "--quiet"]
    ended = subprocess.run(run, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "File too large" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "mds/index.json").exists()
    assert command(store, tmp_path / "mds").exit_code == 0


@pytest.mark.modern
@pytest.mark.slow
def test_two_at_once_are_refused(tmp_path):
    store = write_store(tmp_path / "store", files=8, rows=3000)
    made = tmp_path / "mds"
    run = [sys.executable, "-m", "petastorm_bridge", "convert", str(store), str(made)]
    with subprocess.Popen([*run, "--size-limit", "100kb", "-q"]) as first:
        while not (made / CONVERSION_NAME / "plan.json").exists():
            time.sleep(0.001)
        first.send_signal(signal.SIGSTOP)
        try:
            refused(2, "Another process is converting", store, made, "--size-limit", "100kb")
        finally:
            first.send_signal(signal.SIGCONT)
        assert first.wait() == 0
    assert open_dataset(str(made)).num_rows == 24_000


def test_the_check_sees_every_kind_of_difference():
    table = every_type(50).drop(["label", "vector"])
    batch = table.combine_chunks().to_batches()[0]

    def check(stored):
        compare([batch], iter(stored), "a.parquet", lambda _: None)

    check([table.slice(0, 20), table.slice(20)])
    with pytest.raises(ConversionError, match="Rows from 20 on"):
        check([table.slice(0, 20)])
    with pytest.raises(ConversionError, match="more rows"):
        check([table, table.slice(0, 1)])
    for place, name in enumerate(table.schema.names):
        column = table.column(name).to_pylist()
        column[13] = column[14]
        other = table.set_column(place, name, pa.array(column, table.schema.field(name).type))
        with pytest.raises(ConversionError, match=f"Row 13 of a.parquet .* column '{name}'"):
            check([other])
    with pytest.raises(ConversionError, match="column 'id'"):
        check([table.set_column(0, "id", table["id"].cast(pa.int32()))])


def test_small_datasets_have_parts_for_several_workers():
    """And large ones parts of eight shards, whatever the number of workers."""
    for shards, parts in [(1, 1), (2, 1), (6, 3), (16, 8), (40, 8), (64, 8), (256, 32)]:
        cut = cut_parts([10] * (2 * shards), [50] * (2 * shards), 100)
        assert len(cut) == parts
        assert [part.start for part in cut] == [0, *(part.stop for part in cut[:-1])]
        assert sum(part.rows for part in cut) == 10 * 2 * shards


def test_names_of_parts_that_begin_like_others(tmp_path, monkeypatch):
    """Numbers have more digits beyond a hundred thousand parts."""
    pq.write_table(pa.table({"x": range(4)}), tmp_path / "0.parquet", row_group_size=2)
    parts = [Part(10_000, 0, 1, 2), Part(100_000, 1, 2, 2)]
    monkeypatch.setattr("petastorm_bridge.convert._run.cut_parts", lambda *_: parts)
    for was_finished in (False, True):
        done = convert_dataset(tmp_path / "0.parquet", tmp_path / "mds", workers=1)
        assert (done.was_finished, done.shards) == (was_finished, 2)


def test_types_that_mds_has_no_place_for_are_named(tmp_path):
    pq.write_table(pa.table({"n": [[[1]]], "m": [{"a": 1}]}), tmp_path / "0.parquet")
    with pytest.raises(
        UnsupportedColumnsError, match=r"'n' \(list.*'m' \(struct.*flatten them first"
    ):
        convert_dataset(tmp_path / "0.parquet", tmp_path / "mds")
    assert ColumnPlan({}, pa.schema([])).origin == "Parquet"


def test_shards_are_as_large_as_those_of_a_spark_converter():
    """A reader's batch is a shard, of which larger ones would take more memory than in Petastorm."""
    sizes = [
        inspect.signature(function).parameters[name].default
        for function, name in (
            (convert_dataset, "size_limit"),
            (make_spark_converter, "parquet_row_group_size_bytes"),
        )
    ]
    assert sizes[0] == sizes[1] == 32 << 20
    assert _bytes(inspect.signature(convert_command).parameters["size_limit"].default) == 32 << 20
