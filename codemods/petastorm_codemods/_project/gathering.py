"""The files of a run, read: those to look into, and what they tell about each other."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from petastorm_codemods._meaning.imports import imports_petastorm
from petastorm_codemods._meaning.other_files import (
    Project,
    calls_makers,
    defined_methods,
    keeps_makers,
    makes_converters,
    mentioned_names,
    module_at,
    module_names,
    modules_named,
    modules_passed_on,
    names_from_modules,
    names_from_petastorm,
    opens_loaders,
    reexported_names,
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
from petastorm_codemods._petastorm.offered import OLD

from .evidence import Code, is_program
from .files import (
    concerns,
    find_files,
    is_dependency_file,
    is_lock_file,
    is_program_named_setup,
    petastorm_around,
    repository_of,
    tops_of,
)
from .shadows import petastorm_of_its_own
from .vendor import imported_modules

# Other files than programs and lists of dependencies are data if they are longer.
_LONGEST = 1 << 20


@dataclass
class Gathered:
    """The files under some paths.

    Attributes:
        paths: Those that were read and may concern the run.
        sources: Path and bytes of the modules and notebooks that hold a word for the rules.
        dependencies: Path and bytes of lists of dependencies, and of what else may install some.
        failed: Files that cannot be read.
        passing: Modules and those whose names they pass on.
        imported: Dotted names of the modules that any module or notebook imports.
        named: Last names of those, and of what they run.
        left: What is said of packages that are left alone, by their directories: copies of Petastorm's
            own, and others of that name.
    """

    paths: list[str] = field(default_factory=list)
    sources: list[tuple[str, bytes]] = field(default_factory=list)
    dependencies: list[tuple[str, bytes]] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    passing: set[tuple[str, str]] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    left: dict[str, Outcome] = field(default_factory=dict)


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
    top = tops_of(paths)
    for path in find_files(paths, exclude):
        package = petastorm_around(path)
        if package:
            gathered.left.setdefault(package, _fork(path))
            continue
        data = _read(path)
        if isinstance(data, Failed):
            gathered.failed.append(data)
        elif is_program(path) and (package := _own_package(path, data, top)):
            gathered.left.setdefault(package, _own(path, package))
        elif not _is_other(path) or OLD.encode() in data:
            _add(gathered, path, data, destination)
    return gathered


def narrowed(gathered: Gathered, destination: Destination) -> Gathered:
    """Return of the files that were gathered for streaming, which are the most, those for a destination."""
    sources = [(path, data) for path, data in gathered.sources if concerns(data, destination)]
    return dataclasses.replace(gathered, sources=sources)


def _read(path: str) -> bytes | Failed:
    """Return the bytes of a file, the first ones if it is data."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe could wait for ever
            return Failed(path, "left alone, because it is no regular file", abnormal=True)
        with open(path, "rb") as file:
            return file.read(_LONGEST if _is_other(path) and not is_lock_file(path) else -1)
    except OSError as error:
        return Failed(path, str(error), abnormal=True)


def _is_other(path: str) -> bool:
    return not (is_program(path) or is_dependency_file(path))


def _add(gathered: Gathered, path: str, data: bytes, destination: Destination) -> None:
    gathered.paths.append(path)
    gathered.passing |= modules_passed_on(path, data)
    listed = is_dependency_file(path) and not is_program_named_setup(path, data)
    if listed or not is_program(path):
        gathered.dependencies.append((path, data))
        return
    gathered.imported |= imported_modules(data)
    gathered.named |= modules_named(data)
    if concerns(data, destination):
        gathered.sources.append((path, data))


def _own_package(path: str, data: bytes, top: Callable[[str], str]) -> str:
    """Return the repository's own package ``petastorm`` that a file imports; empty if there is none."""
    return petastorm_of_its_own(path, top(path)) if concerns(data, Destination.STREAMING) else ""


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


def project_of(gathered: Gathered) -> Project:
    """Return what the files of a run, or else of the repository around them, say of converters."""
    texts = [data for _, data in gathered.sources]
    converters = any(map(makes_converters, texts))
    if not converters and any(not imports_petastorm(data) for data in texts):
        converters = _made_around(gathered)
    importers = frozenset().union(
        *(names_from_petastorm(path, data) for path, data in gathered.sources)
    )
    taken = frozenset().union(*map(names_from_modules, texts))
    mentioners = frozenset().union(
        *(mentioned_names(path, data) for path, data in gathered.sources)
    )
    sources = gathered.sources
    openers = [(path, data) for path, data in sources if opens_loaders(data)]
    here = {module_at(path) for path in gathered.paths if is_program(path)}
    return Project(
        converters=converters,
        defines=frozenset().union(*map(defined_methods, texts)),
        modules=module_names(gathered.paths),
        importers=importers,
        reexported=reexported_names(taken, importers, frozenset(gathered.passing)),
        mentioners=mentioners - importers,
        makers=frozenset(module_at(path) for path, data in sources if calls_makers(data)),
        kept=frozenset(module_at(path) for path, data in sources if keeps_makers(data)),
        borrowers=frozenset(module_at(path) for path, data in openers if not calls_makers(data)),
        lenders=frozenset().union(*(modules_named(data) for _, data in openers)),
        joined=frozenset(gathered.named & here).union(
            module_at(path) for path, data in openers if modules_named(data) & here
        ),
    )


def _made_around(gathered: Gathered) -> bool:
    """Say whether any file of the repositories around those of a run makes converters."""
    roots = {repository_of(path) for path, _ in gathered.sources}
    return any(
        concerns(data, Destination.BRIDGE) and makes_converters(data)
        for root in roots
        if root is not None
        for _, data in gather([root], (), Destination.BRIDGE).sources
    )


def repository_code(path: str, exclude: Iterable[str], destination: Destination) -> Code:
    """Return the programs of the repository around a file, as they are."""
    top = repository_of(path) or os.path.dirname(path) or os.curdir
    gathered = gather([top], exclude, destination)
    here = [os.path.relpath(each) for each in gathered.paths]
    texts = {os.path.relpath(each): data for each, data in gathered.sources}
    return Code([each for each in here if not is_dependency_file(each)], texts)
