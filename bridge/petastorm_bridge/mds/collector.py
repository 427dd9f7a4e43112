"""The garbage collector, where it is only in the way."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Let Python's collector of cycles rest in the body, unless it does so already.

    For many objects that are made to stay: it would look at all of them again and again while they
    become more, which took most of the time of opening an index of 20,000 shards.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
