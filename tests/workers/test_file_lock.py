"""The lock around a fetch: one at a time in all processes, and never stuck."""

import fcntl
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from filelock import FileLock, Timeout
from forks import in_fork

from petastorm_bridge._workers import file_lock
from petastorm_bridge._workers.file_lock import LastingLock, _open_files, locked

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)

HOLDER = """
import sys, time
from petastorm_bridge._workers.file_lock import locked
with locked(sys.argv[1], 10) as alone:
    print(alone, flush=True)
    time.sleep(300)
"""


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shard.lock")


def test_one_at_a_time_among_threads(path):
    inside, most = 0, 0
    total = []

    def work():
        nonlocal inside, most
        for _ in range(5):
            with locked(path, 60) as alone:
                assert alone
                inside += 1
                most = max(most, inside)
                total.append(1)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, len(total)) == (1, 20)
    assert not os.path.exists(path)
    assert not _open_files


def test_a_thread_gets_the_lock_when_another_lets_go_of_it(path, monkeypatch):
    """And not at the end of a pause."""
    waits = threading.Event()
    monkeypatch.setattr(file_lock, "_FIRST_PAUSE_SECONDS", 300)
    notice = file_lock._released.wait
    monkeypatch.setattr(file_lock._released, "wait", lambda pause: waits.set() or notice(pause))
    got = []

    def work():
        with locked(path, 600) as alone:
            got.append(alone)

    thread = threading.Thread(target=work, daemon=True)
    with locked(path, 1):
        thread.start()
        assert waits.wait(60)
    thread.join(60)
    assert got == [True]


def test_a_fork_does_not_wait_for_a_thread_that_let_go_of_a_lock(path):
    held, ends = threading.Event(), threading.Event()

    def hold():
        with file_lock._released:
            held.set()
            ends.wait(60)

    def lock():
        with locked(path, 1) as alone:
            return alone

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(60)
        assert in_fork(lock, patience=10) == "True"
    finally:
        ends.set()
        thread.join()


def test_the_lock_of_a_killed_process_is_free(path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == "True\n"
        with locked(path, 0.05) as alone:
            assert not alone
        assert os.path.exists(path)
    finally:
        holder.kill()
        holder.communicate()
    with locked(path, 10) as alone:
        assert alone
    assert not os.path.exists(path)


def test_a_directory_is_made_for_it(tmp_path):
    """It may be removed between one lock in it and the next."""
    path = tmp_path / "of" / "copies" / "lock"
    for _ in range(2):
        with locked(str(path), 1) as alone:
            assert alone
        assert not path.exists()
        path.parent.rmdir()


def test_where_none_can_be_made_nothing_is_held(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    for parent in ("file", "nowhere", "file/below"):
        with locked(str(tmp_path / parent / "lock"), 1) as alone:
            assert not alone


def test_a_fork_does_not_hold_the_lock_of_its_parent(path):
    """The parent leaves it while the child lives on; and the child may take it then."""
    reading, writing = os.pipe()
    with locked(path, 1) as alone:
        assert alone
        child = os.fork()
        if child == 0:
            os.read(reading, 1)
            os._exit(0)
        assert in_fork(lambda: next(iter([locked(path, 0.05).__enter__()]))) == "False"
    try:
        with locked(path, 5) as alone:
            assert alone
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_nor_a_fork_while_the_lock_is_taken(path, monkeypatch):
    """It would keep the lock for as long as it lives, if its parent is killed then."""
    take, left = fcntl.flock, []

    def take_and_fork(descriptor, operation):
        take(descriptor, operation)
        monkeypatch.setattr(file_lock.fcntl, "flock", take)
        left.append(in_fork(lambda: _is_open(descriptor)))

    monkeypatch.setattr(file_lock.fcntl, "flock", take_and_fork)
    with locked(path, 1) as alone:
        assert alone
    assert left == ["False"]


def test_a_thread_may_fork_while_others_lock(tmp_path):
    """Fork and lock wait for each other, never both."""

    def lock_often(number):
        for _ in range(200):
            with locked(str(tmp_path / f"{number}"), 10) as alone:
                assert alone

    threads = [threading.Thread(target=lock_often, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    forks = [in_fork(lambda: len(_open_files)) for _ in range(5)]
    for thread in threads:
        thread.join()
    assert set(forks) == {"0"}


def _is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("make", [os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_where_no_lock_can_be_the_block_runs_without(path, make):
    make(path)
    with locked(path, 5) as alone:
        assert not alone
    assert os.path.lexists(path)


def test_an_error_in_the_block_frees_the_lock(path):
    with pytest.raises(KeyError), locked(path, 1):
        raise KeyError
    with locked(path, 1) as alone:
        assert alone


class TestALockThatLasts:
    def test_is_held_until_the_last_release(self, path):
        lock, other = LastingLock(path), pickle.loads(pickle.dumps(LastingLock(path)))
        with ThreadPoolExecutor(2) as threads:
            with lock:
                with lock:
                    waiting = [threads.submit(_taken, each) for each in (lock, other)]
                assert wait(waiting, 0.2).not_done == {*waiting}
            assert [each.result(60) for each in waiting] == [True, True]
        assert os.path.exists(path)
        assert not _open_files

    def test_may_be_let_go_of_at_once(self, path):
        lock = LastingLock(path)
        for _ in range(3):
            lock.acquire()
        lock.release(force=True)
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(_taken, lock).result(60)

    def test_keeps_others_from_the_same_file(self, path):
        """Streaming's own locks among them."""
        theirs = FileLock(path)
        with LastingLock(path), pytest.raises(Timeout):
            theirs.acquire(0.05)
        with theirs:
            assert in_fork(lambda: _taken(LastingLock(path)), 0.5) == "hangs"

    def test_is_for_each_thread_alone(self, path):
        lock, inside, most = LastingLock(path), [], []

        def work(number):
            for _ in range(200):
                with lock:
                    inside.append(number)
                    most.append(len(inside))
                    inside.remove(number)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        assert set(most) == {1}

    def test_is_not_that_of_a_fork(self, path):
        """Whatever a thread of the parent did with it at that moment."""
        lock, is_held, is_over = LastingLock(path), threading.Event(), threading.Event()

        def hold():
            with lock:
                is_held.set()
                is_over.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        is_held.wait(60)
        assert in_fork(lambda: _taken(lock), 0.5) == "hangs"
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(reading, 1)
            os._exit(0)
        is_over.set()
        thread.join(60)
        try:
            assert in_fork(lambda: _taken(lock)) == "True"
            assert _taken(lock)
        finally:
            os.write(writing, b"x")
            os.waitpid(child, 0)
            os.close(reading)
            os.close(writing)

    def test_is_free_where_it_could_not_be_had(self, path, tmp_path):
        """The next attempt may succeed."""
        lock = LastingLock(path)
        os.symlink(tmp_path / "elsewhere", path)
        with pytest.raises(OSError, match="symbolic links"):
            lock.acquire()
        os.remove(path)
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(_taken, lock).result(60)
        assert not (tmp_path / "elsewhere").exists()

    def test_that_is_waited_for_may_be_given_up(self, path):
        """By a Ctrl-C."""
        usual = signal.signal(signal.SIGALRM, lambda *_: _raise(KeyboardInterrupt))
        lock = LastingLock(path)
        try:
            with locked(path, 1):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with pytest.raises(KeyboardInterrupt):
                    lock.acquire()
        finally:
            signal.signal(signal.SIGALRM, usual)
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(_taken, lock).result(60)
        assert not _open_files


def _taken(lock):
    with lock:
        return True


def _raise(error):
    raise error
