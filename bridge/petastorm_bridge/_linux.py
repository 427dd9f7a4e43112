"""What readers and conversions need of the system, with one sentence where it is missing.

The command line's `codemod`, `doctor`, `rule`, `difference` and `parity compare` do without.
"""

from __future__ import annotations

__all__ = ["fcntl"]

try:
    import fcntl
except ModuleNotFoundError as error:
    raise ImportError(
        "petastorm_bridge needs Linux for this (on Windows, WSL). Here the commands doctor, codemod, rule, "
        "difference and parity compare of petastorm-bridge work."
    ) from error
