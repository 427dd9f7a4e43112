"""A run over many files, in parallel processes."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ._decode import decode_python, decode_utf8
from ._dependencies import CODE, file_edits, is_conda_command, is_conda_entry, package_for
from ._edits import apply_edits
from ._engine import Settings, process, rules_for
from ._files import (
    concerns,
    find_files,
    is_dependency_file,
    petastorm_around,
    repository_of,
)
from ._imports import imports_petastorm, names_bridge
from ._model import (
    Destination,
    Edit,
    Failed,
    NeedsHuman,
    Outcome,
    Requirement,
    Safety,
    Site,
    State,
    Success,
    Target,
    Unchanged,
)
from ._processes import work_on
from ._project import (
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
from ._vendor import CODE as SUPPORT
from ._vendor import NAME, names_in, place, used_names, vendored

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
    codes = {rule.code for rule in rules_for(settings)}
    show = progress or (lambda *_: None)
    found = _read(paths, exclude, settings.destination)
    sources, dependencies = found.sources, found.dependencies
    settings = dataclasses.replace(settings, project=_project(found))
    file = None
    if settings.vendor:
        file, settings = _vendored_settings(found, settings)
    outcomes: list[Outcome] = [*found.failed, *found.forks.values()]
    total = len(sources) + len(dependencies)
    for outcome in work_on(sources, settings, jobs):
        outcomes.append(outcome)
        show(len(outcomes), total)
    if file:
        outcomes += _support_file(file, settings, outcomes, sources)
        settings = _without_bridge(settings, outcomes)
    before = dict(sources)
    stays = any(_still_needed(outcome, before) for outcome in outcomes)
    if stays:
        outcomes = [_installing_both(outcome, settings) for outcome in outcomes]
    for path, data in dependencies:
        if CODE in codes:
            outcomes.append(process_dependencies(path, data, settings, stays=stays))
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
        found.paths.append(path)
        package = petastorm_around(path)
        if package:
            found.forks.setdefault(package, _fork(path))
            continue
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                found.failed.append(Failed(path, "left alone, because it is no regular file"))
                continue  # reading a pipe could wait for ever
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            found.failed.append(Failed(path, str(error)))
            continue
        found.passed |= passed_on(path, data)
        if concerns(data, destination):
            kind = found.dependencies if is_dependency_file(path) else found.sources
            kind.append((path, data))
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


def _vendored_settings(found: _Found, settings: Settings) -> tuple[str, Settings]:
    """Return where the support module goes, and settings by which code imports it from there."""
    users = [path for path in found.paths if os.path.basename(path) == f"{NAME}.py"][:1]
    if not users:  # as it is written for the first time
        users = [path for path, data in found.sources if _USED.search(data)]
    file, module = place(users, found.paths[0] if found.paths else os.curdir)
    package = "mosaicml-streaming"
    return file, dataclasses.replace(settings, target=Target(module=module, package=package))


def _support_file(
    file: str,
    settings: Settings,
    outcomes: Sequence[Outcome],
    sources: Iterable[tuple[str, bytes]],
) -> Iterator[Outcome]:
    """Yield the outcome of the support module, with what rewritten files and its own users need."""
    module = settings.target.module.encode()
    texts = [each.after for each in outcomes if isinstance(each, Success | NeedsHuman)]
    names = used_names(text for text in texts if module in text)
    names |= used_names(data for path, data in sources if module in data and path != file)
    try:
        with open(file, "rb") as stream:
            before = stream.read()
    except FileNotFoundError:
        before = b""
    path = os.path.relpath(file)
    try:
        own = names_in(before.decode()) if before else frozenset()
    except (ValueError, SyntaxError) as error:
        yield Failed(path, str(error))
        return
    if names and not names <= own:
        after = vendored(names | own).encode()
        message = f"{settings.target.module} holds what rewritten code imports"
        site = Site(SUPPORT, 1, 1, None, message, Safety.SAFE, State.REWRITTEN)
        yield Success(path, before, after, (site,))


def _without_bridge(settings: Settings, outcomes: Sequence[Outcome]) -> Settings:
    """Return settings by which the bridge is required where readers still run on it."""
    texts = [each.after for each in outcomes if isinstance(each, Success | NeedsHuman)]
    if any(map(names_bridge, texts)):
        target = dataclasses.replace(settings.target, package=Target().package)
        return dataclasses.replace(settings, target=target)
    return settings


def _still_needed(outcome: Outcome, sources: dict[str, bytes]) -> bool:
    if isinstance(outcome, Success | NeedsHuman):
        return imports_petastorm(outcome.after)
    return imports_petastorm(sources.get(outcome.path, b""))


def _installing_both(outcome: Outcome, settings: Settings) -> Outcome:
    """Return a file again that installs for others (by ``%run``), some of which need Petastorm."""
    if not isinstance(outcome, Success | NeedsHuman) or imports_petastorm(outcome.before):
        return outcome
    if not any(site.code == CODE for site in outcome.sites):
        return outcome
    target = dataclasses.replace(settings.target, requirement=Requirement.JOINED)
    return process(outcome.path, outcome.before, dataclasses.replace(settings, target=target))


def process_dependencies(
    path: str, data: bytes, settings: Settings, *, stays: bool = False
) -> Outcome:
    """Return what becomes of a file that lists dependencies; ``setup.py`` is nothing else here.

    Args:
        path: Path of the file; its name tells the format.
        data: Its bytes.
        settings: What to do.
        stays: Whether a file of the run still imports Petastorm, so that it is still required.
    """
    try:
        decoded = decode_python(data) if path.endswith(".py") else decode_utf8(data)
        text = decoded.text
        package = package_for(settings.destination, settings.target)
        edits = list(file_edits(os.path.basename(path), text, package))
        if not edits:
            return Unchanged(path)
        sites = [_requirement_site(text, edit, path, stays=stays) for edit in edits]
        made = [
            edit for edit, site in zip(edits, sites, strict=True) if site.state is State.REWRITTEN
        ]
        after = decoded.encode(apply_edits(text, made))
        if len(made) < len(edits):
            return NeedsHuman(path, data, after, tuple(sites))
        return Success(path, data, after, tuple(sites))
    except (SyntaxError, UnicodeError) as error:
        return Failed(path, f"{type(error).__name__}: {error}")


def _requirement_site(text: str, edit: Edit, path: str, *, stays: bool) -> Site:
    before = text[: edit.start]
    line, column = before.count("\n") + 1, edit.start - before.rfind("\n")
    message = f"{text[edit.start : edit.end]} becomes {edit.text}"
    state = State.MANUAL if stays else State.REWRITTEN
    if stays:
        message += " once no file imports petastorm any more; until then require both"
    elif "dockerfile" in path.lower() and is_conda_command(text, edit.start):
        message = f"conda has no {edit.text}: install it with pip"
        state = State.MANUAL
    elif is_conda_entry(path, text, edit.start):
        message = f"conda has no {edit.text}: list it under pip instead"
        state = State.MANUAL
    return Site(CODE, line, column, None, message, Safety.SAFE, state)
