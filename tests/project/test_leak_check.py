"""The leak check notices each kind of leak, and lets clean code pass."""

import os
import subprocess
import sys
import threading
import time
from multiprocessing import shared_memory
from pathlib import Path

import pytest
from forks import in_fork

SHARED_MEMORY = Path("/dev/shm")
FAILS = pytest.raises(AssertionError, match="left behind")


def test_clean_code_passes(no_leaks, tmp_path):
    with no_leaks():
        thread = threading.Thread(target=lambda: None)
        thread.start()
        (tmp_path / "file").write_text("closed again")


def test_a_thread_is_noticed(no_leaks):
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    with FAILS, no_leaks(patience=0.1):
        thread.start()
    release.set()
    thread.join()


def test_an_open_file_is_noticed(no_leaks, tmp_path):
    with FAILS, no_leaks(patience=0.1):
        file = (tmp_path / "file").open("w")
    file.close()


def test_a_child_process_is_noticed(no_leaks):
    with FAILS, no_leaks(patience=0.1):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    child.communicate(b"\n")


def test_shared_memory_is_noticed(no_leaks):
    with FAILS, no_leaks(patience=0.1):
        block = shared_memory.SharedMemory(create=True, size=16)
    block.close()
    block.unlink()


def test_streaming_s_shared_memory_is_noticed_if_it_is_of_this_process(no_leaks, prefixes):
    ours, other = (SHARED_MEMORY / f"{prefix:06}_test" for prefix in (prefixes[-1], prefixes.stop))
    with FAILS, no_leaks(patience=0.1):
        ours.touch()
    with no_leaks(patience=0.1):
        other.touch()
    ours.unlink()
    other.unlink()


def test_semaphores_of_another_program_are_not_noticed(no_leaks):
    """Loaders with spawned workers make such ones; their names do not tell whose they are."""
    lock = "multiprocessing.get_context('spawn').Lock()"
    code = f"import multiprocessing; input(); lock = {lock}; print(lock); input()"
    # The shell ends at once, so that the program is no child of this process.
    command = ["sh", "-c", 'exec 3<&0; "$@" <&3 &', "sh", sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen(command, **pipes, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as program:
        assert program.wait() == 0
        before = set(SHARED_MEMORY.glob("sem.mp-*"))
        with no_leaks(patience=0.1):
            program.stdin.write(b"\n")
            assert b"Lock" in program.stdout.readline()
            assert set(SHARED_MEMORY.glob("sem.mp-*")) - before
        program.stdin.write(b"\n")
        assert program.stdout.read() == b""  # it has ended


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_connection_of_spark_that_a_fork_has_shut_is_not_noticed(spark, no_leaks):
    def ended_by_a_fork():
        spark.range(1)
        ended = spark.sparkContext._gateway._gateway_client.finalizer_deque
        while ended:  # a thread of Py4J looks each second
            time.sleep(0.1)
        assert in_fork(int) == "0"

    ended_by_a_fork()
    with no_leaks(patience=0.1):
        ended_by_a_fork()
