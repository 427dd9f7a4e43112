"""Which programs a list of dependencies is for, what these import, and so what it has to list."""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from petastorm_codemods._meaning.imports import imports_petastorm
from petastorm_codemods._meaning.places import grouped, reached
from petastorm_codemods._model import Destination, Outcome, Unchanged
from petastorm_codemods._petastorm.counterparts import SUPPORT, is_support_file
from petastorm_codemods._petastorm.offered import OLD
from petastorm_codemods._text.decode import decode
from petastorm_codemods._text.import_lines import imported_modules

from .dependency_files import Wanted, rewritten
from .distribution import (
    DISTRIBUTION,
    STREAMING,
    bridge,
    brings_streaming,
    extras_for,
    limits,
    vendored,
)
from .files import gather
from .listing import is_dependency_file, is_lock_file, is_program, repository_of, upwards
from .requirements import Entry, entries

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
# Lines of code, not comments of ours; names of loggers and patterns of warnings need nothing installed.
_BRIDGE = re.compile(
    rb"^(?![ \t\"]*#)(?![^\n]*\b(?:getLogger|filterwarnings)\()[^\n]*\bpetastorm_bridge\b(?!\\?[\"'][ \t]*:)",
    re.MULTILINE,
)
# Folders of lists of dependencies for the code beside them.
_ASIDE = frozenset({"requirements", "deps", "docker", "conda", "envs", "environments", "ci"})
_NO_PROGRAMS = frozenset({"setup.py", "noxfile.py", "conftest.py"})
# What programs need of what the extras bring, and use without them.
_USED_ALONE = frozenset({"pandas", "torch"})
_INCLUDED = re.compile(r"^[ \t]*(?:-[rc]|--(?:requirement|constraint))[ \t=]*(\S+)", re.MULTILINE)
# Files that say for which Pythons the programs beside them are.
_PROJECTS = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})


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


class Code:
    """The programs of a run as they are after it, and what they import.

    Args:
        paths: Paths of all modules and notebooks.
        texts: What those hold that concern the run; others are read when they are asked for.
    """

    def __init__(self, paths: Iterable[str], texts: Mapping[str, bytes]) -> None:
        self._texts = texts
        self._imports: dict[str, frozenset[str]] = {}
        self._inside = grouped(paths, lambda path: upwards(os.path.dirname(path)))
        self._by_part = grouped(texts, lambda path: {*os.path.splitext(path)[0].split(os.sep)})

    def folder_for(self, path: str) -> str:
        """Return the folder whose programs a list of dependencies is for.

        It is the list's own, or the nearest one above that holds programs, if the list's has none or
        is for such lists alone.
        """
        folder = os.path.dirname(path)
        while os.path.dirname(folder) != folder and (
            os.path.basename(folder) in _ASIDE
            or os.path.basename(folder).startswith(".")
            or not any(map(self._is_program, self._inside.get(folder, ())))
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
        paths = [path for path in all_paths if not path.startswith(inner)] if inner else all_paths
        imported = self._of(paths)
        if not imported.old and not imported.new:
            imported = self._of([*paths, *self._borrowed(paths)])
        return imported if imported.old or imported.new or not inner else self._of(all_paths)

    def nearest(self, path: str, folders: Collection[str]) -> str:
        """Return the nearest folder with a list around a program; else the outermost one."""
        outermost = ""
        for folder in upwards(os.path.dirname(path)):
            if folder in folders:
                return folder
            outermost = folder
        return outermost

    def _of(self, paths: Iterable[str]) -> Evidence:
        # Copies of the support module need what is vendored needs, whether they are there already or not.
        programs = [path for path in paths if self._is_program(path) and not is_support_file(path)]
        texts = {path: self._texts[path] for path in programs if path in self._texts}
        bridged = {path: text for path, text in texts.items() if _BRIDGE.search(text)}
        vendored = {
            path: text
            for path, text in texts.items()
            if any(SUPPORT in module.split(".") for module in imported_modules(text))
        }
        new = bridged | vendored
        imported = frozenset().union(*map(self._imported, programs))
        needs = {what for what, used in _NEEDS.items() if any(map(used.search, new.values()))}
        if vendored:
            needs.add("streaming")
        if "tensorflow" not in imported:
            needs -= {"tensorflow"}
        came_along = {_CAME_ALONG[name] for name in imported & {*_CAME_ALONG}}
        return Evidence(
            old=next((path for path, text in texts.items() if imports_petastorm(text)), ""),
            new=next(iter(new), ""),
            bridge=bool(bridged),
            needs=frozenset(needs),
            came_along=frozenset(came_along | ({"pandas"} if vendored else set())),
            empty=not programs,
        )

    def _is_program(self, path: str) -> bool:
        """Say whether a module counts; of those named ``setup.py`` that do, the texts are among the run's."""
        name = os.path.basename(path)
        return is_program(path) and (
            name not in _NO_PROGRAMS or (name == "setup.py" and path in self._texts)
        )

    def _borrowed(self, paths: Iterable[str]) -> Iterator[str]:
        """Yield the files elsewhere that concern the run and that some files import."""
        names = frozenset().union(*map(self._imported, paths))
        yield from dict.fromkeys(path for name in names for path in self._by_part.get(name, ()))

    def _imported(self, path: str) -> frozenset[str]:
        if path not in self._imports:
            data = self._texts.get(path)
            modules = imported_modules(_read(path) if data is None else data)
            self._imports[path] = frozenset(module.partition(".")[0] for module in modules)
        return self._imports[path]


def repository_code(top: str, exclude: Iterable[str], destination: Destination) -> Code:
    """Return the programs in a folder, as they are."""
    gathered = gather([top], exclude, destination)
    here = [os.path.relpath(each) for each in gathered.paths]
    texts = {os.path.relpath(each): data for each, data in gathered.sources}
    return Code([each for each in here if each in texts or not is_dependency_file(each)], texts)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _is_within(folder: str, other: str) -> bool:
    return folder != other and (not other or folder.startswith(f"{other}{os.sep}"))


def wanted(
    evidence: Evidence,
    listed: Collection[str],
    asked: frozenset[str] = frozenset(),
    requirement: str = "",
) -> Wanted:
    """Return what a file should list instead of Petastorm.

    Args:
        evidence: What the files import that it is for.
        listed: Canonical names that it lists, with the files beside it.
        asked: Extras of the bridge that those ask for, by its name or as Petastorm's.
        requirement: What ``--requirement`` says; empty for the version that runs.
    """
    if not evidence.new:
        reason = "no file here imports petastorm or what takes its place: left as it is"
        return Wanted(reason="" if evidence.old else reason)
    missing = {name for name in evidence.came_along if name not in listed}
    has_streaming = STREAMING in listed or brings_streaming(asked)
    lacks_streaming = "streaming" in evidence.needs and not has_streaming
    if not evidence.bridge:  # the support module is a file of the repository
        return Wanted(
            vendored(),
            tuple(sorted(missing)),
            joined=bool(evidence.old),
            lacks_streaming=lacks_streaming,
        )
    extras = {"streaming"} & evidence.needs
    extras |= {"spark"} if "pyspark" in missing else set()
    if "pandas" in evidence.needs and "pandas" not in listed:
        missing.add("pandas")
    return Wanted(
        package=bridge(requirement, frozenset(extras)),
        beside=tuple(sorted(missing - set(limits(frozenset(extras))))),
        limits=limits(
            frozenset({*extras, *evidence.needs, *asked} - _USED_ALONE),
            _USED_ALONE & evidence.needs,
        ),
        joined=bool(evidence.old),
        lacks_streaming=lacks_streaming,
    )


class Lists:
    """Decides about lists of dependencies, each for the programs that it is for.

    Args:
        code: The programs of the run.
        files: Path and bytes of the lists, and of other files that may install packages.
        code_in: Returns the programs in a folder of which the run has none.
        requirement: What ``--requirement`` says; empty for the version that runs.
    """

    def __init__(
        self,
        code: Code,
        files: Sequence[tuple[str, bytes]],
        code_in: Callable[[str], Code],
        requirement: str = "",
    ) -> None:
        self._code = code
        self._code_in = functools.cache(code_in)  # many lists may be in one repository
        self._requirement = requirement
        self._texts = {path: _text(path, data) for path, data in files}
        self._folders = {path: code.folder_for(path) for path in self._texts}
        naming = [path for path, text in self._texts.items() if OLD in text]
        # What is installed for everyone does not make the folder of a program its own.
        self._homes = {self._folders[path] for path in naming if is_dependency_file(path)}
        self._evidence_of: dict[str, Evidence] = {}
        self._listed: defaultdict[str, set[str]] = defaultdict(set)
        self._asked: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        for path, text in self._texts.items():
            if is_dependency_file(path) and not is_lock_file(path):
                required, folder = entries(path, text), self._folders[path]
                self._listed[folder] |= {entry.name for entry in required}
                self._asked[folder] |= frozenset().union(*map(_asked_extras, required))
        self._linked = _linked(self._texts, naming)

    def around(self, path: str) -> Evidence:
        """Return what the programs import that share a list with the one at a path."""
        return self._evidence(self._code.nearest(path, self._homes))

    def outcome(self, path: str, data: bytes, *, lift: bool) -> Iterator[Outcome]:
        """Yield what becomes of a file; nothing if it does not concern the run."""
        folder = self._folders[path]
        beside = os.path.dirname(path) in self._homes and os.path.basename(path) in _PROJECTS
        if OLD not in self._texts[path] and path not in self._linked and not beside:
            return
        evidence = self._evidence(folder)
        if evidence.empty:
            around = self._code_in(repository_of(path) or os.path.dirname(path) or os.curdir)
            evidence = around.evidence(around.folder_for(os.path.relpath(path)), ())
        want = wanted(evidence, self._listed[folder], self._asked[folder], self._requirement)
        outcome = rewritten(path, data, want, lift=lift)
        if not isinstance(outcome, Unchanged) or OLD in self._texts[path]:
            yield outcome

    def _evidence(self, folder: str) -> Evidence:
        if folder not in self._evidence_of:
            self._evidence_of[folder] = self._code.evidence(folder, self._homes - {folder})
        return self._evidence_of[folder]


def _text(path: str, data: bytes) -> str:
    try:
        return decode(path, data).text
    except (SyntaxError, ValueError):
        return data.decode("utf-8", "replace")


def _asked_extras(entry: Entry) -> frozenset[str]:
    """Return the extras of the bridge that a requirement asks for once Petastorm's are rewritten."""
    if entry.name == DISTRIBUTION:
        return frozenset(entry.requirement.extras)
    return extras_for(entry.requirement.extras - {"torch"}) if entry.name == OLD else frozenset()


def _linked(texts: Mapping[str, str], naming: Sequence[str]) -> set[str]:
    """Return the files that those which name Petastorm include, or are included by, at any depth."""
    links: defaultdict[str, set[str]] = defaultdict(set)
    for path, text in texts.items():
        for name in _INCLUDED.findall(text) if is_dependency_file(path) else ():
            other = os.path.normpath(os.path.join(os.path.dirname(path), name))
            links[path].add(other)
            links[other].add(path)
    return reached(naming, lambda path: links[path]).keys() & texts.keys()
