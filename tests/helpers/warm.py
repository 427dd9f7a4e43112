"""Runs programs in forks of a Python that has imported the engines already.

``run`` takes what ``subprocess.run`` takes and gives what that gives, for commands that begin with
``sys.executable``. A new Python spends two to ten seconds of processor time on importing torch, TensorFlow and
streaming; a fork spends none. Everything else is as in a new process: arguments, environment, working directory,
the main module, the module search path, the ends of the program and of its threads. What a test
says about imports, about start-up or about a process of its own Spark cluster needs a new one.

The engines read some settings as they are imported: these are the ones of the test process.
"""

import fcntl
import functools
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from warm_client import ask

HERE = Path(__file__).parent


class _Server:
    """The Python that forks: one for all test processes of a run, started by whoever needs it first.

    It ends with the process that started the run, and removes its folder then.

    Attributes:
        address: The socket that takes requests.
        python: What launchers start instead of Python: the program runs in a fork too.
    """

    def __init__(self, folder, owner):
        folder.mkdir(mode=0o700, exist_ok=True)
        self.address = folder / "socket"
        self.python = folder / "python"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.address.exists():
                self._start(folder, owner)

    def _start(self, folder, owner):
        client = shlex.join([sys.executable, "-I", "-S", str(HERE / "warm_client.py")])
        self.python.write_text(f'#!/bin/sh\nexec {client} {self.address} "$@"\n')
        self.python.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.address))
            listener.listen(32)
            number = listener.fileno()
            subprocess.run(
                [sys.executable, str(HERE / "warm_server.py"), str(number), str(owner), folder],
                check=True,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
            )


@functools.cache
def _server():
    """The server of this run of the tests; its folder's name is short, as those of sockets must be."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    owner = os.getppid() if run else os.getpid()
    return _Server(Path(f"/tmp/warm-{(run or 'alone')[:12]}-{owner}"), owner)


def python():
    """The path of a program that runs in a fork what it is given, as Python would; for ``subprocess.Popen``.

    Torchrun and Spark start their ranks and workers by it where they are forks themselves. Signals reach the
    fork; who kills the program kills the fork.
    """
    return str(_server().python)


def run(
    command, *, env=None, cwd=None, timeout=None, check=False, capture_output=False, text=False
):
    """``subprocess.run`` for a command that begins with ``sys.executable``."""
    assert command[0] == sys.executable, command
    server = _server()
    request = {
        "arguments": [os.fspath(argument) for argument in command[1:]],
        "environment": dict(os.environ if env is None else env),
        "folder": os.fspath(os.getcwd() if cwd is None else cwd),
    }
    # Files, not pipes: a daemon that a program leaves behind would keep a pipe open.
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        files = [nothing, *((out, err) if capture_output else (sys.__stdout__, sys.__stderr__))]
        with (
            ask(str(server.address), request, [file.fileno() for file in files]) as connection,
            connection.makefile("r") as answers,
        ):
            pid = int(answers.readline())
            code = _wait(answers, pid, timeout, command)
        printed = [_content(file) for file in (out, err)] if capture_output else [None, None]
    if text and capture_output:
        printed = [content.decode().replace("\r\n", "\n") for content in printed]
    done = subprocess.CompletedProcess(command, code, *printed)
    if check:
        done.check_returncode()
    return done


def _content(file):
    file.seek(0)
    return file.read()


def _wait(answers, pid, timeout, command):
    late = threading.Event()

    def kill():
        late.set()
        os.kill(pid, signal.SIGKILL)

    watch = threading.Timer(timeout, kill) if timeout else None
    if watch:
        watch.daemon = True
        watch.start()
    try:
        code = answers.readline()
    except BaseException:  # an interrupted test leaves no program behind
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        if watch:
            watch.cancel()
    if late.is_set():
        raise subprocess.TimeoutExpired(command, timeout)
    assert code, "the Python that forks has ended"
    return int(code)
