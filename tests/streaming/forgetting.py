"""Let datasets end before their process does.

Streaming keeps every dataset, and every file of its shared memory, until the interpreter exits. A test
process that makes thousands of datasets would run out of files.
"""

import functools
import gc
import threading
import types
import weakref

from streaming import StreamingDataset
from streaming.base.shared import memory

_MOST = 300

_pending = []


def begin():
    """From now on, remember what shared memory wants done at the interpreter's exit."""
    memory.atexit = types.SimpleNamespace(register=_pending.append)
    # What the engines' modules hold is no garbage; looking through it took a second after each test.
    gc.collect()
    gc.freeze()


def forget_some():
    """Forget datasets that nobody has any more, if there may be many."""
    if len(_pending) > _MOST:
        forget()


def forget():
    """Close the shared memory of datasets that nobody has any more."""
    exits = threading._threading_atexits
    exits[:] = [_weakly(call) for call in exits]
    gc.collect()
    _pending[:] = [cleanup for cleanup in _pending if not _ended(cleanup)]
    gc.collect()


def _weakly(call):
    method = getattr(call, "func", None)
    if not isinstance(getattr(method, "__self__", None), StreamingDataset):
        return call
    return functools.partial(_call, weakref.WeakMethod(method))


def _call(method):
    found = method()
    if found is not None:
        found()


def _ended(cleanup):
    try:
        cleanup()
    except BufferError:  # a dataset still uses it
        return False
    return True
