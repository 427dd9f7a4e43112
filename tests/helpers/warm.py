"""Runs programs in forks of a Python that has imported the engines already.

``run`` takes what ``subprocess.run`` takes and gives what that gives, for commands that begin with
``sys.executable``. A new Python spends two to ten seconds of processor time on importing torch, TensorFlow and
streaming; a fork spends none. Everything else is as in a new process: arguments, environment, working directory,
the main module, the module search path, the ends of the program and of its threads. What a test
says about imports, about start-up or about a process of its own Spark cluster needs a new one.

The engines read some settings as they are imported: these are the ones of the test process.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SERVER = Path(__file__).with_name("warm_server.py")


class _Server:
    """The Python that forks; one for a test process, started when it is first needed."""

    def __init__(self):
        self.requests, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def fork(self, request, files):
        """The connection on which the fork's process id comes, and then how it ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            message = json.dumps(request).encode()
            numbers = [theirs.fileno(), *(file.fileno() for file in files)]
            socket.send_fds(self.requests, [len(message).to_bytes(8, "little")], numbers)
            self.requests.sendall(message)
        return ours.makefile("r")

    def stop(self):
        self.requests.close()
        self.process.wait(10)


_servers: dict[int, _Server] = {}
_starting = threading.Lock()


def _server():
    with _starting:
        if os.getpid() not in _servers:
            _servers.clear()  # in a fork of the tests
            _servers[os.getpid()] = _Server()
            atexit.register(stop)
        return _servers[os.getpid()]


def stop():
    """End the Python that forks, if there is one."""
    server = _servers.pop(os.getpid(), None)
    if server is not None:
        server.stop()


def run(
    command, *, env=None, cwd=None, timeout=None, check=False, capture_output=False, text=False
):
    """``subprocess.run`` for a command that begins with ``sys.executable``."""
    assert command[0] == sys.executable, command
    request = {
        "arguments": [os.fspath(argument) for argument in command[1:]],
        "environment": dict(os.environ if env is None else env),
        "folder": os.fspath(os.getcwd() if cwd is None else cwd),
    }
    # Files, not pipes: a daemon that a program leaves behind would keep a pipe open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = [out, err] if capture_output else [sys.__stdout__, sys.__stderr__]
        with _server().fork(request, files) as answers:
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
