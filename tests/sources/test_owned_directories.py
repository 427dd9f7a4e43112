"""Directories for copies: gone with their process, however that ends, and nobody else's touched."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from forks import in_fork, in_process

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources import owned
from petastorm_bridge._sources.owned import OwnedDirectory
from petastorm_bridge._sources.remote import CACHE_VARIABLE
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

PREFIX = "petastorm-bridge-cache-"
PATH = os.pathsep.join(p for p in sys.path if p)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty temporary directory, of this test and its children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr("petastorm_bridge._sources.remote._process_root", None)
    monkeypatch.setattr(owned, "_cleared", set())
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    return folder


@pytest.fixture
def dataset():
    """URL of a dataset of 3 shards in `memory://`, without hashes in its index."""
    store = fsspec.filesystem("memory")
    store.store.clear()
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"id": np.arange(30)})
        writer = ShardWriter(
            table.schema, folder, prefix="shard", size_limit=1, min_rows=10, hashes=()
        )
        for batch in table.to_batches(max_chunksize=10):
            writer.write(batch)
        commit_dataset(folder, table.schema, writer.finish())
        store.put(f"{folder}/", "/bucket/data", recursive=True)
    yield "memory://bucket/data"
    store.store.clear()


def open_reader(url):
    # With options fsspec is used, which is imported in a moment.
    return make_batch_reader(url, storage_options={"skip_instance_cache": False})


def read(url):
    with open_reader(url) as reader:
        assert sum(len(group.id) for group in reader) == 30


def copies(folder):
    return [path for path in folder.rglob("*.mds") if path.is_file()]


SCRIPT = """
    import os, sys, time
    from petastorm_bridge._sources.owned import OwnedDirectory

    directory = OwnedDirectory(sys.argv[1], "petastorm-bridge-cache-")
    open(os.path.join(directory.path, "shard.mds"), "w").close()
    print(directory.path, flush=True)
    {then}
"""


def start(place, then="time.sleep(300)"):
    """A process with a directory of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT.format(then=then)), str(place)],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": PATH},
    )  # fmt: skip
    path = Path(process.stdout.readline().strip())
    return process, path


def finish(process):
    process.communicate(timeout=60)
    return process.returncode


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_leaves_no_copies(place, dataset, method):
    if method == "spawn":  # memory:// is of this process alone; the directory is not
        assert in_process(method, OwnedDirectory, str(place), PREFIX) == 0
    else:
        assert in_process(method, read, dataset) == 0
    assert list(place.iterdir()) == []


def test_a_child_leaves_its_parents_directory_alone(place, dataset):
    read(dataset)
    ours = list(place.iterdir())
    assert in_process("fork", read, dataset) == 0
    assert in_process("fork", time.sleep, 0) == 0
    assert in_fork(lambda: os._exit(0)) == ""
    assert list(place.iterdir()) == ours


@pytest.mark.parametrize(
    ("then", "code"), [("pass", 0), ("sys.exit(3)", 3), ("raise KeyboardInterrupt", -2)]
)
def test_an_ordinary_end_leaves_nothing(place, then, code):
    process, path = start(place, then)
    assert finish(process) == code
    assert not path.exists()


def test_the_next_process_clears_away_those_of_killed_ones(place):
    killed, left = start(place)
    killed.kill()
    finish(killed)
    hard, also_left = start(place, "os._exit(0)")
    finish(hard)
    assert not left.exists()
    assert also_left.exists()
    living, kept = start(place)
    try:
        assert not also_left.exists()
        next_one, path = start(place, "pass")
        finish(next_one)
        assert not path.exists()
        assert (kept / "shard.mds").exists()
    finally:
        living.kill()
        finish(living)


def test_a_living_fork_of_a_killed_process_keeps_its_directory(place):
    process, path = start(
        place, "child = os.fork(); print(child, flush=True) if child else 0; time.sleep(300)"
    )
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        finish(start(place, "pass")[0])
        assert path.exists()
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()
    deadline = time.monotonic() + 10
    while path.exists() and time.monotonic() < deadline:  # the system needs a moment to unlock
        finish(start(place, "pass")[0])
    assert not path.exists()


def dead_directory(place):
    """The directory of a process that has ended by `os._exit`."""
    process, path = start(place, "os._exit(0)")
    finish(process)
    assert path.exists()
    return path


def _without_mark(path):
    (path / owned._LOCK_NAME).unlink()


def _with_another_mark(path):
    (path / owned._LOCK_NAME).write_text("{}")


def _of_another_machine(path):
    mark = path / owned._LOCK_NAME
    boot = Path(owned._BOOT_ID).read_text().strip()
    mark.write_text(mark.read_text().replace(boot, "00000000-0000-0000-0000-000000000000"))


def _with_a_fifo_for_a_mark(path):
    _without_mark(path)
    os.mkfifo(path / owned._LOCK_NAME)


def _with_a_linked_mark(path):
    shutil.move(path / owned._LOCK_NAME, path.parent / "mark")
    (path / owned._LOCK_NAME).symlink_to(path.parent / "mark")


def _another_name(path):
    shutil.copytree(path, f"{path}x")
    shutil.rmtree(path)


@pytest.mark.parametrize(
    "change",
    [
        _without_mark, _with_another_mark, _of_another_machine, _with_a_fifo_for_a_mark,
        _with_a_linked_mark, _another_name,
    ],
)  # fmt: skip
def test_what_is_not_certain_to_be_a_dead_ones_is_kept(place, change):
    path = dead_directory(place)
    change(path)
    before = sorted(place.rglob("*"))
    OwnedDirectory(str(place), PREFIX).remove()
    assert sorted(place.rglob("*")) == before
    assert copies(place)


def test_links_are_not_followed(place, tmp_path):
    path = dead_directory(place)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)
    OwnedDirectory(str(place), PREFIX).remove()
    assert copies(elsewhere)
    path.unlink()
    shutil.move(elsewhere, path)
    mine = tmp_path / "precious"
    mine.mkdir()
    (mine / "file").touch()
    (path / "within").symlink_to(mine)
    owned._cleared.clear()
    OwnedDirectory(str(place), PREFIX).remove()
    assert not path.exists()
    assert (mine / "file").exists()


def test_other_users_directories_are_kept(place, monkeypatch):
    path = dead_directory(place)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    OwnedDirectory(str(place), PREFIX).remove()
    assert path.exists()


def test_two_that_clear_at_once_do_not_disturb_each_other(place):
    left = [dead_directory(place) for _ in range(2)]
    processes = [start(place, "pass")[0] for _ in range(3)]
    assert [finish(process) for process in processes] == [0, 0, 0]
    assert not any(path.exists() for path in left)


def test_without_locks_of_the_file_system_a_directory_goes_with_its_process(place, monkeypatch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    directory = OwnedDirectory(str(place), PREFIX)
    assert list(Path(directory.path).iterdir()) == []
    OwnedDirectory(str(place), PREFIX).remove()
    assert os.path.isdir(directory.path)
    directory.remove()
    assert list(place.iterdir()) == []


def test_copies_for_one_reader_alone_are_cleared_in_a_named_directory(place, dataset, monkeypatch):
    """Datasets without hashes share no copies; a killed process left its own."""
    named = place / "named"
    monkeypatch.setenv(CACHE_VARIABLE, str(named))
    reader = open_reader(dataset)

    def leave():
        own = open_reader(dataset)
        next(own)
        os._exit(0)

    with reader:
        next(reader)
        assert in_fork(leave) == ""
        assert len(list(named.iterdir())) == 2
        owned._cleared.clear()
        read(dataset)
        (kept,) = named.iterdir()
        assert copies(kept)
    del reader
    assert list(named.iterdir()) == []


def test_children_that_fork_from_a_pool_leave_nothing(place, dataset):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(read, [dataset] * 4)
        pool.close()
        pool.join()
    assert list(place.iterdir()) == []
