"""Which files of a run a list of dependencies is for, and what these import."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from petastorm_codemods._meaning.imports import imports_petastorm

_IMPORT = re.compile(
    rb"(?:^|\\n)[ \t\"]*(?:from[ \t]+([A-Za-z_]\w*)|import[ \t]+([A-Za-z_][\w., \t]*))",
    re.MULTILINE,
)
# Modules that came with Petastorm, and what they are installed as.
# https://github.com/uber/petastorm/blob/v0.13.1/setup.py
_CAME_ALONG = {
    "dill": "dill",
    "diskcache": "diskcache",
    "fsspec": "fsspec",
    "future": "future",
    "packaging": "packaging",
    "pandas": "pandas",
    "psutil": "psutil",
    "pyspark": "pyspark",
    "six": "six",
    "zmq": "pyzmq",
}
# What the bridge imports when these of its names are used.
_NEEDS = {
    "streaming": re.compile(rb"\bpetastorm_bridge\.(?:native|streaming)"),
    "spark": re.compile(rb"\bpetastorm_bridge\.spark\b|\bdataframe_to_mds\b"),
    "tensorflow": re.compile(rb"\bpetastorm_bridge\.tf_utils\b|\bmake_tf_dataset\b|\btf_dataset\b"),
    "pandas": re.compile(rb"\bpetastorm_bridge\b[^\n]*\bmake_batch_reader\b"),
    "torch": re.compile(rb"\bpetastorm_bridge\.pytorch\b|\bmake_torch_dataloader\b"),
}
# Lines of code, not comments of ours.
_BRIDGE = re.compile(rb"^(?![ \t\"]*#)[^\n]*\bpetastorm_bridge\b", re.MULTILINE)
_VENDORED = re.compile(
    rb"^[ \t\"]*(?:import\b[^\n]*\bmds_support\b|from\b[^\n]*\bmds_support[ \t]+import\b)",
    re.MULTILINE,
)
# Folders of lists of dependencies for the code beside them.
_ASIDE = frozenset({"requirements", "deps", "docker", "conda", "envs", "environments", "ci"})
_NO_PROGRAMS = frozenset({"setup.py", "noxfile.py", "conftest.py"})


@dataclass(frozen=True)
class Evidence:
    """What the files import that a list of dependencies is for.

    Attributes:
        old: A file that still imports Petastorm; empty if none does.
        new: A file that imports the bridge, or what is vendored of it; empty if none does.
        bridge: Whether any imports the bridge itself.
        needs: What the bridge's names that they use are for: its extras, pandas and torch.
        came_along: What they import that came with Petastorm, as it is installed.
        empty: Whether there are no such files.
    """

    old: str = ""
    new: str = ""
    bridge: bool = False
    needs: frozenset[str] = frozenset()
    came_along: frozenset[str] = frozenset()
    empty: bool = False


@dataclass
class Code:
    """The programs of a run as they are after it, and what they import.

    Attributes:
        paths: Paths of all modules and notebooks.
        texts: What those hold that concern the run; others are read when they are asked for.
    """

    paths: Collection[str]
    texts: Mapping[str, bytes]
    _imports: dict[str, frozenset[str]] = field(default_factory=dict)
    _inside: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        inside: defaultdict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            for folder in _upwards(os.path.dirname(path)):
                inside[folder].append(path)
        self._inside = dict(inside)

    def folder_for(self, path: str) -> str:
        """Return the folder whose programs a list of dependencies is for.

        It is the list's own, or the nearest one above that holds programs, if the list's has none or
        is for such lists alone.
        """
        folder = os.path.dirname(path)
        while os.path.dirname(folder) != folder and (
            os.path.basename(folder) in _ASIDE
            or os.path.basename(folder).startswith(".")
            or not any(map(_is_program, self._inside.get(folder, ())))
        ):
            folder = os.path.dirname(folder)
        return folder

    def evidence(self, folder: str, others: Collection[str]) -> Evidence:
        """Return what the programs in a folder import.

        Args:
            folder: The folder.
            others: Folders with lists of their own; what is in those counts where nothing else in
                the folder imports Petastorm or what takes its place.
        """
        inner = tuple(f"{other}{os.sep}" for other in others if _is_within(other, folder))
        all_paths = self._inside.get(folder, [])
        own = [path for path in all_paths if not path.startswith(inner)] if inner else all_paths
        found = self._of(own)
        if not found.old and not found.new:
            found = self._of([*own, *self._borrowed(own)])
        return found if found.old or found.new or not inner else self._of(all_paths)

    def nearest(self, path: str, folders: Collection[str]) -> str:
        """Return the nearest folder with a list around a program; else the outermost one."""
        outermost = ""
        for folder in _upwards(os.path.dirname(path)):
            if folder in folders:
                return folder
            outermost = folder
        return outermost

    def _of(self, paths: Iterable[str]) -> Evidence:
        programs = [path for path in paths if _is_program(path)]
        texts = {path: self.texts[path] for path in programs if path in self.texts}
        bridged = {path: text for path, text in texts.items() if _BRIDGE.search(text)}
        vendored = {path: text for path, text in texts.items() if _VENDORED.search(text)}
        new = bridged | vendored
        imported = frozenset().union(*map(self._imported, programs))
        needs = {what for what, used in _NEEDS.items() if any(map(used.search, new.values()))}
        if vendored:
            needs.add("streaming")
        if "tensorflow" not in imported:
            needs -= {"tensorflow"}
        return Evidence(
            old=next((path for path, text in texts.items() if imports_petastorm(text)), ""),
            new=next(iter(new), ""),
            bridge=bool(bridged),
            needs=frozenset(needs),
            came_along=frozenset(_CAME_ALONG[name] for name in imported & {*_CAME_ALONG}),
            empty=not programs,
        )

    def _borrowed(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the files elsewhere that concern the run and that some files import."""
        names = frozenset().union(*map(self._imported, paths))
        for path in self.texts:
            parts = {*os.path.splitext(path)[0].split(os.sep)}
            if parts & names:
                yield path

    def _imported(self, path: str) -> frozenset[str]:
        if path not in self._imports:
            data = self.texts.get(path)
            self._imports[path] = imported_names(_read(path) if data is None else data)
        return self._imports[path]


def imported_names(data: bytes) -> frozenset[str]:
    """Return the first parts of the names of the modules that a file imports, by its lines."""
    found = set()
    for match in _IMPORT.finditer(data):
        for name in (match[1] or match[2]).split(b","):
            found.add(name.split(b".")[0].split()[0].decode() if name.strip() else "")
    return frozenset(found - {""})


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_program(path: str) -> bool:
    """Say by its name whether a file is a module or a notebook."""
    return path.endswith((".py", ".ipynb"))


def _is_program(path: str) -> bool:
    return is_program(path) and os.path.basename(path) not in _NO_PROGRAMS


def _is_within(folder: str, other: str) -> bool:
    return folder != other and (not other or folder.startswith(f"{other}{os.sep}"))


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and those above it, as far as its path says; the last one is empty."""
    yield folder
    while folder and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        yield folder
