"""Conversions of stores of Parquet into a mount that refuses what mounts of object stores refuse."""

import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import read_table
from far_mount import far_mount, no_mount_because

from petastorm_bridge import convert
from petastorm_bridge._sources.parquet_files import CONVERSION_NAME
from petastorm_bridge.convert import convert_dataset
from petastorm_bridge.convert._parts import cut_parts
from petastorm_bridge.convert._work import write_part
from petastorm_bridge.mds.dataset import open_dataset

pytestmark = [
    pytest.mark.modern,
    pytest.mark.slow,
    pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because())),
]

ROWS = 4000
OPTIONS = {"size_limit": 500, "workers": 2}


@pytest.fixture
def store(tmp_path):
    """Forty row groups in eight parts; only the first has a null: other shards are written again."""
    values = pa.array([None, *range(1, ROWS)], pa.int64())
    pq.write_table(pa.table({"x": values}), tmp_path / "store.parquet", row_group_size=100)
    (tmp_path / "behind").mkdir()
    return tmp_path / "store.parquet"


def is_whole(place):
    names = os.listdir(place)
    assert CONVERSION_NAME not in names
    assert not [name for name in names if name.endswith(".tmp")]
    assert read_table(open_dataset(str(place)))["x"].to_pylist() == [None, *range(1, ROWS)]


@pytest.mark.parametrize("renaming", [True, False])
def test_converted_and_found_again(store, tmp_path, renaming):
    with far_mount(
        tmp_path / "behind", tmp_path / "far", seconds=0.0005, refusing=True, renaming=renaming
    ) as mount:
        first = convert_dataset(store, mount.path / "made", **OPTIONS)
        second = convert_dataset(store, mount.path / "made", **OPTIONS)
    assert (first.rows, first.was_finished, second.was_finished) == (ROWS, False, True)
    is_whole(tmp_path / "behind" / "made")


@pytest.mark.parametrize("verify", [True, False])
def test_shards_are_read_back_only_to_be_compared(tmp_path, verify):
    pq.write_table(pa.table({"x": range(ROWS)}), tmp_path / "store.parquet", row_group_size=100)
    (tmp_path / "behind").mkdir()
    with far_mount(tmp_path / "behind", tmp_path / "far", seconds=0) as mount:
        made = mount.path / "made"
        done = convert_dataset(tmp_path / "store.parquet", made, verify=verify, **OPTIONS)
        counts = mount.counts()
    assert counts["bytes_written"] > done.size
    read = counts.get("bytes_read", 0)
    assert read >= done.size if verify else read == 0


PROGRAM = """
import sys
from petastorm_bridge.convert import convert_dataset
done = convert_dataset(sys.argv[1], sys.argv[2], size_limit=500, workers=2)
print(done.taken_over)
"""


def start(store, place):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(store), str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("renaming", [True, False])
def test_a_killed_conversion_goes_on(store, tmp_path, renaming):
    behind = tmp_path / "behind"
    with far_mount(
        behind, tmp_path / "far", seconds=0.002, refusing=True, renaming=renaming
    ) as mount:
        with start(store, mount.path / "made") as killed:
            end = time.monotonic() + 60
            while len(list(behind.glob(f"made/{CONVERSION_NAME}/part-*.json"))) < 4:
                assert killed.poll() is None, killed.stderr.read()
                assert time.monotonic() < end
                time.sleep(0.01)
            killed.send_signal(signal.SIGKILL)
        assert not (behind / "made" / "index.json").exists()
        again = convert_dataset(store, mount.path / "made", **OPTIONS)
    # A note does not wait for its shard: those of both workers may have been on their way.
    assert again.taken_over >= (4 - 2) * 500
    is_whole(behind / "made")


@pytest.mark.slow
@pytest.mark.parametrize("renaming", [True, False])
def test_two_machines_at_once(store, tmp_path, renaming):
    """A mount for each, so that neither sees the other's lock: what is there in the end is whole."""
    behind = tmp_path / "behind"
    options = {"seconds": 0.001, "refusing": True, "renaming": renaming}
    with (
        far_mount(behind, tmp_path / "one", **options) as one,
        far_mount(behind, tmp_path / "other", **options) as other,
        start(store, one.path / "made") as first,
        start(store, other.path / "made") as second,
    ):
        errors = [process.communicate()[1] for process in (first, second)]
        codes = [first.returncode, second.returncode]
        if any(codes):  # who met the other says so, and finds it finished the next time
            print(errors)
            convert_dataset(store, one.path / "made", **OPTIONS)
    assert 0 in codes, errors
    is_whole(behind / "made")


def test_who_fails_deletes_nothing_of_a_dataset(store, tmp_path, monkeypatch):
    """Where no lock keeps two apart, the slower one finds its notes gone and the dataset whole."""
    made = tmp_path / "made"
    setups = []
    with monkeypatch.context() as patch:
        patch.setattr(convert, "convert", lambda setup, *_: setups.append(setup))
        convert_dataset(store, made, **OPTIONS)
    convert_dataset(store, made, **OPTIONS)
    (setup,) = setups
    part = cut_parts(setup.source.row_counts, setup.sizes, setup.size_limit)[0]
    with pytest.raises(BlockingIOError, match="Another process"):
        write_part(setup, lambda rows: None, part, False)
    is_whole(made)
