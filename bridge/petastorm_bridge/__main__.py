"""``petastorm-bridge`` and ``python -m petastorm_bridge``: the command line, which Ctrl-C ends with one sentence."""

from __future__ import annotations

import os
import sys

# ``-m`` looks for modules in the working directory first. The commands look at repositories from within,
# and nothing of a repository may run because it is called as a module of Python's.
if sys.path[0] in {"", os.getcwd()}:
    del sys.path[0]

import signal

__all__ = ["main"]

_INTERRUPTED = 130  # of a shell: 128 and the number of the signal


def main() -> None:
    """Runs the command line; the entry point of ``petastorm-bridge``."""
    try:
        # Loading it takes a moment, in which people change their minds.
        from .cli import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("petastorm-bridge: interrupted.\n")
        sys.exit(_INTERRUPTED)
    finally:
        # Everything is done: what is left is Python's own end, which would print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
