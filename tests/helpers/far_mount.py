"""A FUSE mount of a directory that answers as an object store's does: late, at some bandwidth, and not everything.

``python far_mount.py DIRECTORY MOUNTPOINT '{"seconds": 0.02, "bandwidth": 80e6, "refusing": false}'`` serves until it
is unmounted or its standard input ends. :func:`far_mount` starts and ends it. What was asked of it is counted, and faults can be ordered,
through extended attributes of the mount point, which take no time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

COUNTS, FAULT = "user.counts", "user.fault"
WRITING = os.O_WRONLY | os.O_RDWR
DELAYED = {"getattr", "readdir", "open", "read", "create", "write", "mkdir", "unlink", "rename"}


def no_mount_because() -> str | None:
    """Return why this machine cannot mount, None if it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs /dev/fuse"
    try:
        import fuse  # noqa: F401 - from fusepy; looks for libfuse
    except (ImportError, OSError) as error:
        return f"needs Debian's fuse and libfuse2 ({error})"
    return None


class FarMount:
    """A mount under way.

    Attributes:
        path: The mount point.
        behind: The directory that it shows.
    """

    def __init__(self, path: Path, behind: Path) -> None:
        self.path = path
        self.behind = behind

    def counts(self) -> dict[str, int]:
        """Return how often each operation was asked, bytes read and written, and ``read <name>`` by file.

        ``in_sequence`` is the longest chain of operations of which each began after the one before had ended.
        """
        return json.loads(os.getxattr(self.path, COUNTS))

    def start_counting(self) -> None:
        """Begin again at zero."""
        os.setxattr(self.path, COUNTS, b"")

    def fail(self, part_of_name: str, kind: str, times: int = 1) -> None:
        """Order faults: the next reads of files with this in their name go wrong.

        Args:
            part_of_name: Of the files.
            kind: ``error`` (EIO), ``short`` (an end in mid-range), ``silent`` (no answer for a minute),
                ``missing`` (ENOENT when it is opened) or ``closed`` (EIO then). Where Linux keeps pages, FUSE
                forbids mounts the ``short`` answer: readers get an end there or, if the attributes were asked
                for in between, zeros, ``cat`` as well. Without pages they get fewer bytes, and ask for the rest.
            times: How often.
        """
        order = {"name": part_of_name, "kind": kind, "times": times}
        os.setxattr(self.path, FAULT, json.dumps(order).encode())


@contextlib.contextmanager
def far_mount(
    behind: Path,
    path: Path,
    *,
    seconds: float = 0.02,
    bandwidth: float = 80e6,
    refusing: bool = False,
    renaming: bool = True,
    caching: bool | None = None,
) -> Iterator[FarMount]:
    """Mount a directory for the block.

    Args:
        behind: The directory.
        path: Where to mount it; made if need be.
        seconds: Until an answer begins, of each ``read``, ``open`` and ``getattr``.
        bandwidth: Bytes a second of one answer.
        refusing: Refuse what mounts of object stores refuse: appending, seeking back while writing,
            links, locks and shared memory maps.
        renaming: Whether files can be renamed, which some mounts refuse as well.
        caching: Whether Linux keeps pages of it, which memory maps need; None for not where it is refusing.
    """
    path.mkdir(parents=True, exist_ok=True)
    options = {
        "seconds": seconds,
        "bandwidth": bandwidth,
        "refusing": refusing,
        "renaming": renaming,
        "caching": not refusing if caching is None else caching,
    }
    command = [sys.executable, __file__, str(behind), str(path), json.dumps(options)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert server.stdin
    try:
        while not os.path.ismount(path):
            if server.poll() is not None:
                raise RuntimeError(f"the mount ended with exit code {server.returncode}")
            time.sleep(0.02)
        yield FarMount(path, behind)
    finally:
        unmount(str(path))
        server.stdin.close()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def unmount(path: str) -> None:
    """Unmount a directory, even if something uses it."""
    subprocess.run(["fusermount", "-u", "-z", path], check=False, capture_output=True)


def _unmount_without_parent(path: str) -> None:
    """Unmount when whoever started the server has ended, in whatever way."""
    sys.stdin.read()
    unmount(path)


def serve(behind: str, path: str, options: dict) -> None:
    """Serve until unmounted."""
    import fuse

    seconds, bandwidth, refusing = options["seconds"], options["bandwidth"], options["refusing"]

    class Passthrough(fuse.Operations):
        def __init__(self) -> None:
            self.counts: Counter[str] = Counter()
            self.faults: list[dict] = []
            self.ends: dict[int, int] = {}
            self.chain_end = 0.0
            self.mutex = threading.Lock()

        def __call__(self, operation, *arguments):
            began = time.monotonic()
            try:
                return super().__call__(operation, *arguments)
            finally:
                if operation in DELAYED:
                    self._count_chain(began)

        def _count_chain(self, began: float) -> None:
            now = time.monotonic()
            with self.mutex:
                if began >= self.chain_end:  # taking the first to end gives the longest chain
                    self.counts["in_sequence"] += 1
                    self.chain_end = now

        def _real(self, path: str) -> str:
            return behind + path

        def _count(self, **numbers: int) -> None:
            with self.mutex:
                self.counts.update(numbers)

        def _fault(self, path: str, *kinds: str) -> str | None:
            with self.mutex:
                for fault in self.faults:
                    if fault["times"] and fault["kind"] in kinds and fault["name"] in path:
                        fault["times"] -= 1
                        return fault["kind"]
            return None

        # What the tests ask.

        def getxattr(self, path, name, position=0):
            if path == "/" and name == COUNTS:
                with self.mutex:
                    return json.dumps(self.counts).encode()
            raise fuse.FuseOSError(errno.ENODATA)

        def setxattr(self, path, name, value, options, position=0):
            if path == "/" and name == COUNTS:
                with self.mutex:
                    self.counts.clear()
                    self.chain_end = 0.0
            elif path == "/" and name == FAULT:
                with self.mutex:
                    self.faults.append(json.loads(value))
            else:
                raise fuse.FuseOSError(errno.ENOTSUP)
            return 0

        # Reading.

        def getattr(self, path, fh=None):
            self._count(getattr=1)
            time.sleep(seconds)
            found = os.lstat(self._real(path))
            names = (
                "st_mode",
                "st_nlink",
                "st_uid",
                "st_gid",
                "st_size",
                "st_atime",
                "st_mtime",
                "st_ctime",
            )
            return {name: getattr(found, name) for name in names}

        def readdir(self, path, fh):
            self._count(readdir=1)
            time.sleep(seconds)
            return [".", "..", *os.listdir(self._real(path))]

        def open(self, path, flags):
            self._count(open=1)
            time.sleep(seconds)
            if self._fault(path, "missing"):
                raise fuse.FuseOSError(errno.ENOENT)
            if self._fault(path, "closed"):
                raise fuse.FuseOSError(errno.EIO)
            if refusing and flags & os.O_APPEND:
                raise fuse.FuseOSError(errno.ENOTSUP)
            if (
                refusing
                and flags & WRITING
                and not flags & os.O_TRUNC
                and os.path.getsize(self._real(path))
            ):
                raise fuse.FuseOSError(errno.ENOTSUP)  # a change in place
            descriptor = os.open(self._real(path), flags & ~os.O_DIRECT)
            self.ends[descriptor] = 0
            return descriptor

        def read(self, path, size, offset, fh):
            kind = self._fault(path, "error", "short", "silent")
            if kind == "error":
                raise fuse.FuseOSError(errno.EIO)
            if kind == "silent":
                time.sleep(60)
            data = os.pread(fh, size, offset)
            if kind == "short":
                data = data[: len(data) // 2]
            time.sleep(seconds + len(data) / bandwidth)
            self._count(
                read=1, bytes_read=len(data), **{f"read {os.path.basename(path)}": len(data)}
            )
            return data

        def statfs(self, path):
            found = os.statvfs(self._real(path))
            names = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag",
                     "f_frsize", "f_namemax")  # fmt: skip
            return {name: getattr(found, name) for name in names}

        # Writing.

        def create(self, path, mode, fi=None):
            self._count(create=1)
            time.sleep(seconds)
            descriptor = os.open(self._real(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)
            self.ends[descriptor] = 0
            return descriptor

        def write(self, path, data, offset, fh):
            if refusing and offset != self.ends.get(fh, 0):
                raise fuse.FuseOSError(errno.ENOTSUP)
            time.sleep(len(data) / bandwidth)
            written = os.pwrite(fh, data, offset)
            self.ends[fh] = offset + written
            self._count(write=1, bytes_written=written)
            return written

        def truncate(self, path, length, fh=None):
            if refusing and length:
                raise fuse.FuseOSError(errno.ENOTSUP)
            os.truncate(self._real(path) if fh is None else fh, length)

        def flush(self, path, fh):
            return 0

        def fsync(self, path, datasync, fh):
            return 0

        def release(self, path, fh):
            self.ends.pop(fh, None)
            os.close(fh)

        def mkdir(self, path, mode):
            self._count(mkdir=1)
            time.sleep(seconds)
            os.mkdir(self._real(path), mode)

        def unlink(self, path):
            self._count(unlink=1)
            time.sleep(seconds)
            os.unlink(self._real(path))

        def rmdir(self, path):
            os.rmdir(self._real(path))

        def rename(self, old, new):
            self._count(rename=1)
            if not options["renaming"] or (refusing and os.path.isdir(self._real(old))):
                raise fuse.FuseOSError(errno.ENOTSUP)
            # Object stores copy.
            time.sleep(seconds + os.path.getsize(self._real(old)) / bandwidth)
            os.rename(self._real(old), self._real(new))

        def link(self, target, source):
            raise fuse.FuseOSError(errno.ENOTSUP)

        def symlink(self, target, source):
            if refusing:
                raise fuse.FuseOSError(errno.ENOTSUP)
            os.symlink(source, self._real(target))

        def readlink(self, path):
            return os.readlink(self._real(path))

        def chmod(self, path, mode):
            if refusing:
                raise fuse.FuseOSError(errno.ENOTSUP)
            os.chmod(self._real(path), mode)

        def utimens(self, path, times=None):
            os.utime(self._real(path), times)

    class Refusing(Passthrough):
        def lock(self, path, fh, cmd, lock):
            raise fuse.FuseOSError(errno.ENOTSUP)

    threading.Thread(target=_unmount_without_parent, args=(path,), daemon=True).start()
    operations = Refusing() if refusing else Passthrough()
    fuse.FUSE(
        operations,
        path,
        foreground=True,
        nothreads=False,
        direct_io=not options["caching"],
        big_writes=True,
    )


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
