"""What a killed conversion leaves: readers say what it is, and the next process clears it away."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys

import fsspec
import pytest

from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources.parquet_files import MARKER_NAME
from petastorm_bridge.mds.files import write_whole
from petastorm_bridge.spark import make_spark_converter
from petastorm_bridge.spark._directory import mounted
from petastorm_bridge.spark._directory import store as _store
from petastorm_bridge.spark._directory.own_files import is_own_file

SHARD = "shard.00000.a0.00000.mds"
HALF_A_SHARD = f"{SHARD}.{32 * '0'}.tmp"

# A process that is at work in a directory until its end.
AT_WORK = """
import sys
from petastorm_bridge.spark._directory.store import store_at
with store_at(sys.argv[1]).creating():
    print("here", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def nothing_looked_at():
    mounted._clear.cache_clear()


@pytest.fixture
def at_work():
    """Start a process that is at work in a directory; all end with the test."""
    started = []

    def start(directory):
        process = subprocess.Popen(
            [sys.executable, "-c", AT_WORK, f"file://{directory}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "here\n"
        with_files(directory)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def with_files(directory, *files):
    for name in (SHARD, HALF_A_SHARD, *files):
        (directory / name).write_text("x")
    return directory


def unfinished(directory, *files):
    """A directory as a killed conversion leaves it."""
    with _store.store_at(f"file://{directory}").creating():
        return with_files(directory, *files)


def change_marker(directory, **changes):
    marker = directory / MARKER_NAME
    marker.write_text(json.dumps({**json.loads(marker.read_text()), **changes}))


def is_cleared(directory):
    mounted._clear.cache_clear()
    mounted.clear_unfinished(f"file://{directory.parent}")
    return not directory.exists()


@pytest.mark.difference("killed-conversions-are-cleared")
def test_a_conversion_of_a_process_that_was_killed_is_removed(tmp_path, at_work):
    process = at_work(tmp_path / "a")
    assert not is_cleared(tmp_path / "a")
    process.send_signal(signal.SIGSTOP)
    assert not is_cleared(tmp_path / "a")
    assert (tmp_path / "a" / SHARD).exists()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert is_cleared(tmp_path / "a")


def test_a_child_of_a_killed_process_may_be_at_work_still(tmp_path):
    """It has the lock, too; whoever converts after its end finds the directory free."""
    with _store.store_at((tmp_path / "a").as_uri()).creating():
        child = os.fork()
        if child == 0:
            signal.pause()
    with_files(tmp_path / "a")
    assert not is_cleared(tmp_path / "a")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert is_cleared(tmp_path / "a")


def test_no_descriptor_stays_open(tmp_path, no_leaks):
    with no_leaks():
        for number in range(20):
            unfinished(tmp_path / f"{number}")
        assert is_cleared(tmp_path / "0")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [SHARD, f"{SHARD}.zstd", "index.json", "petastorm_bridge_schema.json", MARKER_NAME],
)
def test_a_file_that_is_being_written_is_ours_by_its_name(tmp_path, name, monkeypatch):
    names, rename = [], os.replace

    def looked_at(*arguments, **options):
        names.extend(os.listdir(tmp_path))
        rename(*arguments, **options)

    monkeypatch.setattr(os, "replace", looked_at)
    write_whole(str(tmp_path / name), [b"x"])
    assert len(names) == 1
    assert names != [name]
    assert is_own_file(names[0])


@pytest.mark.parametrize("machine", ["00000000-0000-4000-8000-000000000000", None, 7, []])
def test_what_another_machine_may_have_begun_stays(tmp_path, machine):
    """Also before this machine was started anew. Locks tell of the processes of one machine."""
    change_marker(unfinished(tmp_path / "a"), machine=machine)
    assert not is_cleared(tmp_path / "a")
    assert (tmp_path / "a" / SHARD).exists()


def test_a_machine_that_does_not_know_itself_clears_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("petastorm_bridge.spark._directory.mounted.this_machine", lambda: None)
    change_marker(unfinished(tmp_path / "a"), machine=None)
    assert not is_cleared(tmp_path / "a")


def test_who_begins_takes_the_lock_before_anybody_can_see_the_marker(tmp_path, monkeypatch):
    def write(path, parts, **how):
        write_whole(path, parts, **how)
        assert not is_cleared(tmp_path / "a")

    monkeypatch.setattr("petastorm_bridge.spark._directory.mounted.write_whole", write)
    with _store.store_at((tmp_path / "a").as_uri()).creating():
        assert (tmp_path / "a" / MARKER_NAME).exists()
    assert is_cleared(tmp_path / "a")


def test_a_dataset_that_is_finished_while_somebody_looks_stays(tmp_path, monkeypatch):
    """What holds the lock may write the index and let go between two looks."""
    directory = unfinished(tmp_path / "a")
    flock = fcntl.flock

    def finished_before(descriptor, operation):
        (directory / "index.json").write_text("x")
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", finished_before)
    assert not is_cleared(directory)
    assert (directory / SHARD).exists()


def test_a_finished_dataset_stays(tmp_path):
    assert not is_cleared(unfinished(tmp_path / "a", "index.json"))


def test_files_of_others_stay(tmp_path):
    assert not is_cleared(unfinished(tmp_path / "a", "notes.txt", "shard.txt"))
    assert sorted(os.listdir(tmp_path / "a")) == ["notes.txt", "shard.txt"]


def test_copies_and_links_stay(tmp_path):
    original = unfinished(tmp_path / "elsewhere" / "a")
    parent = tmp_path / "parent"
    parent.mkdir()
    subprocess.run(["cp", "-r", original, parent / "a"], check=True)
    (parent / "link").symlink_to(original)
    os.mkfifo(parent / "pipe")
    (parent / "folder").mkdir()
    os.mkfifo(parent / "folder" / MARKER_NAME)
    mounted.clear_unfinished(f"file://{parent}")
    assert sorted(os.listdir(parent)) == ["a", "folder", "link", "pipe"]
    assert (original / SHARD).exists()
    assert (parent / "a" / SHARD).exists()


def test_directories_of_other_users_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not is_cleared(unfinished(tmp_path / "a"))


def test_mounts_of_the_network_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(mounted, "is_far", lambda _: True)
    assert not is_cleared(unfinished(tmp_path / "a"))


def test_a_file_system_without_locks_clears_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not is_cleared(unfinished(tmp_path / "a"))


def test_a_process_looks_once_for_each_parent(tmp_path):
    mounted.clear_unfinished(f"file://{tmp_path}")
    unfinished(tmp_path / "a")
    mounted.clear_unfinished(f"file://{tmp_path}")
    assert (tmp_path / "a").exists()
    mounted.clear_unfinished("memory://bucket/parent")
    mounted.clear_unfinished(f"file://{tmp_path}/nothing")


SAYS_UNFINISHED = "is an unfinished conversion of petastorm-bridge.*delete the directory"


@pytest.mark.difference("killed-conversions-are-cleared")
def test_readers_and_converters_say_that_it_is_unfinished(tmp_path):
    url = unfinished(tmp_path / "a").as_uri()
    with pytest.raises(ValueError, match=SAYS_UNFINISHED):
        make_spark_converter(url)
    with pytest.raises(IndexError, match=SAYS_UNFINISHED):
        make_batch_reader(url)
    for name in (SHARD, HALF_A_SHARD):
        (tmp_path / "a" / name).unlink()
    with pytest.raises(ValueError, match=SAYS_UNFINISHED):
        make_spark_converter(url)
    with pytest.raises(IndexError, match=SAYS_UNFINISHED):
        make_batch_reader(url)


def test_so_they_say_of_other_stores():
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    with _store.store_at("memory://bucket/unfinished").creating():
        pass
    memory.pipe_file(f"/bucket/unfinished/{SHARD}", b"x")
    with pytest.raises(ValueError, match=SAYS_UNFINISHED):
        make_spark_converter("memory://bucket/unfinished")
    with pytest.raises(IndexError, match=SAYS_UNFINISHED):
        make_batch_reader("memory://bucket/unfinished")
    memory.store.clear()
