"""Directories for copies: gone with the last process that uses them, and nobody else's touched."""

import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from forks import in_fork, in_process

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources._far import ahead
from petastorm_bridge._sources._far import copies as room
from petastorm_bridge._sources._far.copies import CacheSettings, Copies
from petastorm_bridge._sources._far.limits import CACHE_VARIABLE, LIMIT_VARIABLE
from petastorm_bridge.mds.commit import commit_dataset
from petastorm_bridge.mds.writer import ShardWriter

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

NAME, OTHER = "0" * 32, "1" * 32
PATH = os.pathsep.join(p for p in sys.path if p)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty temporary directory, of this test and its children."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    monkeypatch.setattr(room, "_FAST_DISK", "/nowhere")
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


def directories(place):
    """Directories of datasets below the temporary directory."""
    return sorted(path for path in place.glob("petastorm-bridge-cache-*/*"))


SCRIPT = """
    import os, sys, time
    from petastorm_bridge._sources._far.copies import Copies

    copies = Copies(sys.argv[1])
    open(os.path.join(copies.path, "shard.mds"), "w").close()
    print(copies.path, flush=True)
    {then}
"""


def start(then="time.sleep(300)", name=NAME):
    """A process with copies of a dataset."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT.format(then=then)), name],
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
        assert in_process(method, Copies, NAME) == 0
    else:
        assert in_process(method, read, dataset) == 0
    assert directories(place) == []


def test_a_child_leaves_what_its_parent_uses(place):
    copies = Copies(NAME)
    assert in_process("fork", Copies, NAME) == 0
    assert in_process("fork", copies.hold) == 0
    assert in_fork(lambda: os._exit(0)) == ""
    assert [str(path) for path in directories(place)] == [copies.path]


@pytest.mark.parametrize(
    ("then", "code"), [("pass", 0), ("sys.exit(3)", 3), ("raise KeyboardInterrupt", -2)]
)
def test_an_ordinary_end_leaves_nothing(place, then, code):
    process, path = start(then)
    assert finish(process) == code
    assert not path.exists()


def test_the_last_process_removes_what_several_use(place):
    one, path = start()
    two, same = start()
    assert same == path
    one.kill()
    finish(one)
    assert finish(start("pass")[0]) == 0
    assert path.exists()
    two.kill()
    finish(two)
    assert finish(start("pass")[0]) == 0
    assert not path.exists()


def test_the_next_process_clears_away_those_of_killed_ones(place):
    killed, left = start()
    killed.kill()
    finish(killed)
    living, kept = start(name=OTHER)
    try:
        assert not left.exists()
        assert finish(start("pass")[0]) == 0
        assert (kept / "shard.mds").exists()
    finally:
        living.kill()
        finish(living)


def test_a_living_fork_of_a_killed_process_keeps_its_directory(place):
    process, path = start(
        "child = os.fork(); print(child, flush=True) if child else 0; time.sleep(300)"
    )
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        finish(start("pass", OTHER)[0])
        assert path.exists()
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()
    deadline = time.monotonic() + 10
    while path.exists() and time.monotonic() < deadline:  # the system needs a moment to unlock
        finish(start("pass", OTHER)[0])
    assert not path.exists()


def dead_directory(name=NAME):
    """The directory of a process that has ended by `os._exit`."""
    process, path = start("os._exit(0)", name)
    finish(process)
    assert path.exists()
    return path


def _without_mark(path):
    (path / room._LOCK_NAME).unlink()


def _with_another_mark(path):
    (path / room._LOCK_NAME).write_text("{}")


def _with_a_fifo_for_a_mark(path):
    _without_mark(path)
    os.mkfifo(path / room._LOCK_NAME)


def _with_a_linked_mark(path):
    shutil.move(path / room._LOCK_NAME, path.parent / "mark")
    (path / room._LOCK_NAME).symlink_to(path.parent / "mark")


def _another_name(path):
    shutil.copytree(path, f"{path}x")
    shutil.rmtree(path)


@pytest.mark.parametrize(
    "change",
    [
        _without_mark, _with_another_mark, _with_a_fifo_for_a_mark, _with_a_linked_mark, _another_name,
    ],
)  # fmt: skip
def test_what_is_not_certain_to_be_a_dead_ones_is_kept(place, change):
    path = dead_directory()
    change(path)
    before = sorted(place.rglob("*"))
    finish(start("pass", OTHER)[0])
    assert sorted(place.rglob("*")) == before
    assert list(place.rglob("*.mds"))


def test_links_are_not_followed(place, tmp_path):
    path = dead_directory()
    elsewhere = tmp_path / "elsewhere"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)
    finish(start("pass", OTHER)[0])
    assert (elsewhere / "shard.mds").exists()
    with pytest.raises(OSError, match="is a link"):
        Copies(NAME)
    path.unlink()
    shutil.move(elsewhere, path)
    mine = tmp_path / "precious"
    mine.mkdir()
    (mine / "file").touch()
    (path / "within").symlink_to(mine)
    finish(start("pass", OTHER)[0])
    assert not path.exists()
    assert (mine / "file").exists()


def test_other_users_directories_are_kept(place, monkeypatch):
    path = dead_directory()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    copies = Copies(OTHER, settings=CacheSettings(location=str(path.parent)))
    assert path.exists()
    assert Path(copies.path).parent == path.parent


def test_a_root_of_another_user_is_not_used(place, monkeypatch):
    (place / f"petastorm-bridge-cache-{os.geteuid()}").symlink_to(place.parent)
    copies = Copies(NAME)
    assert Path(copies.path).parent.parent == place
    assert not (place.parent / NAME).exists()


def test_two_that_clear_at_once_do_not_disturb_each_other(place):
    left = [dead_directory(name) for name in (NAME, OTHER)]
    processes = [start("pass", f"{number}" * 32)[0] for number in (2, 3, 4)]
    assert [finish(process) for process in processes] == [0, 0, 0]
    assert not any(path.exists() for path in left)


def test_a_reader_may_be_collected_while_another_one_takes_its_directory(place, monkeypatch):
    """One for a reader alone that lies in a cycle: the collector runs whenever something is allocated."""
    left = Copies(NAME, is_private=True)
    path, left.itself = left.path, left
    del left
    lock_with_others = room._lock_with_others

    def collecting(directory):
        gc.collect()
        return lock_with_others(directory)

    monkeypatch.setattr(room, "_lock_with_others", collecting)
    thread = threading.Thread(target=Copies, args=(OTHER,), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert not os.path.exists(path)


def test_without_locks_of_the_file_system_a_directory_goes_with_its_process(place):
    refusing = """
    import fcntl
    def refuse(*_):
        raise OSError(38, "Function not implemented")
    fcntl.flock = refuse
    Copies("f" * 32)
    """
    process, path = start(refusing)
    assert finish(process) == 0
    assert list(path.parent.glob("f*")) == []


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
        read(dataset)
        gc.collect()
        (kept,) = named.iterdir()
        assert list(kept.glob("*.mds"))
    del reader
    gc.collect()
    assert list(named.iterdir()) == []


def test_children_that_fork_from_a_pool_leave_nothing(place, dataset):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(read, [dataset] * 4)
        pool.close()
        pool.join()
    assert directories(place) == []


class TestRoom:
    def limited(self, place, name, limit):
        return Copies(name, settings=CacheSettings(str(place / "named"), limit))

    def test_is_made_by_removing_what_was_used_last_the_longest_ago(self, place):
        for number in (2, 3):
            copies = self.limited(place, f"{number}" * 32, None)
            with open(os.path.join(copies.path, "shard.mds"), "wb") as file:
                file.write(bytes(1000))
            os.utime(os.path.join(copies.path, room._LOCK_NAME), (number, number))
            del copies
        gc.collect()
        used = self.limited(place, NAME, 2500)
        assert used.has_room(400)
        assert len(directories_below(place / "named")) == 3
        assert used.has_room(400)  # 200 bytes too many
        assert directories_below(place / "named") == [NAME, "3" * 32]
        assert not used.has_room(3000)
        assert directories_below(place / "named") == [NAME]

    def test_that_others_use_is_theirs(self, place):
        one, two = self.limited(place, NAME, 1000), self.limited(place, OTHER, 1000)
        assert one.has_room(800)
        with open(os.path.join(one.path, "shard.mds"), "wb") as file:
            file.write(bytes(800))
        assert not two.has_room(800)
        assert directories_below(place / "named") == [NAME, OTHER]

    def test_on_the_disk_is_left_to_others(self, place, monkeypatch):
        usage = type(shutil.disk_usage(place))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 90, 10))
        copies = self.limited(place, NAME, None)
        assert not copies.has_room(6)
        assert copies.has_room(5)

    def test_is_looked_at_again_after_a_while(self, place, monkeypatch):
        """For every small shard the system would be asked again, and others do not fill a disk in a moment."""
        usage, free = type(shutil.disk_usage(place)), [11]
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 0, free[0]))
        copies = self.limited(place, NAME, None)
        assert copies.has_room(2)
        free[0] = 7  # 2 more are gone
        assert copies.has_room(3)
        assert not copies.has_room(2)
        free[0] = 9
        assert pickle.loads(pickle.dumps(copies)).has_room(4)  # perhaps on another machine
        assert not copies.has_room(4)
        monkeypatch.setattr(room, "_COUNT_AGAIN_SECONDS", 0)
        assert copies.has_room(4)

    @pytest.mark.parametrize(("text", "size"), [("1000", 1000), ("2kb", 2048), ("3 GB", 3 << 30)])
    def test_by_the_environment(self, place, monkeypatch, text, size):
        monkeypatch.setenv(LIMIT_VARIABLE, text)
        monkeypatch.setattr(
            shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 0, 1 << 40)
        )
        assert Copies(NAME).has_room(size - 100)
        assert not Copies(NAME).has_room(size + 1)

    def test_that_is_no_number(self, place, monkeypatch):
        monkeypatch.setenv(LIMIT_VARIABLE, "much")
        with pytest.raises(ValueError, match=f"{LIMIT_VARIABLE} is 'much'; it must be a number"):
            Copies(NAME)


def directories_below(root):
    return sorted(path.name for path in root.iterdir())


def test_ctrl_c_while_a_thread_starts_that_would_fetch(place, dataset, monkeypatch):
    def interrupted(call):
        raise KeyboardInterrupt

    monkeypatch.setattr(ahead._shards, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt), make_batch_reader(dataset) as reader:
        next(reader)
