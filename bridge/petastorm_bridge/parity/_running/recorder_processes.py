"""Start the processes that record loaders, wait for all of them, and keep their last words."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from petastorm_bridge.parity._recordings.manifest import CannotCompareError

_STEP_SECONDS = 0.05
# How long the others may go on once one rank has failed: they wait for it and do not know.
_GRACE_SECONDS = 10.0


class RecorderProcesses:
    """Processes that work together; leaving the context ends those that are left.

    Each has a session of its own, so that whatever it starts ends with it: a wrapper script's
    interpreter, a loader's workers. That also holds when this process is interrupted, terminated
    or loses its terminal.

    What they print goes to files: a full pipe that nobody reads would stop them.

    Args:
        scratch: Directory for those files.
        package: What they run, for messages.
        timeout: Seconds that one wait may take.
    """

    def __init__(self, scratch: str, package: str, timeout: float) -> None:
        self._scratch, self._package = Path(scratch), package
        self._timeout = timeout
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._started = 0
        self._handled: list[signal.Signals] = []
        self.said = ""

    def __enter__(self) -> RecorderProcesses:  # noqa: PYI034 - typing.Self needs Python 3.11
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._handled.append(number)
                    signal.signal(number, _leave)
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._kill()
        finally:
            for number in self._handled:
                signal.signal(number, signal.SIG_DFL)
            self._handled.clear()

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        """Start one more.

        Raises:
            CannotCompareError: Its program cannot be run.
        """
        self._started += 1
        words = self._scratch / f"{self._package}-{self._started}.said"
        try:
            with words.open("wb") as file, _signals_after():
                process = subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=file,
                    env=environment,
                    start_new_session=True,
                )
                self._running.append((process, words))
        except OSError as error:
            raise CannotCompareError(
                f"{self._package}: {command[0]} cannot be run: {error}"
            ) from error

    def wait(self) -> None:
        """Wait until all have ended, or the time is up, or one has failed and the others hang.

        How a process ends says nothing of its recording (Petastorm sometimes aborts after its last
        row), so nothing is raised; the first failure's last words are kept in ``said``.
        """
        end = time.monotonic() + self._timeout
        failed = False
        while self._running:
            for entry in list(self._running):
                if not _has_ended(entry[0]):
                    continue
                code = _end(entry[0])
                self._running.remove(entry)
                if code and not failed:
                    failed = True
                    end = min(end, time.monotonic() + _GRACE_SECONDS)
                    last_words = _last_line(entry[1]) or f"it ended with code {code} and no word"
                    self.said = self.said or last_words
            if self._running and time.monotonic() > end:
                self.said = self.said or f"it did not end within {self._timeout:g} seconds"
                self._kill()
            time.sleep(_STEP_SECONDS if self._running else 0)

    def _kill(self) -> None:
        while self._running:
            _end(self._running[-1][0])
            self._running.pop()


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Say whether a process has ended; its number stays taken until it is waited for."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return process.returncode is not None or bool(os.waitid(os.P_PID, process.pid, options))


def _end(process: subprocess.Popen[bytes]) -> int:
    """End all processes of a session and return how the first of them ended."""
    if process.returncode is None:
        # Not waited for, so nobody else can have got its number.
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


@contextlib.contextmanager
def _signals_after() -> Iterator[None]:
    """Hold signals back for the block: one in the midst of a start would lose the process for good."""
    arrived: list[int] = []
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(number)):
                handlers[number] = signal.signal(number, lambda sent, _: arrived.append(sent))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for sent in arrived:
            signal.raise_signal(sent)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
