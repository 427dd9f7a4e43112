"""Streaming's shared memory, which it keeps until a process ends."""

import atexit
import contextlib
import gc
import re
from unittest import mock

# Of two processes that open their first datasets at once one may find the name of its memory taken, or, as a rank
# that is not its node's first, the other's memory under it. What was started then is started again.
NAME_WAS_TAKEN = re.compile(
    r"FileExistsError: .* '/\d{6}_\w+'"
    r"|Internal error: shared memory (prefix=\d+ was not registered by|registered does not match) local leader"
)


@contextlib.contextmanager
def goes_afterwards():
    """At the end of the block, all that datasets of the block have goes, as if their process had ended.

    Streaming keeps a dozen descriptors for each dataset until the process ends. Later datasets open, and keep, what
    earlier ones have that were never iterated over: hundreds in one process would use up its descriptors.
    """
    from streaming.base.shared import SharedMemory

    made = []
    initialise = SharedMemory.__init__

    def recorded(self, *arguments, **options):
        initialise(self, *arguments, **options)
        made.append(self)

    with mock.patch.object(SharedMemory, "__init__", recorded):
        yield
    gc.collect()  # arrays on the memory of datasets that are not used any more
    for shared in made:
        atexit.unregister(shared.cleanup)
        with contextlib.suppress(BufferError):  # a dataset from before the block is on it
            shared.cleanup()
