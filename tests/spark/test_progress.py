"""The progress display: only for long conversions, only where someone looks."""

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections import Counter

import pytest

from petastorm_bridge.spark._directory.mounted import MountedStore
from petastorm_bridge.spark._directory.store import store_at
from petastorm_bridge.spark._writing import jobs

SCRIPT = """
import os, sys, time
from petastorm_bridge.spark._writing import jobs
from petastorm_bridge.spark._directory.store import store_at
jobs._DELAY_SECONDS, jobs._PERIOD_SECONDS = float(sys.argv[1]), 0.05
with jobs.showing_progress(store_at('file://' + os.getcwd())):
    for number in range(3):
        with open(f"shard.{number}.mds", "wb") as file:
            file.write(bytes(1024))
        time.sleep(0.3)
"""


def run(tmp_path, delay, stderr):
    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(delay)],
        cwd=tmp_path,
        stderr=stderr,
        check=True,
        timeout=100,
    )


def shown_on_a_terminal(tmp_path, delay):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    try:
        run(tmp_path, delay, theirs)
    finally:
        os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(ours)
    return shown.decode()


def test_a_terminal_sees_shards_and_bytes(tmp_path):
    shown = shown_on_a_terminal(tmp_path, 0)
    assert "Converting to MDS" in shown
    assert "shards=3" in shown
    assert "3.00k" in shown


def test_a_terminal_sees_nothing_of_a_short_conversion(tmp_path):
    assert shown_on_a_terminal(tmp_path, 60) == ""


def test_a_batch_job_sees_nothing(tmp_path):
    with (tmp_path / "stderr").open("w") as stderr:
        run(tmp_path, 0, stderr)
    assert (tmp_path / "stderr").read_text() == ""


def test_a_directory_that_is_not_mounted_here_does_no_harm(tmp_path):
    assert jobs._shard_sizes(store_at(f"file://{tmp_path}/nothing"), {}) == {}


def test_a_store_that_cannot_be_looked_at_does_no_harm():
    class Refusing:
        def sizes(self, known):
            raise PermissionError

    assert jobs._shard_sizes(Refusing(), {}) == {}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_sizes_of_complete_shards_are_asked_for_twice(tmp_path, monkeypatch):
    """Each question is a request on mounts of the network, beside those of the executors' writing."""
    asked = Counter()

    def size(store, name):
        asked[name] += 1
        return asked[name] if name == "shard.1.mds" else 100  # one of them is being written

    monkeypatch.setattr(MountedStore, "_size", size)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(jobs, "_DELAY_SECONDS", 0)
    monkeypatch.setattr(jobs, "_PERIOD_SECONDS", 0.01)
    for number in range(3):
        (tmp_path / f"shard.{number}.mds").touch()
    with jobs.showing_progress(store_at(tmp_path.as_uri())):
        while asked["shard.1.mds"] < 5:
            time.sleep(0.01)
    assert asked["shard.0.mds"] == asked["shard.2.mds"] == 2


def test_no_thread_is_left_and_errors_pass(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(jobs, "_DELAY_SECONDS", 0)
    before = set(threading.enumerate())

    def convert():
        with jobs.showing_progress(store_at(tmp_path.as_uri())):
            while "Converting" not in terminal.getvalue():
                pass
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        convert()
    assert set(threading.enumerate()) <= before
