"""Working on files in processes, so that none of them can end the run or hold it up for ever.

LibCST's parser runs in native code: what is nested too deep for its stack ends the process that parses
it, and the time for one long expression is not linear.

The processes are fresh interpreters with the module search path of this one. Those of ``multiprocessing``
look for modules in the working directory first, which is the repository that is worked on: a file of it
called ``pickle.py`` would run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait

from ._engine import process
from ._meaning.other_files import Project
from ._model import Failed, Outcome
from ._settings import Settings
from ._text.import_lines import code_of

File = tuple[str, bytes]

# Fewer files are done before a second process has imported LibCST.
_WORTH_A_PROCESS = 12
# Far below what overflows a stack of 8 MB (2,000 brackets, 5,000 elif) or takes minutes.
_DEEPEST_BRACKETS = 200
_MOST_OPERATORS = 3000
_BRACKETS = re.compile(rb"[()\[\]{}]")
_OPERATORS = re.compile(rb"[-+*/%@&|^~<>]|\b(?:and|await|elif|else|for|if|in|is|lambda|not|or)\b")
_SECONDS = 300.0
# Windows, which lacks this, hands its processes no pipes as they are handed here: one process does everything.
_HAS_WORKERS = hasattr(signal, "pthread_sigmask")
_TOO_RISKY = (
    "left alone, because its code is nested so deep, or has expressions so long, that reading it may "
    "end this process; rewrite it on Linux or macOS"
)
_START = (
    "import sys; sys.path[:] = {path!r}; "
    "from petastorm_codemods._processes import main; main({descriptor})"
)


def work_on(
    files: Sequence[File], settings: Callable[[str], Settings], jobs: int
) -> Generator[Outcome]:
    """Yield what becomes of each file, in no particular order; nothing is written.

    Args:
        files: Paths and contents.
        settings: Returns what to do with the file at a path.
        jobs: Number of processes; files that may end a process are never worked on in this one.
    """
    parallel = _HAS_WORKERS and jobs > 1 and len(files) >= _WORTH_A_PROCESS
    away: list[File] = []
    with _rare_collection():
        for path, data in files:
            if parallel or is_risky(path, data):
                away.append((path, data))
            else:
                yield process(path, data, settings(path))
    if _HAS_WORKERS:
        # Largest first, so that no process is left alone with a large file at the end.
        yield from in_processes(sorted(away, key=lambda file: -len(file[1])), settings, jobs)
    else:
        yield from (Failed(path, _TOO_RISKY) for path, _ in away)


@contextlib.contextmanager
def _rare_collection() -> Iterator[None]:
    """Let the collector look at objects less often: trees are made faster than it can walk them."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def is_risky(path: str, data: bytes) -> bool:
    """Say by a cheap count whether the parser may not survive a file, or take very long for it."""
    # Outputs of notebooks do not count.
    is_notebook = path.endswith(".ipynb")
    return _is_intricate(data) and (not is_notebook or _is_intricate(code_of(data)))


def _is_intricate(data: bytes) -> bool:
    most = itertools.islice(_OPERATORS.finditer(data), _MOST_OPERATORS, None)
    if next(most, None) is not None:
        return True
    depth = deepest = 0
    for bracket in _BRACKETS.findall(data):
        depth = depth + 1 if bracket in b"([{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest > _DEEPEST_BRACKETS


def in_processes(
    files: Sequence[File],
    settings: Callable[[str], Settings],
    jobs: int,
    seconds: float = _SECONDS,
) -> Iterator[Outcome]:
    """Yield the outcomes of files, each of which a process works on; one that ends or stalls it fails.

    Args:
        files: Paths and contents.
        settings: Returns what to do with the file at a path.
        jobs: Number of processes.
        seconds: How long one file may take.
    """
    waiting = iter(files)
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}
    try:
        idle += [_Worker() for _ in range(min(jobs, len(files)))]
        while True:
            for path, data in itertools.islice(waiting, jobs - len(busy)):
                worker = idle.pop() if idle else _Worker()
                busy[worker.connection] = worker
                worker.begin(path, data, settings(path), seconds)
            if not busy:
                return
            first = min(worker.deadline for worker in busy.values())
            ready = wait([*busy], max(0.0, first - time.monotonic()))
            now = time.monotonic()
            for connection, worker in [*busy.items()]:
                if connection in ready or worker.deadline <= now:
                    del busy[connection]
                    outcome = worker.outcome(seconds)
                    if worker.is_usable:
                        idle.append(worker)
                    yield outcome
    finally:
        for worker in [*busy.values(), *idle]:
            worker.close()


class _Worker:
    """A process that works on one file after the other.

    Attributes:
        connection: The end of this process.
        deadline: When the file that it works on has taken too long, by the monotonic clock.
        is_usable: Whether it takes another file.
    """

    def __init__(self) -> None:
        self.connection, worker_end = Pipe()
        code = _START.format(path=sys.path, descriptor=worker_end.fileno())
        # Ctrl-C is for this process, which ends the others. It stays blocked in what begins while it is blocked.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with worker_end:
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                    [sys.executable, "-c", code],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(worker_end.fileno(),),
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        self._path = ""
        self._project: Project | None = None
        self.deadline = 0.0
        self.is_usable = True

    def begin(self, path: str, data: bytes, settings: Settings, seconds: float) -> None:
        """Let the process work on a file."""
        self._path, self.deadline = path, time.monotonic() + seconds
        # The project knows all modules of the run: sent with each file, it would cost the square of their number.
        news = None if settings.project is self._project else settings.project
        self._project, settings = settings.project, dataclasses.replace(settings, project=Project())
        with contextlib.suppress(ConnectionError):  # it has died, which its outcome says
            self.connection.send((path, data, settings, news))

    def outcome(self, seconds: float) -> Outcome:
        """Return what became of the file; a process that gave none is ended."""
        try:
            if self.connection.poll():
                outcome: Outcome = self.connection.recv()
                return outcome
        except (EOFError, ConnectionError):
            return Failed(
                self._path,
                f"left alone, because it ends the process that reads it ({self._end()}): its code may "
                "be nested too deep for the parser",
            )
        self.close()
        return Failed(self._path, f"left alone, because it takes more than {seconds:g} seconds")

    def _end(self) -> str:
        code = self._process.wait()
        self.close()
        return f"with {signal.Signals(-code).name}" if code < 0 else f"with exit status {code}"

    def close(self) -> None:
        """End the process, whatever it does."""
        self.is_usable = False
        self._process.kill()
        self._process.wait()
        self.connection.close()


def main(descriptor: int) -> None:
    """Work on files until the process that sends them is gone; the whole life of a worker.

    Args:
        descriptor: The worker's end of the connection.
    """
    ours = Connection(descriptor)
    with ours as connection, _rare_collection(), contextlib.suppress(EOFError, ConnectionError):
        project = Project()
        while True:
            path, data, settings, news = connection.recv()
            project = news or project
            connection.send(process(path, data, dataclasses.replace(settings, project=project)))
