"""Shards that are read instead of mapped: the same rows, and errors where mapping kills."""

import errno
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from datasets import read_table
from far_mount import far_mount, no_mount_because
from sample_datasets import ROWS, fixed_table, mixed_table, write

from petastorm_bridge.mds import access
from petastorm_bridge.mds.access import ACCESS_VARIABLE, file_system_type
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.errors import ShardCorruptedError
from petastorm_bridge.mds.files import open_regular
from petastorm_bridge.mds.shard import open_shard

MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:50 / /dbfs rw,relatime shared:1 master:2 - fuse.goofys s3 rw,user_id=0
41 27 0:51 /a\040b /mnt/a\040-\040b rw - nfs4 server:/x rw,vers=4.2
42 27 0:52 / /mnt/short rw
"""


@pytest.mark.parametrize(
    ("device", "type_", "is_far"),
    [
        ((254, 0), "ext4", False),
        ((0, 50), "fuse.goofys", True),
        ((0, 51), "nfs4", True),
        ((0, 52), "", False),
        ((0, 99), "", False),
    ],
)
def test_file_systems_that_may_fail(tmp_path, monkeypatch, device, type_, is_far):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_system_type(os.makedev(*device), str(mounts)) == type_
    monkeypatch.delenv(ACCESS_VARIABLE, raising=False)
    monkeypatch.setattr(access, "file_system_type", lambda _: type_)
    assert access.is_mapped(str(tmp_path)) == (not is_far)
    for mode in ("map", "read"):
        monkeypatch.setenv(ACCESS_VARIABLE, mode)
        assert access.is_mapped(str(tmp_path)) == (mode == "map")


@pytest.mark.parametrize(
    ("type_", "lasts"),
    [("ext4", True), ("", True), ("exfat", False), ("fuse", False), ("nfs", False)],
)
def test_inodes_that_tell_files_apart(tmp_path, monkeypatch, type_, lasts):
    monkeypatch.setattr(access, "file_system_type", lambda _: type_)
    assert access.has_lasting_inodes(str(tmp_path)) == lasts


def test_a_directory_that_was_not_there_is_looked_at_again(tmp_path, monkeypatch):
    """Whoever asked too early would otherwise map files of a mount that may fail."""
    monkeypatch.delenv(ACCESS_VARIABLE, raising=False)
    monkeypatch.setattr(access, "file_system_type", lambda _: "nfs")
    directory = tmp_path / "later"
    assert access.is_mapped(str(directory))
    assert access.has_lasting_inodes(str(directory))
    directory.mkdir()
    assert not access.is_mapped(str(directory))
    assert not access.has_lasting_inodes(str(directory))


def test_a_word_that_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv(ACCESS_VARIABLE, "mmap")
    directory = write(tmp_path, fixed_table())
    with pytest.raises(
        ValueError, match=r"SHARD_ACCESS is 'mmap'; it must be one of auto, map, read"
    ):
        read_table(open_dataset(directory))


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("table", [fixed_table(), mixed_table()], ids=["fixed", "mixed"])
def test_reading_gives_the_rows_of_mapping(tmp_path, monkeypatch, table, compression):
    directory = write(tmp_path, table, compression=compression)
    monkeypatch.setenv(ACCESS_VARIABLE, "read")
    read = read_table(open_dataset(directory))
    monkeypatch.setenv(ACCESS_VARIABLE, "map")
    assert read.equals(read_table(open_dataset(directory)))
    assert read.num_rows == ROWS


# For every mode and face, in a fork: cuts every shard short when the first rows are there, and reads on.
CUT_SHORT = """
import os, shutil, sys
import numpy as np
from petastorm_bridge import make_batch_reader
faces = ["make_batch_reader"]
try:
    from petastorm_bridge.streaming import ColumnarStreamingDataset, MappedStreamingDataset
    faces += ["columnar", "samples"]
except ImportError:
    pass
whole, place, variable = sys.argv[1:]

def rows(face, directory):
    if face == "make_batch_reader":
        with make_batch_reader("file://" + directory, num_epochs=1, workers_count=1) as reader:
            for batch in reader:
                yield np.sum(batch.v)
    elif face == "columnar":
        for batch in ColumnarStreamingDataset(local=directory, batch_size=10):
            yield np.sum(batch["v"])
    else:
        dataset = MappedStreamingDataset(local=directory, batch_size=10)
        for number in range(dataset.num_samples):
            yield np.sum(dataset[number]["v"])

def read(face, directory):
    for number, _ in enumerate(rows(face, directory)):
        if number == 0:
            for name in os.listdir(directory):
                if name.endswith(".mds"):
                    os.truncate(os.path.join(directory, name), 64)

for mode in ("map", "read"):
    for face in faces:
        directory = os.path.join(place, mode + "-" + face)
        shutil.copytree(whole, directory)
        child = os.fork()
        if child == 0:
            os.environ[variable] = mode
            try:
                read(face, directory)
            except BaseException as error:
                with open(directory + ".error", "w") as file:
                    file.write(type(error).__name__ + ": " + str(error))
                os._exit(1)
            os._exit(0)
        print(mode, face, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def cut_short(tmp_path_factory):
    """Where the datasets are, and how each process ended: {(mode, face): exit code}."""
    import pyarrow as pa

    place = tmp_path_factory.mktemp("cut")
    offsets = pa.array(np.arange(0, 3_000_001, 1000), pa.int32())
    wide = pa.ListArray.from_arrays(offsets, pa.array(np.ones(3_000_000)))
    directory = write(place / "whole", pa.table({"v": wide}), min_rows=100)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CUT_SHORT, directory, str(place), ACCESS_VARIABLE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    ends = {(mode, face): int(code) for mode, face, code in lines}
    killed = [end for end in ends.values() if end == -signal.SIGBUS]
    assert done.stderr.count("Fatal Python error: Bus error") == len(killed)
    return place, ends


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["map", "read"])
@pytest.mark.parametrize("face", ["make_batch_reader", "columnar", "samples"])
def test_a_shard_that_is_cut_short_while_it_is_read(cut_short, face, mode):
    if face != "make_batch_reader" and find_spec("streaming") is None:
        pytest.skip("streaming is not installed")
    place, ends = cut_short
    if mode == "map" and face == "samples":
        allowed = {-signal.SIGBUS}  # what the guide says of mapping
    elif mode == "map":  # the shards at hand are mapped, the next ones are opened later
        allowed = {1, -signal.SIGBUS}
    elif (
        face == "make_batch_reader"
    ):  # which copies files first, before or after they are cut short
        allowed = {0, 1}
    else:
        allowed = {1}
    assert ends[mode, face] in allowed
    if ends[mode, face] == 1 and face != "make_batch_reader":
        error = (place / f"{mode}-{face}.error").read_text()
        assert error.startswith(f"ShardCorruptedError: Shard {place}/{mode}-{face}")


HANDLED = """
import faulthandler, signal, sys
{before}
from petastorm_bridge.mds.access import load
load(sys.argv[1], mapped=True)
print(faulthandler.is_enabled(), signal.getsignal(signal.SIGBUS) == signal.SIG_DFL)
"""


@pytest.mark.parametrize(
    ("before", "state"),
    [
        ("", "True True"),
        ("faulthandler.enable(open(sys.argv[2], 'w'))", "True True"),
        ("signal.signal(signal.SIGBUS, print)", "False False"),
        ("signal.signal(signal.SIGSEGV, print)", "False True"),  # as Java's, which lives on them
        ("sys.__stderr__ = None", "False True"),
    ],
)
def test_handlers_of_the_program_stay(tmp_path, before, state):
    path = tmp_path / "file"
    path.write_bytes(b"x")
    command = [
        sys.executable,
        "-c",
        HANDLED.format(before=before),
        str(path),
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == state


def test_a_shard_that_shrinks_while_it_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with path.open("rb", buffering=0) as file:
        os.truncate(path, 40)
        with pytest.raises(ShardCorruptedError, match="bytes 0 to 100, found an end at 40"):
            access._read_whole(file, 100)


def test_reading_leaves_no_file_open(tmp_path, monkeypatch):
    monkeypatch.setenv(ACCESS_VARIABLE, "read")
    directory = write(tmp_path, fixed_table())
    before = len(os.listdir("/proc/self/fd"))
    dataset = open_dataset(directory)
    shards = [open_shard(dataset.directory, dataset.shards[0]) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(shards) == 50
    monkeypatch.setenv(ACCESS_VARIABLE, "map")
    shards = [open_shard(dataset.directory, dataset.shards[0]) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert Path(shards[0].path).exists()


def test_a_file_of_a_mount_that_ends_meanwhile_is_not_left_open(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"x")

    def status_of_a_lost_mount(descriptor):
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patches:
        patches.setattr(os, "fstat", status_of_a_lost_mount)
        with pytest.raises(OSError, match="not connected") as raised:
            open_regular(str(path))
    # The traceback still holds the frame that opened the file.
    assert raised.tb is not None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_large_file_is_read_in_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "_RANGE_BYTES", 1000)
    file = tmp_path / "file"
    for size in (999, 1000, 1001, 20_500):
        file.write_bytes(np.random.default_rng(size).bytes(size))
        data, status = access.load(str(file), mapped=False)
        assert data.tobytes() == file.read_bytes()
        assert status.st_size == size


@pytest.mark.skipif(no_mount_because() is not None, reason=str(no_mount_because()))
def test_a_far_file_is_read_by_several_requests_at_once(tmp_path):
    (tmp_path / "behind").mkdir()
    content = np.random.default_rng(0).bytes(16 << 20)
    (tmp_path / "behind" / "file").write_bytes(content)
    with far_mount(tmp_path / "behind", tmp_path / "far", seconds=0.01, bandwidth=1e9) as mount:
        data, _ = access.load(str(mount.path / "file"), mapped=False)
        counts = mount.counts()
    assert data.tobytes() == content
    assert counts["bytes_read"] == len(content)
    assert counts["in_sequence"] < counts["read"] / 2
