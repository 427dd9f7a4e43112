"""The files of a run, read, and what they tell about each other; nothing is parsed here."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from petastorm_codemods._meaning.elsewhere import opens_loaders, with_elsewhere
from petastorm_codemods._meaning.imports import imports_petastorm
from petastorm_codemods._meaning.other_files import (
    METHODS,
    REEXPORTABLE,
    Project,
    makes_converters,
    module_names,
    modules_named,
    modules_passed_on,
    project_from,
)
from petastorm_codemods._model import (
    Destination,
    Failed,
    NeedsHuman,
    Outcome,
    Safety,
    Site,
    State,
    Unchanged,
)
from petastorm_codemods._petastorm.counterparts import STREAMING
from petastorm_codemods._petastorm.offered import OLD
from petastorm_codemods._text.import_lines import first_import, imported_paths

from .listing import (
    find_files,
    is_dependency_file,
    is_lock_file,
    is_program,
    is_text,
    repository_of,
    tops_of,
    upwards,
)

# What stands before code in texts for people: quotes, prompts, and the comments that hold cells of Python.
_BEFORE_CODE = re.compile(r"^[^\w\n]*(?:MAGIC[ \t]+)?", re.MULTILINE)
_SETS_UP = re.compile(rb"\b(?:setuptools|distutils|skbuild)\b|\bsetup[ \t]*\(")
# How files begin that only tell of packages: manifests of parity's recordings, reports of parity, of the codemod and
# of the doctor, and any in SARIF.
_TELLS = re.compile(
    rb'\{\s*(?:"format": \d+,\s*"rows": \d+,\s*"batches": \d'
    rb'|"title": "[^"\n]*",\s*"results": \['
    rb'|"version": \d+,\s*"(?:counts": \{\s*"scanned|environment": \{\s*"python)": '
    rb'|"\$schema": "[^"\n]*\bsarif\b)'
    rb'|\[\s*\{\s*"description": "PM\d'
)
# Other files than programs and lists of dependencies are data if they are longer.
_LONGEST = 1 << 20
# Folders whose modules are imported by their own names, as those beside a program are.
_ROOTS = ("src", "lib", "python")
_MAKER = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+make_spark_converter\b", re.MULTILINE)
# Files that use a converter made elsewhere, or names imported there, show it by these words only.
_NAMES = "|".join((*METHODS, *REEXPORTABLE)).encode()
_WORDS = {
    Destination.BRIDGE: re.compile(b"petastorm", re.IGNORECASE),
    Destination.STREAMING: re.compile(b"petastorm|" + _NAMES, re.IGNORECASE),
}


def concerns(data: bytes, destination: Destination) -> bool:
    """Say whether a file's bytes hold any word that a rule could act on."""
    return _WORDS[destination].search(data) is not None


def is_program_named_setup(path: str, data: bytes) -> bool:
    """Say whether a ``setup.py`` sets up no package: a notebook or a program that others run."""
    return os.path.basename(path) == "setup.py" and not _SETS_UP.search(data)


@dataclass
class Gathered:
    """The files under some paths.

    Attributes:
        paths: Those that were read and may concern the run.
        sources: Path and bytes of the modules and notebooks that hold a word for the rules.
        dependencies: Path and bytes of lists of dependencies, and of what else may install some.
        failed: Files that cannot be read.
        passing: Modules and those whose names they pass on.
        imported: Dotted names of the modules that any module or notebook imports, and of what it imports from them.
        named: Last names of those, and of what they run.
        left: What is said of packages that are left alone, by their directories: copies of Petastorm's
            own, and others of that name.
        shown: Where texts import Petastorm: the path of each, and its first line that does.
    """

    paths: list[str] = field(default_factory=list)
    sources: list[tuple[str, bytes]] = field(default_factory=list)
    dependencies: list[tuple[str, bytes]] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    passing: set[tuple[str, str]] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    left: dict[str, Outcome] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)


def gather(paths: Iterable[str], exclude: Iterable[str], destination: Destination) -> Gathered:
    """Read the files under some paths.

    Args:
        paths: Files and directories.
        exclude: Glob patterns of names or paths to pass over.
        destination: Where call sites are taken.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    gathered, paths = Gathered(), tuple(paths)
    top, own = tops_of(paths), functools.cache(_petastorm_of_its_own)
    for path in find_files(paths, exclude):
        package = _petastorm_around(path)
        if package:
            gathered.left.setdefault(package, _fork(path))
            continue
        data = _read(path)
        if is_text(path):
            gathered.shown += _shown(path, data) if isinstance(data, bytes) else ()
        elif isinstance(data, Failed):
            gathered.failed.append(data)
        elif (
            is_program(path)
            and concerns(data, Destination.STREAMING)
            and (package := own(os.path.dirname(path), top(path)))
        ):
            gathered.left.setdefault(package, _own(path, package))
        elif not _is_other(path) or (OLD.encode() in data and not _TELLS.match(data)):
            _add(gathered, path, data, destination)
    return gathered


def narrowed(gathered: Gathered, destination: Destination) -> Gathered:
    """Return of the files that were gathered for streaming, which are the most, those for a destination."""
    sources = [(path, data) for path, data in gathered.sources if concerns(data, destination)]
    return dataclasses.replace(gathered, sources=sources)


def _read(path: str) -> bytes | Failed:
    """Return the bytes of a file, none if it is data."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe could wait for ever
            return Failed(path, "left alone, because it is no regular file", abnormal=True)
        with open(path, "rb") as file:
            if not _is_other(path) or is_lock_file(path):
                return file.read()
            data = file.read(_LONGEST + 1)
            return data if len(data) <= _LONGEST else b""
    except OSError as error:
        return Failed(path, str(error), abnormal=True)


def _shown(path: str, data: bytes) -> Iterator[str]:
    """Yield the path and line of the first import of Petastorm in a text."""
    code = _BEFORE_CODE.sub("", data.decode(errors="replace"))
    start = first_import(code, OLD)
    if start is not None:
        line = code.count("\n", 0, start) + 1
        yield f"{path}:{line}"


def _is_other(path: str) -> bool:
    return not (is_program(path) or is_dependency_file(path))


def _add(gathered: Gathered, path: str, data: bytes, destination: Destination) -> None:
    gathered.paths.append(path)
    gathered.passing |= modules_passed_on(path, data)
    listed = is_dependency_file(path) and not is_program_named_setup(path, data)
    if listed or not is_program(path):
        gathered.dependencies.append((path, data))
        return
    gathered.imported |= imported_paths(data)
    gathered.named |= modules_named(data)
    if concerns(data, destination):
        gathered.sources.append((path, data))


def _own(path: str, package: str) -> Unchanged:
    message = (
        f"files that import {os.path.relpath(package)} are left alone: it is this repository's own "
        "package, and not Petastorm"
    )
    return Unchanged(path, (Site("PM000", 1, 1, None, message, Safety.SAFE, State.WORKS),))


def _fork(path: str) -> NeedsHuman:
    message = "package left alone, it is Petastorm itself"
    site = Site("PM000", 1, 1, None, message, Safety.MANUAL, State.MANUAL)
    return NeedsHuman(path, b"", b"", (site,))


def project_of(gathered: Gathered, destination: Destination) -> Project:
    """Return what the files of a run, or else of the repository around them, say of converters."""
    texts = [data for _, data in gathered.sources]
    converters = any(map(makes_converters, texts))
    if not converters and any(not imports_petastorm(data) for data in texts):
        converters = _made_around(gathered)
    programs = filter(is_program, gathered.paths)
    passing, named = frozenset(gathered.passing), frozenset(gathered.named)
    project = dataclasses.replace(
        project_from(gathered.sources, programs, passing, named),
        converters=converters,
        modules=module_names(gathered.paths),
    )
    if destination is Destination.BRIDGE:
        return project  # where loaders keep their arguments, whatever these are
    return with_elsewhere(project, *_programs_around(gathered))


def _programs_around(gathered: Gathered) -> tuple[list[str], Callable[[str], bytes]]:
    """Return the modules and notebooks of a run and of the repositories around it, and what reads them.

    There are none if none of the run opens loaders.
    """
    known = {os.path.abspath(path): data for path, data in gathered.sources}
    opening = {path for path, data in known.items() if opens_loaders(data)}
    roots = sorted(filter(None, {repository_of(path) for path in opening}))
    around = map(os.path.abspath, find_files(roots)) if opening else ()

    def read(path: str) -> bytes:
        data = known[path] if path in known else _read(path)
        return b"" if isinstance(data, Failed) else data

    paths = {*map(os.path.abspath, gathered.paths if opening else ()), *around}
    return sorted(filter(is_program, paths)), read


def _made_around(gathered: Gathered) -> bool:
    """Say whether any file of the repositories around those of a run makes converters."""
    roots = {repository_of(path) for path, _ in gathered.sources}
    return any(
        concerns(data, Destination.BRIDGE) and makes_converters(data)
        for root in roots
        if root is not None
        for _, data in gather([root], (), Destination.BRIDGE).sources
    )


# What is imported in place of Petastorm or of streaming.


def _petastorm_around(path: str) -> str:
    """Return the directory of Petastorm's own package that a file is in; empty if it is in none."""
    for directory in upwards(os.path.dirname(os.path.abspath(path))):
        if (
            os.path.basename(directory) == "petastorm"
            and not os.path.exists(os.path.join(os.path.dirname(directory), "__init__.py"))
            and all(
                os.path.exists(os.path.join(directory, name))
                for name in ("__init__.py", "unischema.py")
            )
        ):
            return directory
    return ""


def streaming_of_its_own(directory: str, top: str) -> str:
    """Return the module that ``import streaming`` finds in a directory before the library; empty if none.

    Args:
        directory: Where the files are that import it.
        top: The highest directory whose modules it may import by their own names.
    """
    return next(_modules(directory, top, STREAMING), "")


def _petastorm_of_its_own(directory: str, top: str) -> str:
    """Return the package ``petastorm`` that files in a directory import and that makes converters of another kind.

    Empty if there is none: a copy of Petastorm's own package is Petastorm, and so is what is installed.
    """
    for module in _modules(directory, top, OLD):
        if os.path.basename(module) == "__init__.py" and _makes_converters(os.path.dirname(module)):
            return os.path.dirname(module)
    return ""


def _modules(directory: str, top: str, name: str) -> Iterator[str]:
    """Yield the files of modules of a name in a directory, and at the roots of imports above it."""
    directory, top = os.path.abspath(directory), os.path.abspath(top)
    inner = [f"{name}.py", os.path.join(name, "__init__.py")]
    for above in upwards(directory):
        if above == directory or not os.path.exists(os.path.join(above, "__init__.py")):
            files = (os.path.join(above, root, file) for root in ("", *_ROOTS) for file in inner)
            yield from filter(os.path.isfile, files)
        if above == top:
            return


def _makes_converters(package: str) -> bool:
    """Say whether a package defines a maker of converters, and is no copy of Petastorm's own."""
    modules = filter(Path.is_file, Path(package).rglob("*.py"))
    is_copy = os.path.exists(os.path.join(package, "unischema.py"))
    return not is_copy and any(_MAKER.search(each.read_bytes()) for each in modules)
