"""Files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

__all__ = ["write_whole"]


def write_whole(path: str, parts: Iterable[Any]) -> None:
    """Write buffers to a file that has its name only when it is complete.

    Raises:
        OSError: It cannot be written; the error names ``path``, and nothing is left behind.
    """
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "wb") as out:
            out.writelines(parts)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        # A failed write, unlike a failed open, does not say of which file.
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), path) from error
        raise
