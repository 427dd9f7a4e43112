"""The handle that the writer returns, and where the directory is made."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import warm

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def directory(write_mds, spark, cache_dir):
    return write_mds(spark.range(50, numPartitions=2), size_limit=1 << 12)


@pytest.mark.smoke
def test_what_it_says(directory, cache_dir):
    assert len(directory) == directory.dataset_size == 50
    assert directory
    assert os.path.dirname(directory.path) == str(cache_dir)
    assert directory.local == directory.path
    assert directory.remote is None
    assert directory.cache_dir_url == f"file://{directory.path}"
    assert directory.file_urls
    assert all(os.path.exists(url.removeprefix("file://")) for url in directory.file_urls)
    kind = ", near" if type(directory).__module__ == "petastorm_bridge.native" else ""
    assert repr(directory) == f"MdsDirectory(path={directory.path!r}, dataset_size=50{kind})"


def test_one_that_is_there_is_opened_by_its_path(native, directory, loader):
    again = native.MdsDirectory(os.path.relpath(directory.path))
    assert again == native.MdsDirectory(directory.path, 50)
    assert again.path == directory.path
    assert native.MdsDirectory(directory.cache_dir_url) == again
    assert sorted(i for batch in loader(again) for i in batch["id"].tolist()) == list(range(50))
    with pytest.raises(FileNotFoundError, match=r"index\.json"):
        native.MdsDirectory(f"{directory.path}-of-nothing")


def test_copies_are_equal_and_small(directory):
    assert pickle.loads(pickle.dumps(directory)) == directory == copy.copy(directory)
    assert len({directory, copy.copy(directory)}) == 1
    assert len(pickle.dumps(directory)) < 400
    directory.next_seed()
    assert len(pickle.dumps(directory)) < 400
    directory._dataset_path = "as some programs do"
    assert copy.deepcopy(directory)._dataset_path == "as some programs do"


def test_deleted_twice(directory):
    assert os.path.exists(directory.path)
    directory.delete()
    assert not os.path.exists(directory.path)
    directory.delete()


def test_in_a_store(native):
    directory = native.MdsDirectory("s3://bucket/cache/one", 3)
    assert directory.remote == directory.cache_dir_url == "s3://bucket/cache/one"


def test_a_relative_place(write_mds, spark, tmp_path, monkeypatch, loader):
    monkeypatch.chdir(tmp_path)
    directory = write_mds(spark.range(3), out="some/place")
    assert directory.path == str(tmp_path / "some/place")
    (batch,) = loader(directory)
    assert sorted(batch["id"].tolist()) == [0, 1, 2]


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "{}"])
def test_places_as_urls(write_mds, spark, tmp_path, form):
    directory = write_mds(spark.range(3), form.format(tmp_path / "mds"))
    assert directory.path == str(tmp_path / "mds")


@pytest.mark.parametrize("compression", ["zstd:3", "gz"])
def test_compression_and_sizes(write_mds, spark, tmp_path, loader, compression):
    directory = write_mds(
        spark.range(4000, numPartitions=1),
        str(tmp_path / "mds"),
        compression=compression,
        size_limit=1 << 13,
    )
    assert len(directory.file_urls) > 3
    assert all(url.endswith(f".{compression[:2]}") or ".zstd" in url for url in directory.file_urls)
    ids = np.concatenate([batch["id"] for batch in loader(directory, batch_size=1000)])
    np.testing.assert_array_equal(ids, np.arange(4000))
    directory.delete()  # with what streaming has unpacked beside the shards
    assert not os.path.exists(directory.path)


def test_partitions_without_rows(write_mds, spark, tmp_path, loader):
    frame = spark.range(30, numPartitions=6).where("id < 5 or id > 22")
    directory = write_mds(frame, str(tmp_path / "mds"))
    assert len(directory) == 12
    ids = np.concatenate([batch["id"] for batch in loader(directory)])
    np.testing.assert_array_equal(ids, [*range(5), *range(23, 30)])


def test_one_evaluation(write_mds, spark, tmp_path):
    """What an expression gives once is what is looked at for nulls, and what is written."""
    counter = spark.sparkContext.accumulator(0)

    def counted(rows):
        for row in rows:
            counter.add(1)
            yield (row.id, None if row.id == 3 else row.id)

    frame = spark.createDataFrame(
        spark.range(40, numPartitions=2).rdd.mapPartitions(counted), "id long, holes long"
    )
    directory = write_mds(frame, str(tmp_path / "mds"))
    assert len(directory) == 40
    assert counter.value == 40


@pytest.mark.modern
def test_other_processes_need_no_spark(directory):
    code = (
        "import pickle, sys; sys.modules['pyspark'] = None; "
        "directory = pickle.loads(sys.stdin.buffer.read()); "
        "print(len(directory), len(directory.file_urls))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(directory), capture_output=True, check=True
    )
    assert done.stdout.decode().split() == ["50", str(len(directory.file_urls))]


def test_pickles_by_the_name_that_programs_import(spark, cache_dir):
    from petastorm_bridge import native

    directory = native.write_mds(spark.range(3))
    assert type(directory) is native.MdsDirectory
    assert native.MdsDirectory.__module__ == "petastorm_bridge.native"
    assert b"petastorm_bridge.native\x94" in pickle.dumps(directory, protocol=4)
    key = "petastorm.spark.converter.parentCacheDirUrl"
    assert key == native.MdsDirectory.PARENT_CACHE_DIR_URL_CONF


def test_what_is_not_ours_is_not_deleted(spark, cache_dir, tmp_path):
    from petastorm_bridge import native

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept").write_text("kept")
    native.MdsDirectory(str(tmp_path / "mine"), 3).delete()
    assert (tmp_path / "mine" / "kept").exists()


@pytest.mark.modern
def test_goes_when_python_exits(native, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib, sys\n"
        "from pyspark.sql import SparkSession\n"
        "builder = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')\n"
        "spark = builder.config('petastorm.spark.converter.parentCacheDirUrl', sys.argv[2]).getOrCreate()\n"
        "write_mds = importlib.import_module(sys.argv[1]).write_mds\n"
        "print('path:' + write_mds(spark.range(3)).path)\n"
        "kept = write_mds(spark.range(3), sys.argv[3])\n"
    )
    url, kept = (tmp_path / "parent").as_uri(), tmp_path / "kept"
    done = warm.run(
        [sys.executable, str(script), native.__name__, url, str(kept)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "path:" in done.stdout, done.stderr[-3000:]
    path = done.stdout.split("path:")[1].split()[0]
    assert os.path.dirname(path) == str(tmp_path / "parent")
    assert not os.path.exists(path)
    assert (kept / "index.json").exists()


def test_the_bridge_reads_it_as_petastorm_would(spark, tmp_path):
    """Calls that stay on the bridge, over the same directory."""
    from petastorm_bridge import native
    from petastorm_bridge.spark import make_spark_converter

    frame = spark.range(9, numPartitions=2).selectExpr(
        "id", "id > 3 as flag", "timestamp'2020-01-02' as at", "if(id = 1, null, int(id)) as holes"
    )
    directory = native.write_mds(frame, str(tmp_path / "mds"))
    converter = make_spark_converter(directory.cache_dir_url)
    assert len(converter) == 9
    seen = []
    spec = native.PandasCollate(
        lambda rows: seen.append(rows.dtypes.astype(str).to_dict()) or rows, removed_fields=["at"]
    )
    with converter.make_torch_dataloader(
        batch_size=9, num_epochs=1, shuffle_row_groups=False, transform_spec=spec
    ) as batches:
        (batch,) = batches
    assert batch["id"].tolist() == list(range(9))
    assert str(batch["flag"].dtype) == "torch.uint8"
    assert str(batch["holes"].dtype) == "torch.float64"
    assert seen[0]["flag"] == "bool"
    assert seen[0]["at"] == "datetime64[ns]"
