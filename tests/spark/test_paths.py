"""Converters made from a path: Parquet or MDS, read where they are, without Spark."""

import logging
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.spark import make_spark_converter

CONF = "petastorm.spark.converter.parentCacheDirUrl"


def ids_of(converter, **kwargs):
    options = {"num_epochs": 1, "shuffle_row_groups": False, **kwargs}
    with converter.make_torch_dataloader(**options) as loader:
        return [i for batch in loader for i in batch["id"].tolist()]


@pytest.fixture
def parquet(tmp_path):
    """Two Parquet files, and beside them what Spark leaves in a directory."""
    directory = tmp_path / "my table"
    directory.mkdir()
    for part in range(2):
        table = pa.table({"id": list(range(3 * part, 3 * part + 3))})
        pq.write_table(table, directory / f"part-{part:05}.snappy.parquet")
    (directory / "_SUCCESS").write_text("")
    (directory / ".part-00000.snappy.parquet.crc").write_text("x")
    (directory / "_temporary" / "0").mkdir(parents=True)
    (directory / "_temporary" / "0" / "part-00002.snappy.parquet").write_text("not data")
    return directory


@pytest.mark.parametrize("pattern", ["file://{}", "file:{}", "{}", "{}/", "file://{}/"])
def test_a_parquet_directory(parquet, pattern):
    path = pattern.format(parquet)
    converter = make_spark_converter(path)
    assert converter.cache_dir_url == path
    assert converter.file_urls == [
        f"file://{parquet}/part-0000{part}.snappy.parquet" for part in range(2)
    ]
    assert len(converter) == 6
    assert ids_of(converter) == list(range(6))


def test_a_single_parquet_file_and_a_pattern(parquet):
    one = make_spark_converter(f"file://{parquet}/part-00001.snappy.parquet")
    assert ids_of(one) == [3, 4, 5]
    every = make_spark_converter(f"{parquet}/*.parquet")
    assert (len(every), ids_of(every)) == (6, list(range(6)))


def test_partition_directories_are_walked_and_their_columns_named(tmp_path, caplog):
    for value in "ab":
        (tmp_path / f"k={value}").mkdir()
        pq.write_table(pa.table({"id": [ord(value)]}), tmp_path / f"k={value}" / "f.parquet")
    converter = make_spark_converter(str(tmp_path))
    assert ids_of(converter) == [97, 98]
    assert f"The partition columns ['k'] of {tmp_path} are not in the batches" in caplog.text


def test_dtype_and_codec_have_no_effect_on_a_path(parquet):
    assert len(make_spark_converter(str(parquet), dtype="bad", compression_codec="bad")) == 6


@pytest.mark.spark
@pytest.mark.difference("path-needs-no-conf")
def test_no_conf_is_needed(spark, cache_dir, parquet):
    spark.conf.unset(CONF)
    assert len(make_spark_converter(str(parquet))) == 6


@pytest.mark.smoke
@pytest.mark.spark
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_a_directory_that_the_bridge_wrote(spark, cache_dir, codec):
    made = make_spark_converter(spark.range(10, numPartitions=2), compression_codec=codec)
    converter = make_spark_converter(made.cache_dir_url)
    assert converter.file_urls == made.file_urls
    assert (len(converter), ids_of(converter)) == (10, list(range(10)))
    empty = make_spark_converter(make_spark_converter(spark.range(0)).cache_dir_url)
    assert len(empty) == 0


def test_a_directory_that_mosaics_writer_wrote(tmp_path):
    streaming = pytest.importorskip("streaming", reason="needs the streaming extra")
    with streaming.MDSWriter(
        out=str(tmp_path / "mds"), columns={"id": "int"}, compression="zstd", size_limit=500
    ) as writer:
        for number in range(100):
            writer.write({"id": number})
    converter = make_spark_converter(str(tmp_path / "mds"))
    assert len(converter) == 100
    assert len(converter.file_urls) > 1
    assert all(url.endswith(".mds.zstd") for url in converter.file_urls)
    assert ids_of(converter) == list(range(100))


# streaming's merge_index leaves the closing of the files it reads to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_directory_with_a_folder_for_every_partition(tmp_path):
    streaming = pytest.importorskip("streaming", reason="needs the streaming extra")
    from streaming.base.util import merge_index

    for part in range(2):  # as dataframe_to_mds leaves it
        with streaming.MDSWriter(out=str(tmp_path / str(part)), columns={"id": "int"}) as writer:
            for number in range(5):
                writer.write({"id": 5 * part + number})
    merge_index(str(tmp_path), keep_local=True)
    converter = make_spark_converter(str(tmp_path))
    assert converter.file_urls == [f"file://{tmp_path}/{p}/shard.00000.mds" for p in range(2)]
    assert (len(converter), ids_of(converter)) == (10, list(range(10)))


def test_a_missing_path_is_a_missing_file_and_sparks_exception(tmp_path):
    from pyspark.errors import AnalysisException

    with pytest.raises(
        FileNotFoundError, match=r"\[PATH_NOT_FOUND\].*nope.*Give the url"
    ) as caught:
        make_spark_converter(f"file://{tmp_path}/nope")
    assert isinstance(caught.value, AnalysisException)


def test_an_empty_path_or_directory_and_other_files_are_explained(tmp_path):
    with pytest.raises(ValueError, match="empty string"):
        make_spark_converter("")
    with pytest.raises(ValueError, match="neither Parquet files nor an MDS index"):
        make_spark_converter(str(tmp_path))
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"data.csv is not a Parquet file"):
        make_spark_converter(str(tmp_path))
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(DatasetError, match="not a usable MDS index"):
        make_spark_converter(str(tmp_path))


def test_small_files_are_warned_of_as_petastorm_does(parquet, caplog):
    make_spark_converter(str(parquet))
    sizes = [file.stat().st_size for file in sorted(parquet.glob("*.parquet"))]
    [message] = caplog.messages
    assert message == (
        f"The median size {sorted(sizes)[1]} B (< 50 MB) of the parquet files is too small. "
        f"Total size: {sum(sizes)} B. Increase the median file size by calling df.repartition(n) "
        "or df.coalesce(n), which might help improve the performance. Parquet files: "
        f"file://{parquet}/part-00000.snappy.parquet, ..."
    )


@pytest.mark.spark
@pytest.mark.difference("small-shards-are-fine")
def test_shards_of_a_conversion_are_not_warned_of(spark, cache_dir, caplog):
    caplog.set_level(logging.WARNING)
    frame = spark.range(2000, numPartitions=2)
    for _ in range(2):  # converted, and used again
        assert len(make_spark_converter(frame, 1000).file_urls) == 20
    assert caplog.messages == ["Converting floating-point columns to float32"]


def test_on_databricks_a_path_must_be_on_dbfs(parquet, monkeypatch):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
    with pytest.raises(ValueError, match="it must be a dbfs fuse path like 'file:/dbfs/xxx'"):
        make_spark_converter(f"file://{parquet}")
    with pytest.raises(FileNotFoundError, match="file:/dbfs/no/such"):
        make_spark_converter("dbfs:/no/such")


@pytest.mark.difference("databricks-volumes")
def test_on_databricks_a_path_may_be_in_a_volume(monkeypatch):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "15.4")
    for path in ("/Volumes/main/no", "dbfs:/Volumes/main/no", "file:///Volumes/main/no"):
        with pytest.raises(FileNotFoundError, match="/Volumes/main/no"):
            make_spark_converter(path)


@pytest.mark.slow
def test_no_spark_is_needed(parquet):
    script = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"
        "from petastorm_bridge.spark import make_spark_converter\n"
        "assert len(make_spark_converter(sys.argv[1])) == 6\n"
        "try:\n"
        "    make_spark_converter(sys.argv[1] + '/nope')\n"
        "except FileNotFoundError:\n"
        "    print('no such path')\n"
        "from petastorm_bridge.spark.spark_dataset_converter import _get_spark_session\n"
        "try:\n"
        "    _get_spark_session()\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(parquet)],
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
    )
    lines = finished.stdout.splitlines()
    assert lines[0] == "no such path"
    assert "petastorm-bridge[spark]" in lines[1]


def test_files_of_other_stores_are_counted_through_fsspec():
    fsspec = pytest.importorskip("fsspec", reason="the memory filesystem comes with fsspec")
    memory = fsspec.filesystem("memory")
    with memory.open("/bucket/t/part-0.parquet", "wb") as file:
        pq.write_table(pa.table({"id": [1, 2]}), file)
    converter = make_spark_converter("memory://bucket/t")
    assert (len(converter), converter.file_urls) == (2, ["memory://bucket/t/part-0.parquet"])
