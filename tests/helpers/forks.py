"""Running a function in a fork of the test process."""

import multiprocessing
import os
import time
import traceback


def in_fork(work, patience=30.0):
    """Return what ``work()`` returns (or ``"Type: text"`` of what it raises) in a fork; "hangs" if it does.

    The child ends with ``os._exit``: nothing of pytest runs in it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                answer = repr(work())
            except Exception as error:  # noqa: BLE001 - is the answer
                answer = f"{type(error).__name__}: {error}"
            os.write(writing, answer.encode())
        except BaseException:  # noqa: BLE001 - nothing may leave this block
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    try:
        if not _ends(child, patience):
            os.kill(child, 9)
            os.waitpid(child, 0)
            return "hangs"
        return os.read(reading, 1 << 16).decode()
    finally:
        os.close(reading)


def _ends(child, patience):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.01)
    return False


def in_process(method, work, *arguments):
    """Run a function in a child of multiprocessing; return its exit code."""
    process = multiprocessing.get_context(method).Process(target=work, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode
