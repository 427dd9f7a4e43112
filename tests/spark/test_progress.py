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
from pathlib import Path

import pytest

import petastorm_bridge
from petastorm_bridge.spark._directory.store import store_at
from petastorm_bridge.spark._writing import jobs

BRIDGE = str(Path(petastorm_bridge.__file__).parents[1])

SCRIPT = """
import os, sys, time
from petastorm_bridge.spark._writing import jobs
from petastorm_bridge.spark._directory.store import store_at
jobs._PERIOD_SECONDS = 0.05
with jobs.showing_progress(store_at('file://' + os.getcwd()), delay=float(sys.argv[1])):
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
        env={**os.environ, "PYTHONPATH": BRIDGE},
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
    assert jobs._written(store_at(f"file://{tmp_path}/nothing")) == (0, 0)


def test_a_store_that_cannot_be_looked_at_does_no_harm():
    class Refusing:
        def sizes(self):
            raise PermissionError

    assert jobs._written(Refusing()) == (0, 0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_no_thread_is_left_and_errors_pass(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    before = set(threading.enumerate())

    def convert():
        with jobs.showing_progress(store_at(tmp_path.as_uri()), delay=0):
            while "Converting" not in terminal.getvalue():
                pass
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        convert()
    assert set(threading.enumerate()) <= before
