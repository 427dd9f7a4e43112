"""Working on files in processes, so that none of them can end the run or hold it up for ever.

LibCST's parser runs in native code: what is nested too deep for its stack ends the process that parses
it, and the time for one long expression is not linear. Such files are worked on alone.
"""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
import multiprocessing
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection

from ._engine import process
from ._model import Failed, Outcome
from ._settings import Settings
from ._text.ipynb import read_notebook

File = tuple[str, bytes]

# Fewer files are done before a second process has imported LibCST.
_WORTH_A_PROCESS = 12
# Far below what overflows a stack of 8 MB (2,000 brackets, 5,000 elif) or takes minutes.
_DEEPEST_BRACKETS = 200
_MOST_OPERATORS = 3000
_BRACKETS = re.compile(rb"[()\[\]{}]")
_OPERATORS = re.compile(rb"[-+*/%@&|^~<>]|\b(?:and|await|elif|else|for|if|in|is|lambda|not|or)\b")
_SECONDS_ALONE = 300.0


def work_on(
    files: Sequence[File], settings: Callable[[str], Settings], jobs: int
) -> Iterator[Outcome]:
    """Yield what becomes of each file, in no particular order; nothing is written.

    Args:
        files: Paths and contents.
        settings: Returns what to do with the file at a path.
        jobs: Number of processes; files that may end a process are worked on in one of their own.
    """
    risky = [file for file in files if is_risky(*file)]
    plain = [file for file in files if not is_risky(*file)] if risky else list(files)
    if jobs < 2 or len(plain) < _WORTH_A_PROCESS:
        for path, data in plain:
            yield process(path, data, settings(path))
    else:
        # Largest first, so that no process is left alone with a large file at the end.
        yield from _in_pools(sorted(plain, key=lambda file: -len(file[1])), settings, jobs)
    for path, data in risky:
        yield alone(path, data, settings(path))


def is_risky(path: str, data: bytes) -> bool:
    """Say by a cheap count whether the parser may not survive a file, or take very long for it."""
    if not _is_intricate(data):
        return False
    if path.endswith(".ipynb"):
        try:
            cells = read_notebook(data.decode()).cells  # outputs do not count
        except ValueError:
            return False
        return any(_is_intricate(cell.text.encode(errors="replace")) for cell in cells)
    return True


def _is_intricate(data: bytes) -> bool:
    most = itertools.islice(_OPERATORS.finditer(data), _MOST_OPERATORS, None)
    if next(most, None) is not None:
        return True
    depth = deepest = 0
    for bracket in _BRACKETS.findall(data):
        depth = depth + 1 if bracket in b"([{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest > _DEEPEST_BRACKETS


def _in_pools(
    files: Sequence[File], settings: Callable[[str], Settings], jobs: int
) -> Iterator[Outcome]:
    """Yield the outcomes of files; where a process dies, of those that it may have worked on alone."""
    left = list(files)
    context = multiprocessing.get_context("spawn")
    while left:
        done: set[str] = set()
        with concurrent.futures.ProcessPoolExecutor(
            jobs, mp_context=context, initializer=_collect_rarely
        ) as pool:
            waiting = {
                pool.submit(process, path, data, settings(path)): path for path, data in left
            }
            for future in concurrent.futures.as_completed(waiting):
                path = waiting[future]
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    continue
                except Exception as error:  # noqa: BLE001 – what cannot be sent between processes
                    outcome = Failed(path, f"{type(error).__name__}: {error}", abnormal=True)
                done.add(path)
                yield outcome
        left = [file for file in left if file[0] not in done]
        # Files are taken in order, and a few wait for a process beside those that are worked on.
        suspects, left = left[: 2 * jobs + 2], left[2 * jobs + 2 :]
        for path, data in suspects:
            yield alone(path, data, settings(path))


def alone(path: str, data: bytes, settings: Settings, seconds: float = _SECONDS_ALONE) -> Outcome:
    """Return what becomes of a file that is worked on in a process of its own.

    Args:
        path: Path of the file.
        data: Its bytes.
        settings: What to do.
        seconds: How long it may take.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    worker = context.Process(target=_send, args=(theirs, path, data, settings), daemon=True)
    worker.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            return Failed(path, f"left alone, because it takes more than {seconds:g} seconds")
        outcome: Outcome = ours.recv()
    except EOFError:
        worker.join()
        return Failed(path, f"left alone, because it ends the process that reads it {_end(worker)}")
    else:
        return outcome
    finally:
        ours.close()
        worker.kill()
        worker.join()


def _end(worker: multiprocessing.process.BaseProcess) -> str:
    code = worker.exitcode or 0
    how = f"with {signal.Signals(-code).name}" if code < 0 else f"with exit status {code}"
    return f"({how}): its code may be nested too deep for the parser"


def _send(connection: Connection, path: str, data: bytes, settings: Settings) -> None:
    with connection:
        connection.send(process(path, data, settings))


def _collect_rarely() -> None:
    """Let the garbage collector of a worker rest: trees are made faster than it can walk them."""
    gc.set_threshold(200_000, 20, 20)
