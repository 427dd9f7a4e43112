"""What is on a mount of the network is asked for many things at once, not for one file after the other."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from far_mount import far_mount, no_mount_because

from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter
from petastorm_bridge.spark import make_spark_converter
from petastorm_bridge.spark._directory.conversions import identity_of

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because())),
]

FILES = 40


@pytest.fixture
def mount(tmp_path):
    (tmp_path / "behind").mkdir()
    with far_mount(tmp_path / "behind", tmp_path / "far", seconds=0.01) as mount:
        yield mount


def look_at_all(folder):
    """Have Linux know the names, which it looks up one after the other for libfuse 2, but not what they are."""
    for path in folder.iterdir():
        path.stat()
    time.sleep(1.1)  # for as long it keeps the answers


def write_parquet(folder):
    folder.mkdir()
    for number in range(FILES):
        pq.write_table(pa.table({"id": [number]}), folder / f"{number:05}.parquet")


def write_shards(folder, compression):
    folder.mkdir()
    batch = pa.RecordBatch.from_pydict({"id": np.arange(1000)})
    writer = ShardWriter(batch.schema, str(folder), size_limit=8000, compression=compression)
    for _ in range(FILES // 2):
        writer.write(batch)
    infos = writer.finish()
    assert len(infos) > FILES / 2
    commit_dataset(str(folder), batch.schema, infos)


def test_footers_of_parquet_files(mount):
    write_parquet(mount.behind / "data")
    mount.start_counting()
    converter = make_spark_converter(str(mount.path / "data"))
    assert (len(converter), len(converter.file_urls)) == (FILES, FILES)
    counts = mount.counts()
    assert counts["open"] >= FILES
    # Arrow's listing asks for one after the other; opening and reading each would be several times as many.
    assert counts["in_sequence"] < 2 * FILES


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_shards(mount, compression):
    """Those that are not compressed have one name only, which the index says."""
    write_shards(mount.behind / "data", compression)
    look_at_all(mount.path / "data")
    mount.start_counting()
    files = make_spark_converter(str(mount.path / "data")).file_urls
    counts = mount.counts()
    assert (counts["getattr"] > len(files)) == (compression is not None)
    assert counts["in_sequence"] < len(files) / 2


def test_source_files_of_a_dataframe(mount):
    write_parquet(mount.behind / "data")

    class Frame:
        schema = type("Schema", (), {"fields": ()})

        def inputFiles(self):  # noqa: N802
            return [f"file://{mount.path}/data/{number:05}.parquet" for number in range(FILES)]

        def semanticHash(self):  # noqa: N802
            return 1

    look_at_all(mount.path / "data")
    mount.start_counting()
    files = identity_of(Frame(), "options").files
    assert len(files) == FILES
    assert None not in files
    counts = mount.counts()
    assert counts["getattr"] >= FILES
    assert counts["in_sequence"] < FILES / 2
