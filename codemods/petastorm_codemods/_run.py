"""A run over many files, in parallel processes."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ._engine import Settings, process, rules_for
from ._meaning.imports import imports_petastorm
from ._meaning.other_files import (
    METHODS,
    Project,
    borrowed_names,
    defined_methods,
    had_names,
    lent_names,
    makes_converters,
    makes_readers,
    module_names,
    passed_on,
    taken_names,
)
from ._model import (
    Destination,
    Failed,
    NeedsHuman,
    Outcome,
    Requirement,
    Safety,
    Site,
    State,
    Success,
    Target,
)
from ._petastorm.offered import OLD
from ._processes import work_on
from ._project.evidence import Code, is_program
from ._project.files import (
    concerns,
    find_files,
    is_dependency_file,
    is_lock_file,
    petastorm_around,
    repository_of,
)
from ._project.install_commands import CODE, package_for
from ._project.lists import Lists
from ._project.requirements import Wanted, rewritten
from ._project.vendor import CODE as SUPPORT
from ._project.vendor import Home, Homes, names_in, used_names, vendored

# Other files than programs and lists of dependencies are data if they are longer.
_LONGEST = 1 << 20
_USED = re.compile("|".join(("petastorm", *METHODS)).encode())


@dataclass(frozen=True)
class Result:
    """The outcome of a run.

    Attributes:
        outcomes: One for each file that was looked into, sorted by path.
        scanned: Number of files that were found.
    """

    outcomes: tuple[Outcome, ...]
    scanned: int


def run(
    paths: Iterable[str],
    settings: Settings,
    *,
    exclude: Iterable[str] = (),
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Work out what becomes of the files under some paths; nothing is written.

    Args:
        paths: Files and directories.
        settings: What to do.
        exclude: Glob patterns of names or paths to pass over.
        jobs: Number of processes; more than one needs an importable ``__main__``.
        progress: Is called with the numbers of files done and to do.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A selection matches no rule.
    """
    paths = tuple(paths)
    codes = {rule.code for rule in rules_for(settings)}
    show = progress or (lambda *_: None)
    found = _read(paths, exclude, settings.destination)
    sources = found.sources
    settings = dataclasses.replace(settings, project=_project(found))
    homes = _homes(found, paths) if settings.vendor else None

    def own(path: str) -> Settings:
        return _vendored(homes, path, settings) if homes else settings

    outcomes: list[Outcome] = [*found.failed, *found.forks.values()]
    total = len(sources) + len(found.dependencies)
    for outcome in work_on(sources, own, jobs):
        outcomes.append(outcome)
        show(len(outcomes), total)
    if homes:
        outcomes += _support_files(homes, outcomes, sources)
    texts = dict(sources)
    for outcome in outcomes:
        if isinstance(outcome, Success | NeedsHuman):
            texts[outcome.path] = outcome.after
    code = Code([path for path in found.paths if is_program(path)], texts)
    around = functools.partial(_repository, exclude=exclude, destination=settings.destination)
    lists = Lists(code, found.dependencies, around)
    outcomes = [_installing_both(outcome, own(outcome.path), lists) for outcome in outcomes]
    for path, data in found.dependencies if CODE in codes else ():
        outcomes += lists.outcome(path, data, lift=settings.lift_pyarrow)
        show(len(outcomes), total)
    return Result(tuple(sorted(outcomes, key=lambda outcome: outcome.path)), len(found.paths))


@dataclass
class _Found:
    """The files of a run, read: those to look into, and what the others tell about them."""

    paths: list[str] = field(default_factory=list)
    sources: list[tuple[str, bytes]] = field(default_factory=list)
    dependencies: list[tuple[str, bytes]] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    passed: set[tuple[str, str]] = field(default_factory=set)
    forks: dict[str, NeedsHuman] = field(default_factory=dict)


def _read(paths: Iterable[str], exclude: Iterable[str], destination: Destination) -> _Found:
    found = _Found()
    for path in find_files(paths, exclude):
        other = not (is_program(path) or is_dependency_file(path))
        package = petastorm_around(path)
        if package:
            found.forks.setdefault(package, _fork(path))
            continue
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                found.failed.append(
                    Failed(path, "left alone, because it is no regular file", abnormal=True)
                )
                continue  # reading a pipe could wait for ever
            with open(path, "rb") as file:
                data = file.read(_LONGEST if other and not is_lock_file(path) else -1)
        except OSError as error:
            found.failed.append(Failed(path, str(error), abnormal=True))
            continue
        if other and OLD.encode() not in data:
            continue
        found.paths.append(path)
        found.passed |= passed_on(path, data)
        if is_dependency_file(path) or not is_program(path):
            found.dependencies.append((path, data))
        elif concerns(data, destination):
            found.sources.append((path, data))
    return found


def _fork(path: str) -> NeedsHuman:
    message = "package left alone, it is Petastorm itself"
    site = Site("PM000", 1, 1, None, message, Safety.MANUAL, State.MANUAL)
    return NeedsHuman(path, b"", b"", (site,))


def _project(found: _Found) -> Project:
    """Gather what the files of a run, or else of the repository around them, say of converters."""
    texts = [data for _, data in found.sources]
    converters = any(map(makes_converters, texts))
    defines = frozenset().union(*map(defined_methods, texts))
    if not converters and any(not imports_petastorm(data) for data in texts):
        roots = {repository_of(path) for path, _ in found.sources} - {None}
        converters = any(
            concerns(data, Destination.BRIDGE) and makes_converters(data)
            for root in roots
            if root is not None
            for _, data in _read([root], (), Destination.BRIDGE).sources
        )
    readers = any(map(makes_readers, texts))
    holders = frozenset().union(*(had_names(path, data) for path, data in found.sources))
    borrowed = frozenset().union(*map(borrowed_names, texts))
    lent = lent_names(borrowed, holders, frozenset(found.passed))
    takers = frozenset().union(*(taken_names(path, data) for path, data in found.sources))
    modules = module_names(found.paths)
    return Project(converters, defines, modules, readers, holders, lent, takers - holders)


def _homes(found: _Found, paths: Iterable[str]) -> Homes:
    """Return where copies of the support module go."""
    given = [os.path.abspath(path) for path in paths]
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in given]

    def boundary(path: str) -> str:
        here = os.path.abspath(path)
        around = [each for each in folders if here.startswith(each.rstrip(os.sep) + os.sep)]
        return repository_of(path) or min(around, key=len, default=os.path.dirname(here))

    return Homes([path for path, data in found.sources if _USED.search(data)], boundary)


def _vendored(homes: Homes, path: str, settings: Settings) -> Settings:
    """Return settings by which a file imports the support module from its home."""
    target = Target(module=homes.home(path).module, package="mosaicml-streaming")
    return dataclasses.replace(settings, target=target)


def _support_files(
    homes: Homes, outcomes: Sequence[Outcome], sources: Iterable[tuple[str, bytes]]
) -> Iterator[Outcome]:
    """Yield the outcome of each copy of the support module, with what its users need of it."""
    texts = dict(sources)
    for each in outcomes:
        if isinstance(each, Success | NeedsHuman):
            texts[each.path] = each.after
    users: dict[Home, list[bytes]] = {}
    for path, text in texts.items():
        home = homes.home(path)
        imported = re.search(rb"\b%s\b" % re.escape(home.module.encode()), text)
        if imported and os.path.abspath(path) != home.file:
            users.setdefault(home, []).append(text)
    for home, importing in users.items():
        yield from _support_file(home, importing)


def _support_file(home: Home, texts: Iterable[bytes]) -> Iterator[Outcome]:
    """Yield the outcome of one copy; nothing if it has all that some files use."""
    names = used_names(texts)
    path = os.path.relpath(home.file)
    if os.path.islink(home.file):
        yield Failed(path, "it is a link, and nothing is written through links")
        return
    if os.path.exists(home.file) and not os.path.isfile(home.file):
        yield Failed(path, "left alone, because it is no regular file", abnormal=True)
        return  # reading a pipe could wait for ever
    try:
        with open(home.file, "rb") as stream:
            before = stream.read()
    except FileNotFoundError:
        before = b""
    try:
        own = names_in(before.decode()) if before else frozenset()
    except (ValueError, SyntaxError) as error:
        yield Failed(path, str(error))
        return
    if names and not names <= own:
        after = vendored(names | own).encode()
        message = f"{home.module} holds what rewritten code imports"
        site = Site(SUPPORT, 1, 1, None, message, Safety.SAFE, State.REWRITTEN)
        yield Success(path, before, after, (site,))


def _installing_both(outcome: Outcome, settings: Settings, lists: Lists) -> Outcome:
    """Return a file again that installs for others (by ``%run``), some of which need Petastorm."""
    if not isinstance(outcome, Success | NeedsHuman) or imports_petastorm(outcome.before):
        return outcome
    if not any(site.code == CODE for site in outcome.sites):
        return outcome
    if not lists.around(outcome.path).old:
        return outcome
    target = dataclasses.replace(settings.target, requirement=Requirement.JOINED)
    return process(outcome.path, outcome.before, dataclasses.replace(settings, target=target))


def _repository(path: str, exclude: Iterable[str], destination: Destination) -> Code:
    """Return the programs of the repository around a file, as they are."""
    found = _read([repository_of(path) or os.path.dirname(path) or os.curdir], exclude, destination)
    here = {os.path.relpath(each): each for each in found.paths}
    texts = {os.path.relpath(each): data for each, data in found.sources}
    return Code([each for each in here if not is_dependency_file(each)], texts)


def process_dependencies(path: str, data: bytes, settings: Settings) -> Outcome:
    """Return what becomes of a file that lists dependencies, of which nothing else is known.

    Args:
        path: Path of the file; its name tells the format.
        data: Its bytes.
        settings: What to do.
    """
    want = Wanted(package_for(settings.destination, settings.target))
    return rewritten(path, data, want, lift=settings.lift_pyarrow)
