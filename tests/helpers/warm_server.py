"""The Python that ``warm`` forks: it imports the engines, and then waits for requests.

Each request is a program to run. It comes with the files for what the program prints, on a connection of its own
that takes the answers; what closes the connection ends the program. The fork leaves the loop and becomes the
program, so that it ends as Python ends.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import selectors
import shutil
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


def serve(listener, tests):
    """The first request's program, in a fork; the server itself ends when the tests do, with all programs.

    Args:
        listener: Takes the connections of requests.
        tests: The pidfd of the process that started the tests.
    """
    waiting = selectors.DefaultSelector()  # each with what is to be done, and with what
    waiting.register(listener, selectors.EVENT_READ)
    waiting.register(tests, selectors.EVENT_READ)
    while True:
        for ready, _ in waiting.select():
            if ready.fileobj == tests:
                for program in {key.data[0] for key in waiting.get_map().values() if key.data}:
                    os.kill(program, signal.SIGKILL)
                return None
            if ready.fileobj is listener:
                connection, _ = listener.accept()
                request, files = receive(connection)
                pid = os.fork()
                if not pid:
                    forget(waiting)
                    connection.close()
                    return request, files
                for file in files:
                    os.close(file)
                with contextlib.suppress(OSError):
                    connection.sendall(b"%d\n" % pid)
                ended = os.pidfd_open(pid)
                waiting.register(ended, selectors.EVENT_READ, (pid, connection))
                waiting.register(connection, selectors.EVENT_READ, (pid, ended))
            elif isinstance(ready.fileobj, int):
                pid, connection = ready.data
                waiting.unregister(ready.fileobj)
                with contextlib.suppress(KeyError):
                    waiting.unregister(connection)
                os.close(ready.fileobj)
                tell(pid, connection)
            else:  # whoever asked has gone
                pid, _ = ready.data
                waiting.unregister(
                    ready.fileobj
                )  # it would be ready for ever, before everything else
                os.kill(pid, signal.SIGKILL)
            break  # what else is ready may be about the same program


def receive(connection):
    """A request, and the files that came with it: standard input, output and error."""
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    size = int.from_bytes(head, "little")
    return json.loads(connection.recv(size, socket.MSG_WAITALL)), files


def tell(pid, connection):
    """How a program ended."""
    _, status = os.waitpid(pid, 0)
    with connection, contextlib.suppress(OSError):  # nobody may wait for it any more
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def forget(waiting):
    """Close in a fork what its server has open."""
    for key in list(waiting.get_map().values()):
        if isinstance(key.fileobj, int):
            os.close(key.fileobj)
        else:
            key.fileobj.close()
    waiting.close()


def become(request, files, python):
    """Make this process what a new Python would be for the request.

    Args:
        request: What is to run, and where.
        files: Its standard input, output and error.
        python: What launchers start instead of Python: their programs are forks too. Torchrun takes the name of
            PYTHON_EXEC, and Spark, for its workers, that of PYSPARK_PYTHON; a test may name another one there.
    """
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ["PYTHON_EXEC"] = python
    if os.environ.get("PYSPARK_PYTHON") == sys.executable:
        os.environ["PYSPARK_PYTHON"] = python
    os.chdir(request["folder"])
    tempfile.tempdir = None  # an engine may have asked for it before
    signal.signal(signal.SIGINT, signal.default_int_handler)
    del sys.path[0]  # of this file
    sys.path[:0] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    # All forks would draw the same numbers; Python's own generator sees to that by itself.
    sys.modules["numpy"].random.seed(random.getrandbits(32))
    if "torch" in sys.modules and os.environ.get("OMP_NUM_THREADS"):
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
    if os.fork():
        os._exit(0)  # no child of the test process that needed it first: all share it
    os.setsid()
    listener = socket.socket(fileno=int(sys.argv[1]))
    tests = os.pidfd_open(int(sys.argv[2]))
    import_engines()
    gc.freeze()  # or each fork would copy all that is imported when it ends
    asked = serve(listener, tests)
    if asked is None:
        shutil.rmtree(sys.argv[3], ignore_errors=True)
        return
    become(*asked, os.path.join(sys.argv[3], "python"))
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
