"""An ``fsspec`` filesystem that shows a directory as an object store does: late, and at some bandwidth.

For machines without FUSE. ``far://`` is known to every process that :func:`far_fsspec` lends its environment; what all
of them ask is counted in one place, and faults reach whichever asks first.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

SCHEME = "far"
_BUCKET = "bucket"
_STATE = "FAR_FSSPEC_STATE"
_SILENT_SECONDS = 60


class FarFsspec:
    """A place under way.

    Attributes:
        environment: Variables for the processes that are to know the scheme.
    """

    def __init__(self, behind: Path, state: Path, environment: dict[str, str]) -> None:
        self._behind = behind
        self._state = state
        self.environment = environment

    @property
    def url(self) -> str:
        """Return the URL of the directory."""
        return f"{SCHEME}://{_BUCKET}{self._behind}"

    def counts(self) -> dict[str, int]:
        """Return how often each operation was asked, bytes read, and ``read <name>``, bytes by file."""
        found: Counter[str] = Counter()
        with (self._state / "asked").open(encoding="utf-8") as lines:
            for line in lines:
                found.update(json.loads(line))
        return dict(found)

    def start_counting(self) -> None:
        """Begin again at zero."""
        os.truncate(self._state / "asked", 0)

    def fail(self, part_of_name: str, kind: str, times: int = 1) -> None:
        """Order faults: the next reads of files with this in their path go wrong.

        Args:
            part_of_name: Of the paths.
            kind: ``error``, ``short`` (fewer bytes than asked for), ``silent`` (no answer for a minute) or
                ``missing``.
            times: How often.
        """
        with _faults(self._state) as faults:
            faults.append({"name": part_of_name, "kind": kind, "times": times})


@contextlib.contextmanager
def far_fsspec(
    behind: Path, *, seconds: float = 0.03, bandwidth: float = 80e6
) -> Iterator[FarFsspec]:
    """Let ``far://bucket<behind>`` be read in this process and its children for the block.

    Args:
        behind: The directory.
        seconds: Until an answer begins.
        bandwidth: Bytes a second of one answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        (state / "asked").touch()
        (state / "faults").write_text("[]")
        (state / "options").write_text(json.dumps({"seconds": seconds, "bandwidth": bandwidth}))
        # fsspec asks installed packages for schemes: this is one for whoever has the folder in its path.
        package = state / "far_fsspec-0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: far-fsspec\nVersion: 0\n")
        (package / "entry_points.txt").write_text(
            f"[fsspec.specs]\n{SCHEME} = far_fsspec:FarFileSystem\n"
        )
        paths = [folder, str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment = {_STATE: folder, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        FarFileSystem.clear_instance_cache()
        fsspec.register_implementation(SCHEME, FarFileSystem, clobber=True)
        try:
            yield FarFsspec(behind, state, environment)
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextlib.contextmanager
def _faults(state: Path) -> Iterator[list[dict[str, Any]]]:
    """Lend what goes wrong next to one process at a time."""
    with (state / "faults").open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        faults = json.loads(before)
        yield faults
        after = json.dumps(faults)
        if after != before:  # who is killed while it asks leaves them whole
            file.seek(0)
            file.truncate()
            file.write(after)


class FarFileSystem(AbstractFileSystem):
    """Reads local files, late."""

    protocol = SCHEME
    root_marker = "/"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.state = Path(os.environ[_STATE])
        wanted = json.loads((self.state / "options").read_text())
        self.seconds, self.bandwidth = wanted["seconds"], wanted["bandwidth"]

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return str(path).removeprefix(f"{SCHEME}://").removeprefix(_BUCKET).rstrip("/") or "/"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        self._wait(info=1)
        return self._entry(path)

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        self._wait(ls=1)
        if not os.path.isdir(path):
            return [self._entry(path)] if detail else [path]
        entries = [self._entry(os.path.join(path, name)) for name in sorted(os.listdir(path))]
        return entries if detail else [entry["name"] for entry in entries]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        fault = self._fault(path)
        if fault == "silent":
            time.sleep(_SILENT_SECONDS)
        if fault == "error":
            self._wait(read=1)
            raise OSError(f"as was ordered: {path}")
        if fault == "missing":
            self._wait(read=1)
            raise FileNotFoundError(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            first, last, _ = slice(start, end).indices(size)
            file.seek(first)
            data = file.read(max(0, last - first))
        if fault == "short":
            data = data[: len(data) // 2]
        self._wait(len(data), read=1, **{f"read {os.path.basename(path)}": len(data)})
        return data

    def get_file(self, rpath: str, lpath: Any, **options: Any) -> None:
        if os.path.isdir(self._strip_protocol(rpath)):
            os.makedirs(lpath, exist_ok=True)
            return
        data = self.cat_file(rpath)
        if hasattr(lpath, "write"):
            lpath.write(data)
        else:
            Path(lpath).write_bytes(data)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "rb":
            raise PermissionError(f"{SCHEME}:// can only be read")
        return FarFile(self, path, mode, **options)

    def _wait(self, size: int = 0, **numbers: int) -> None:
        """Take the time of an answer, and count it."""
        time.sleep(self.seconds + size / self.bandwidth)
        line = json.dumps({**numbers, "bytes_read": size}) + "\n"
        with (self.state / "asked").open(
            "ab", buffering=0
        ) as file:  # whole lines, whoever else writes
            file.write(line.encode())

    def _fault(self, path: str) -> str | None:
        with _faults(self.state) as faults:
            for fault in faults:
                if fault["times"] and fault["name"] in path:
                    fault["times"] -= 1
                    return str(fault["kind"])
        return None

    @staticmethod
    def _entry(path: str) -> dict[str, Any]:
        found = os.stat(path)
        kind = "directory" if os.path.isdir(path) else "file"
        return {"name": path, "size": found.st_size, "type": kind, "mtime": found.st_mtime}


class FarFile(AbstractBufferedFile):
    """A file that is being read, in ranges of ``block_size``."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        found: bytes = self.fs.cat_file(self.path, start, end)
        return found


# The scheme's package names this module; it has to be the same one as the tests'.
sys.modules.setdefault("far_fsspec", sys.modules[__name__])
