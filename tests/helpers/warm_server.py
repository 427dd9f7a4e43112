"""The Python that ``warm`` forks: it imports the engines, and then waits for requests.

Each request is a program to run. It comes with the connection for answers and with the files for what the
program prints. The fork leaves the loop and becomes the program, so that it ends as Python ends.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import types
import warnings

ENGINES = (
    "numpy",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyspark.sql",
    "torch.utils.data",
    "streaming",
    "tensorflow",
)


def serve(requests):
    """The first request's program, in a fork; the server itself ends when the tests do."""
    ends = selectors.DefaultSelector()  # of running programs, with where to tell it
    ends.register(requests, selectors.EVENT_READ)
    while True:
        for ready, _ in ends.select():
            if ready.data is not None:
                ends.unregister(ready.fd)
                tell(ready.fd, *ready.data)
                continue
            request, files = receive(requests)
            if request is None:
                return None
            answers = socket.socket(fileno=files[0])
            pid = os.fork()
            if not pid:
                forget(ends)
                answers.close()
                return request, files[1:]
            for file in files[1:]:
                os.close(file)
            answers.sendall(b"%d\n" % pid)
            ends.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answers))


def receive(requests):
    """A request, and the files that came with it; None at the end."""
    head, files, _, _ = socket.recv_fds(requests, 8, 3)
    if not head:
        return None, []
    size = int.from_bytes(head, "little")
    return json.loads(requests.recv(size, socket.MSG_WAITALL)), files


def tell(ended, pid, answers):
    """How a program ended."""
    os.close(ended)
    _, status = os.waitpid(pid, 0)
    with answers, contextlib.suppress(OSError):  # nobody may wait for it any more
        answers.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def forget(ends):
    """Close in a fork what its server has open."""
    for key in list(ends.get_map().values()):
        if key.data is None:
            key.fileobj.close()
        else:
            os.close(key.fd)
            key.data[1].close()
    ends.close()


def become(request, files):
    """Make this process what a new Python would be for the request."""
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    tempfile.tempdir = None  # an engine may have asked for it before
    signal.signal(signal.SIGINT, signal.default_int_handler)
    del sys.path[0]  # of this file
    sys.path[:0] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    # All forks would draw the same numbers; Python's own generator sees to that by itself.
    sys.modules["numpy"].random.seed(random.getrandbits(32))
    if os.environ.get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def run(arguments):
    """Run a program: a file, ``-m module`` or ``-c code``; ``-W action`` may come before it."""
    actions = [action for action in os.environ.get("PYTHONWARNINGS", "").split(",") if action]
    while arguments[0] == "-W":
        actions.append(arguments[1])
        arguments = arguments[2:]
    sys.warnoptions[:] = actions
    for action in actions:
        warnings.simplefilter(action)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        code = compile(arguments[1], "<string>", "exec")
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
        main.__file__ = arguments[0]
        with open(arguments[0], "rb") as file:
            code = compile(file.read(), arguments[0], "exec")
    exec(code, main.__dict__)


def import_engines():
    """Those that are installed; what they say to standard error is nobody's."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    for engine in ENGINES:
        with contextlib.suppress(ImportError):
            importlib.import_module(engine)
    os.dup2(kept, 2)
    os.close(kept)


def main():
    """Import, wait, and be the program."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    import_engines()
    gc.freeze()  # or each fork would copy all that is imported when it ends
    asked = serve(requests)
    if asked is None:
        return
    become(*asked)
    try:
        run(asked[0]["arguments"])
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as problem:  # noqa: BLE001 - as Python prints it, without the lines of this file
        problem.__traceback__ = problem.__traceback__.tb_next.tb_next
        sys.excepthook(type(problem), problem, problem.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    main()
