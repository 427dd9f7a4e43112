"""How a process ended, in words."""

from __future__ import annotations

import contextlib
import signal

__all__ = ["how_it_ended"]


def how_it_ended(code: int) -> str:
    """Return ``with exit code 1`` or ``by signal 9 (SIGKILL)``.

    Args:
        code: The exit code; the negative number of the signal that ended the process.
    """
    if code < 0:
        with contextlib.suppress(ValueError):  # a signal Python has no name for
            return f"by signal {-code} ({signal.Signals(-code).name})"
    return f"with exit code {code}"
