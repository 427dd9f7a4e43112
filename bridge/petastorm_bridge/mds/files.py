"""Files that appear complete or not at all, and files that are nothing but files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, BinaryIO

from .errors import NoFileError

# What a name that leads to no usable file gives, unlike a file system that fails or refuses.
_NO_FILE = {errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.ENODEV, errno.EISDIR, errno.EINVAL}

NO_RENAMING = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EPERM})
"""How mounts of object stores say that they rename nothing."""

# Of writes ahead: files and bytes under way.
_MOST_FILES = 4
_MOST_BYTES = 1 << 27

_TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{32}\.tmp", re.DOTALL)


def open_regular(path: str) -> BinaryIO:
    """Open a regular file for reading, unbuffered; never waits, as opening a FIFO would.

    Raises:
        FileNotFoundError: There is no such file.
        NoFileError: It is a directory, a FIFO, a device, or a name that cannot be opened.
        OSError: The file system refuses or fails; the error names ``path``.
    """
    try:
        file = open(path, "rb", buffering=0, opener=_without_waiting)  # noqa: SIM115 - the caller does
    except IsADirectoryError as error:
        raise _not_regular(path) from error
    except NotADirectoryError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_FILE:
            raise
        raise NoFileError(f"{path!r} cannot be opened as a file: {error}.") from error
    with contextlib.ExitStack() as on_error:
        on_error.enter_context(file)
        # A mount may be gone by now.
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _not_regular(path)
        on_error.pop_all()
        return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _not_regular(path: str) -> NoFileError:
    return NoFileError(
        f"{path} is no regular file but a directory, FIFO, device or socket. Remove it, and convert the "
        "DataFrame again or fetch the file again from its source."
    )


def read_into(file: BinaryIO, start: int, out: memoryview) -> int:
    """Fill a buffer with a file's bytes from ``start`` on; return how many there were. Errors name the file."""
    filled = 0
    with _naming(file.name):
        while filled < len(out):
            # Linux reads at most 2 GiB at once.
            count = os.preadv(file.fileno(), [out[filled : filled + (1 << 30)]], start + filled)
            if not count:
                break
            filled += count
    return filled


def write_whole(
    path: str,
    parts: Iterable[Any],
    *,
    is_durable: bool = False,
    folder: int | None = None,
    in_place: bool = False,
) -> None:
    """Write buffers to a file that has its name only when it is complete.

    Any number of writers may write the same file at once: one of them wins. Where nothing can be
    renamed, as on some mounts of object stores, it is written once more under its name: there a file
    is seen when it is closed.

    Args:
        path: The file.
        parts: Its content.
        is_durable: Wait for the disk before the file gets its name. Otherwise a machine that loses
            power may come up with the name and without the content.
        folder: Descriptor of the directory that ``path`` is relative to, opened without following links.
        in_place: Write under the file's own name, because nobody looks for it before it is there, and others only
            write the same to it: mounts of object stores rename by copying. What is there, such as a link or the
            half of a killed process, is removed and not written to; the same content stays at all times.

    Raises:
        OSError: It cannot be written; the error names ``path``, and nothing is left behind.
    """
    parts = [*parts]
    with _naming(path):
        if in_place or not _renamed(path, parts, is_durable, folder):
            _replace(path, parts, is_durable, folder)


def _renamed(path: str, parts: list[Any], is_durable: bool, folder: int | None) -> bool:
    """Write a file under another name and rename it; return False where nothing can be renamed."""
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    _write(temporary, parts, is_durable, folder)
    try:
        os.replace(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.remove(temporary, dir_fd=folder)
        if not isinstance(error, OSError) or error.errno not in NO_RENAMING:
            raise
        return False
    return True


def _replace(path: str, parts: list[Any], is_durable: bool, folder: int | None) -> None:
    """Write a file under its own name, unless it is there as it is to be."""
    while True:
        try:
            _write(path, parts, is_durable, folder)
        except FileExistsError:
            if holds(path, parts, folder):
                return
            with contextlib.suppress(FileNotFoundError):
                os.remove(path, dir_fd=folder)
        else:
            return


def holds(path: str, parts: Iterable[Any], folder: int | None = None) -> bool:
    """Return whether a path is that of a file of this content, and no link to one."""
    try:
        with _open(path, "rb", folder) as file:
            same = all(file.read(len(part)) == part for part in parts)
            return same and not file.read(1)
    except OSError as error:
        if error.errno not in {errno.ENOENT, *_NO_FILE}:
            raise
        return False


def _write(path: str, parts: Iterable[Any], is_durable: bool, folder: int | None) -> None:
    """Write a file that is not there yet, from its beginning to its end, or leave nothing."""
    out = _open(path, "xb", folder)
    try:
        with out:  # stores take what was written when it is closed, or refuse it then
            out.writelines(parts)
            if is_durable:
                out.flush()
                os.fsync(out.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(path, dir_fd=folder)
        raise


def _open(path: str, mode: str, folder: int | None) -> IO[bytes]:
    def opened(path: str, flags: int) -> int:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=folder)

    return open(path, mode, opener=opened)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Name the file in errors of the block: failed reads and writes, unlike a failed open, do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), path) from error
        raise


def final_name(name: str) -> str:
    """Return the name that a file which :func:`write_whole` is writing will have; others as they are."""
    temporary = _TEMPORARY.fullmatch(name)
    return temporary[1] if temporary else name


class WritesAhead:
    """Writes files to a far directory, where a file takes long and several take no longer.

    Few are under way, and few bytes beside a single file of any size.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_MOST_FILES)
        self._under_way: deque[tuple[Future[None], int]] = deque()

    def __call__(self, path: str, parts: Sequence[memoryview]) -> None:
        """Begin to write a file in place (:func:`write_whole`); wait while there are too many. Raises for earlier ones."""
        size = sum(map(len, parts))
        while len(self._under_way) == _MOST_FILES or (
            self._under_way and size + sum(other for _, other in self._under_way) > _MOST_BYTES
        ):
            self._wait_for_first()
        self._under_way.append((self._pool.submit(write_whole, path, parts, in_place=True), size))

    def finish(self) -> None:
        """Wait for all files; raises as calls do."""
        while self._under_way:
            self._wait_for_first()
        self.close()

    def close(self) -> None:
        """Begin no other file, and wait for those that are half written."""
        self._pool.shutdown(cancel_futures=True)

    def _wait_for_first(self) -> None:
        self._under_way.popleft()[0].result()
