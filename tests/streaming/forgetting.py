"""Let datasets end before their process does.

Streaming keeps every dataset, and every file of its shared memory, until the interpreter exits. A test
process that makes thousands of datasets would run out of files.
"""

import functools
import gc
import sys
import threading
import time
import types
import weakref

from streaming import StreamingDataset
from streaming.base.dataset import _Iterator
from streaming.base.shared import memory

_MOST = 300
_OF_A_PASS = {StreamingDataset._prepare_thread.__code__, StreamingDataset._ready_thread.__code__}

_pending = []


def begin():
    """From now on, remember what shared memory wants done at the interpreter's exit."""
    memory.atexit = types.SimpleNamespace(register=_pending.append)


def forget_some():
    """Forget datasets that nobody has any more, if there may be many."""
    if len(_pending) > _MOST:
        forget()


def forget():
    """Close the shared memory of datasets that nobody has any more."""
    exits = threading._threading_atexits
    _end_passes(exits)
    exits[:] = [_weakly(call) for call in exits]
    gc.collect()
    _pending[:] = [cleanup for cleanup in _pending if not _ended(cleanup)]
    gc.collect()


def _end_passes(exits):
    """End the threads of passes that nobody has finished: without its shared memory one would wait for ever."""
    passes = [call for call in exits if isinstance(_whose(call), _Iterator)]
    for end in passes:
        end()
    exits[:] = [call for call in exits if call not in passes]
    deadline = time.monotonic() + 5
    while any(map(_is_of_a_pass, sys._current_frames().values())) and time.monotonic() < deadline:
        time.sleep(0.001)


def _is_of_a_pass(frame):
    while frame is not None:
        if frame.f_code in _OF_A_PASS:
            return True
        frame = frame.f_back
    return False


def _whose(call):
    return getattr(getattr(call, "func", None), "__self__", None)


def _weakly(call):
    if not isinstance(_whose(call), StreamingDataset):
        return call
    return functools.partial(_call, weakref.WeakMethod(call.func))


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
