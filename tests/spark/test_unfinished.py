"""What a killed conversion leaves: readers say what it is, and the next process clears it away."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

import petastorm_bridge
from petastorm_bridge import make_batch_reader
from petastorm_bridge._sources.unfinished import MARKER_NAME
from petastorm_bridge.mds.files import write_whole
from petastorm_bridge.spark import make_spark_converter
from petastorm_bridge.spark._directory import leftovers
from petastorm_bridge.spark._directory import owner as _owner
from petastorm_bridge.spark._directory import store as _store
from petastorm_bridge.spark._directory.own_files import is_own_file

BRIDGE = str(Path(petastorm_bridge.__file__).parents[1])
SHARD = "shard.00000.a0.00000.mds"
HALF_A_SHARD = f"{SHARD}.{32 * '0'}.tmp"

# A process that says who it is and then waits for its end.
OWNER = """
import json, sys
from petastorm_bridge.spark._directory.owner import this_process
print(json.dumps(this_process()), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def nothing_looked_at(monkeypatch):
    monkeypatch.setattr(leftovers, "_looked_at", set())


@pytest.fixture
def processes():
    """Start a process that owns a directory; all end with the test."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": BRIDGE},
        )
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def dead():
    """What the marker says of a process that has ended."""
    done = subprocess.run(
        [sys.executable, "-c", OWNER],
        input="",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": BRIDGE},
    )
    return json.loads(done.stdout)


def unfinished(directory, owner, *files):
    """A directory as a killed conversion leaves it, by a process of that description."""
    store = _store.store_at(f"file://{directory}")
    store.create()
    marker = directory / MARKER_NAME
    content = {**json.loads(marker.read_text()), "owner": owner}
    marker.write_text(json.dumps(content))
    for name in (SHARD, HALF_A_SHARD, *files):
        (directory / name).write_text("x")
    return directory


def cleared(directory, *files, owner):
    unfinished(directory, owner, *files)
    leftovers.clear_unfinished(f"file://{directory.parent}")
    return not directory.exists()


@pytest.mark.difference("killed-conversions-are-cleared")
def test_a_conversion_of_a_process_that_was_killed_is_removed(tmp_path, dead):
    assert cleared(tmp_path / "a", owner=dead)


@pytest.mark.parametrize(
    "name",
    [SHARD, f"{SHARD}.zstd", "index.json", "petastorm_bridge_schema.json", MARKER_NAME],
)
def test_a_file_that_is_being_written_is_ours_by_its_name(tmp_path, name):
    names = []

    def parts():
        names.extend(os.listdir(tmp_path))
        yield b"x"

    write_whole(str(tmp_path / name), parts())
    assert len(names) == 1
    assert names != [name]
    assert is_own_file(names[0])


# What differs from the description of a process that has ended.
UNCERTAIN = {
    "another machine": {"host": "elsewhere"},
    "a machine of the same name": {"machine": "00000000-0000-4000-8000-000000000000"},
    "no start is known": {"started": None},
    "no machine is known": {"machine": None},
    "no process is known": {"pid": None},
    "a group of processes": {"pid": 0},
    "every process": {"pid": -1},
    "a number beyond all": {"pid": 1 << 80},
}


@pytest.mark.parametrize("difference", UNCERTAIN)
def test_what_is_uncertain_stays(tmp_path, dead, difference):
    assert not cleared(tmp_path / "a", owner={**dead, **UNCERTAIN[difference]})
    assert (tmp_path / "a" / SHARD).exists()


@pytest.mark.parametrize("owner", [None, "somebody", 7, [], {}])
def test_markers_that_say_nothing_of_their_process_stay(tmp_path, owner):
    assert not cleared(tmp_path / "a", owner=owner)


def test_a_machine_without_processes_to_look_at_clears_nothing(tmp_path, dead, monkeypatch):
    monkeypatch.setattr(_owner, "_machine", lambda: None)
    assert not cleared(tmp_path / "a", owner={**dead, "machine": None})


def test_a_process_that_goes_on_keeps_its_directory(tmp_path, processes):
    process, owner = processes()
    assert not cleared(tmp_path / "a", owner=owner)
    assert not cleared(tmp_path / "mine" / "b", owner=_owner.this_process())
    process.send_signal(signal.SIGSTOP)
    leftovers._looked_at.clear()
    leftovers.clear_unfinished(f"file://{tmp_path}")
    assert (tmp_path / "a" / SHARD).exists()


def test_a_killed_process_that_nobody_has_asked_for_is_dead(tmp_path, processes):
    process, owner = processes()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert cleared(tmp_path / "a", owner=owner)


def test_a_process_number_that_was_given_to_another_process(tmp_path, dead):
    assert cleared(tmp_path / "a", owner={**dead, "pid": os.getpid()})


def test_a_finished_dataset_stays(tmp_path, dead):
    assert not cleared(tmp_path / "a", "index.json", owner=dead)


def test_files_of_others_stay(tmp_path, dead):
    assert not cleared(tmp_path / "a", "notes.txt", "shard.txt", owner=dead)
    assert sorted(os.listdir(tmp_path / "a")) == ["notes.txt", "shard.txt"]


def test_copies_and_links_stay(tmp_path, dead):
    original = unfinished(tmp_path / "elsewhere" / "a", dead)
    parent = tmp_path / "parent"
    parent.mkdir()
    subprocess.run(["cp", "-r", original, parent / "a"], check=True)
    (parent / "link").symlink_to(original)
    os.mkfifo(parent / "pipe")
    (parent / "folder").mkdir()
    os.mkfifo(parent / "folder" / MARKER_NAME)
    leftovers.clear_unfinished(f"file://{parent}")
    assert sorted(os.listdir(parent)) == ["a", "folder", "link", "pipe"]
    assert (original / SHARD).exists()
    assert (parent / "a" / SHARD).exists()


def test_directories_of_other_users_stay(tmp_path, dead, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not cleared(tmp_path / "a", owner=dead)


def test_disks_that_other_machines_may_write_to_are_left_alone(tmp_path, dead, monkeypatch):
    monkeypatch.setattr(_owner, "_OWN_DISKS", {"nfs4"})
    assert not cleared(tmp_path / "a", owner=dead)


def test_disks_are_told_apart(tmp_path):
    assert _owner.is_on_own_disk(str(tmp_path))
    assert _owner.is_on_own_disk("/dev/shm/not/there/yet")
    assert not _owner.is_on_own_disk("/proc/self")
    assert not _owner.is_on_own_disk("/sys")


def test_a_process_looks_once_for_each_parent(tmp_path, dead):
    leftovers.clear_unfinished(f"file://{tmp_path}")
    assert not cleared(tmp_path / "a", owner=dead)
    leftovers.clear_unfinished("memory://bucket/parent")
    leftovers.clear_unfinished(f"file://{tmp_path}/nothing")


SAYS_UNFINISHED = "is an unfinished conversion of petastorm-bridge.*delete the directory"


@pytest.mark.difference("killed-conversions-are-cleared")
def test_readers_and_converters_say_that_it_is_unfinished(tmp_path, dead):
    url = unfinished(tmp_path / "a", dead).as_uri()
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
    _store.store_at("memory://bucket/unfinished").create()
    memory.pipe_file(f"/bucket/unfinished/{SHARD}", b"x")
    with pytest.raises(ValueError, match=SAYS_UNFINISHED):
        make_spark_converter("memory://bucket/unfinished")
    with pytest.raises(IndexError, match=SAYS_UNFINISHED):
        make_batch_reader("memory://bucket/unfinished")
    memory.store.clear()
