"""A Python that is not one: what it is to run runs in a fork of the Python that ``warm`` keeps.

Launchers start it in the place of ``python`` (torchrun its ranks, Spark its workers). It sends its arguments, its
environment, its input and its output to the server, hands signals on, and ends as the fork ends.
"""

import contextlib
import json
import os
import signal
import socket
import sys


def ask(path, request, files):
    """The connection on which the fork's process id comes, and then how it ended.

    Args:
        path: Of the server's socket.
        request: Arguments, environment and folder.
        files: The numbers of standard input, output and error.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    message = json.dumps(request).encode()
    socket.send_fds(connection, [len(message).to_bytes(8, "little")], files)
    connection.sendall(message)
    return connection


def main():
    path, *arguments = sys.argv[1:]
    while arguments[0] in {"-u", "-X"}:  # buffered or not, forks flush when they end
        arguments = arguments[1:]
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
    }
    with ask(path, request, [0, 1, 2]) as connection, connection.makefile("r") as answers:
        pid = int(answers.readline())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(answers.readline() or 1)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
