"""How torch's worker processes hand batches over, and where that cannot work."""

from __future__ import annotations

import os
import sys
import tempfile
from multiprocessing import util

import torch

# What a socket's name may be long, without the zero byte behind it: sockaddr_un.sun_path of Linux.
_LONGEST_NAME = 107
# The sockets of the two sharing strategies, below the directory that each of them takes, in their length.
_LISTENER = "/listener-12345678"  # multiprocessing.connection
_MANAGER = "/torch-shm-dir-123456/manager.sock"  # torch/lib/libshm


def refuse_deep_temporary_directory() -> None:
    """Raise an error in a worker of torch's ``DataLoader`` whose batches would never arrive.

    A worker passes each tensor through a socket below the temporary directory. Where the socket's name is
    too long, a thread of ``multiprocessing`` prints ``AF_UNIX path too long`` (``torch_shm_manager: Invalid
    argument`` with the sharing strategy ``file_system``) and drops the batch, for which the loader waits
    for ever.

    Raises:
        RuntimeError: The directory is too deep for a socket; says how short it has to be.
    """
    if sys.platform != "linux":
        return
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    if strategy == "file_system":
        socket = tempfile.gettempdir() + _MANAGER
    else:
        # The first batch would make this directory as well. Python 3.14 makes a shorter one where it has to.
        socket = util.get_temp_dir() + _LISTENER
    excess = len(os.fsencode(socket)) - _LONGEST_NAME
    if excess > 0:
        directory = tempfile.gettempdir()
        raise RuntimeError(
            f"The temporary directory {directory} is too deep for the sockets through which the workers of "
            "torch's DataLoader hand over batches, and the loader would wait for ever: set TMPDIR to a path "
            f"of at most {len(os.fsencode(directory)) - excess} characters, such as /tmp."
        )
