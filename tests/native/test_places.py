"""Where stock streaming reads from: the directory itself, or this machine's copies of a far one."""

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import warm
from prefixes import reserve, unused

pytestmark = [pytest.mark.modern, pytest.mark.filterwarnings("ignore")]

# Both forms have the same code for copies on this machine.
ONE_FORM = pytest.mark.parametrize("native", ["copied"], indirect=True)

ROWS = 600
SCRIPT = Path(__file__).parent / "run_reader.py"


def write(streaming, path, first=0):
    """Write a directory of several shards of one size, whatever the numbers are."""
    writer = streaming.MDSWriter(
        out=str(path), columns={"id": "int64"}, size_limit=1 << 11, hashes=["sha1"]
    )
    with writer:
        for number in range(first, first + ROWS):
            writer.write({"id": np.int64(number)})


def ids(loader):
    return sorted(i for batch in loader for i in batch["id"].tolist())


@pytest.fixture
def path(streaming, tmp_path):
    write(streaming, tmp_path / "far")
    return tmp_path / "far"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PETASTORM_BRIDGE_LOCAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def directory(native, path, cache, monkeypatch):
    """A handle of a directory that seems to lie on a mount of the network."""
    monkeypatch.setattr(native.MdsDirectory, "_is_far", lambda directory: True)
    return native.MdsDirectory(str(path), ROWS)


@pytest.mark.parametrize(
    ("kind", "is_far"), [("ext4", False), ("fuse", True), ("fuse.gcsfuse", True), ("nfs4", True)]
)
def test_the_kind_of_mount_decides(native, tmp_path, monkeypatch, kind, is_far):
    support = sys.modules[native.UnsupportedColumnsError.__module__]
    device = os.stat(tmp_path).st_dev
    mount = f"36 35 {os.major(device)}:{os.minor(device)} / /far rw,noatime - {kind} server:/x rw\n"
    monkeypatch.setattr(support, "open", lambda *_, **__: io.StringIO(mount), raising=False)
    directory = support.MdsDirectory(str(tmp_path), 3)
    assert directory.remote == (str(tmp_path) if is_far else None)
    assert support.MdsDirectory("s3://bucket/x", 3).remote == "s3://bucket/x"


def test_both_forms_know_the_same_mounts(installed):
    from petastorm_bridge.mds import access

    assert access._FAR_TYPES >= installed.support._NETWORK_MOUNTS


def test_near_directories(native, path):
    directory = native.MdsDirectory(str(path), ROWS)
    assert (directory.remote, directory.local) == (None, str(path))
    gone = native.MdsDirectory(str(path / "gone"), ROWS)
    assert (gone.remote, gone.local) == (None, str(path / "gone"))


def test_two_loaders_at_once_and_a_third_that_finds_their_files(directory, loader, cache):
    pair = [loader(directory, batch_size=50, shuffle=True) for _ in range(2)]
    assert len(list(zip(*pair, strict=True))) == 12
    assert ids(pair[0]) == ids(pair[1]) == list(range(ROWS))
    third = loader(directory, batch_size=50)
    (stream,) = third.dataset.streams
    assert stream.local.startswith(str(cache))
    links = [e.stat().st_nlink for e in os.scandir(stream.local) if e.name.endswith(".mds")]
    assert len(links) == 4
    assert min(links) > 1
    assert ids(third) == list(range(ROWS))


def test_what_is_incomplete_is_fetched(directory, loader):
    first = loader(directory, batch_size=50)
    assert ids(first) == list(range(ROWS))
    shard = os.path.join(first.dataset.streams[0].local, "shard.00002.mds")
    os.truncate(shard, 100)
    assert ids(loader(directory, batch_size=50)) == list(range(ROWS))


def test_compressed_shards(native, directory, streaming, loader, tmp_path):
    out = tmp_path / "compressed"
    columns = {"id": "int64"}
    with streaming.MDSWriter(out=str(out), columns=columns, compression="zstd") as writer:
        for number in range(9):
            writer.write({"id": np.int64(number)})
    compressed = native.MdsDirectory(str(out), 9)
    for _ in range(2):
        assert ids(loader(compressed)) == list(range(9))
    assert sorted(os.listdir(out)) == ["index.json", "shard.00000.mds.zstd"]


def test_what_is_written_anew_is_read(streaming, directory, loader, path):
    assert ids(loader(directory)) == list(range(ROWS))
    before = json.loads((path / "index.json").read_text())["shards"][0]["raw_data"]["bytes"]
    shutil.rmtree(path)
    write(streaming, path, first=10_000)
    after = json.loads((path / "index.json").read_text())["shards"][0]["raw_data"]["bytes"]
    assert before == after
    assert ids(loader(directory)) == list(range(10_000, 10_000 + ROWS))


def test_copies_go_with_the_directory(native, directory, loader, path, cache):
    other = native.MdsDirectory(str(path) + "/../far", ROWS)
    for each in (directory, other):
        assert ids(loader(each)) == list(range(ROWS))
    (root,) = cache.iterdir()
    assert len(list(root.iterdir())) == 2
    directory.delete_copies()
    assert len(list(root.iterdir())) == 1


def test_only_this_user_writes_to_the_copies(directory, cache, tmp_path):
    root = cache / f"mds-copies-{os.getuid()}"
    assert directory.local.startswith(str(root))
    assert root.stat().st_mode & 0o077 == 0
    root.chmod(0o777)
    with pytest.raises(PermissionError, match="others can write to it"):
        _ = directory.local
    shutil.rmtree(root)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="is a link"):
        _ = directory.local
    assert not list((tmp_path / "elsewhere").iterdir())


def test_databricks_own_disk(native, directory, tmp_path, monkeypatch):
    support = sys.modules[native.UnsupportedColumnsError.__module__]
    monkeypatch.delenv("PETASTORM_BRIDGE_LOCAL_CACHE")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert directory.local.startswith(str(tmp_path))
    monkeypatch.setattr(support, "_DATABRICKS_DISK", str(tmp_path / "disk"))
    assert directory.local.startswith(f"{tmp_path}/mds-copies-")
    (tmp_path / "disk").mkdir()
    assert directory.local.startswith(str(tmp_path / "disk"))


def read_command(native, path):
    return [sys.executable, str(SCRIPT), native.__name__, str(path), "far"]


@pytest.mark.slow
@ONE_FORM
def test_processes_at_once(native, directory, cache, tmp_path, prefixes):
    """As trials of a tuning run: each has a place, and reads all rows.

    Each has names for streaming's shared memory, too: stock datasets that begin at one moment may take the same.
    """
    programs = []
    free = unused(prefixes)
    for number in range(3):
        temporary = tmp_path / f"temporary {number}"
        temporary.mkdir()
        reserve(temporary, free[10 * number :])
        programs.append(
            subprocess.Popen(
                read_command(native, "-"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"TMPDIR": str(temporary)},
            )
        )
    for program in programs:
        program.stdin.write(pickle.dumps(directory))
        program.stdin.close()
    results = []
    for program in programs:
        with program.stdout:
            results.append(json.loads(program.stdout.read()))
        assert program.wait() == 0
    assert len({place for place, _ in results}) == 3
    assert all(sorted(rows) == list(range(ROWS)) for _, rows in results)
    assert any(os.path.isdir(place) for place, _ in results)  # the user named the folder


@pytest.mark.slow
@ONE_FORM
def test_a_place_of_the_past_makes_way_for_the_next(native, directory, path, cache):
    """A folder that the user named keeps the shards, and not a directory for each loader that there ever was."""
    done = subprocess.run(
        read_command(native, "-"), input=pickle.dumps(directory), capture_output=True, check=True
    )
    past = Path(json.loads(done.stdout)[0])
    inodes = {file.name: file.stat().st_ino for file in past.glob("*.mds")}
    assert len(inodes) > 3
    first, second = directory.local, directory.local
    assert not past.exists()
    for place in (first, second):  # both are in use
        assert {file.name: file.stat().st_ino for file in Path(place).glob("*.mds")} == inodes


@pytest.mark.slow
@ONE_FORM
def test_places_go_when_python_exits(native, path, tmp_path):
    (tmp_path / "tmp").mkdir()
    done = warm.run(
        read_command(native, path),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
    )
    place, rows = json.loads(done.stdout)
    assert place.startswith(str(tmp_path / "tmp"))
    assert sorted(rows) == list(range(ROWS))
    assert not os.path.exists(place)


@pytest.mark.slow
@ONE_FORM
def test_ranks_share_a_place(native, path, cache):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = warm.run(
        [sys.executable, *launcher, *read_command(native, path)[1:]],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len({place for place, _ in results}) == 1
    assert sorted(i for _, rows in results for i in rows) == list(range(ROWS))
