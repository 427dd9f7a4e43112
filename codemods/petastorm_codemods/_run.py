"""A run over many files, in parallel processes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable

from ._engine import process
from ._meaning.imports import imports_petastorm
from ._meaning.other_files import makes_converters
from ._model import Destination, Fact, Outcome, Requirement, Result, Rewritten, State
from ._processes import work_on
from ._project.dependency_files import CODE as REQUIREMENT
from ._project.evidence import Code, Lists, repository_code
from ._project.files import Gathered, gather, project_of, streaming_of_its_own
from ._project.listing import is_program, tops_of
from ._project.vendor import Homes, support_files, support_module
from ._rewriting.sites import LOADERS
from ._settings import Settings, rules_for


def run(
    paths: Iterable[str],
    settings: Settings,
    *,
    exclude: Iterable[str] = (),
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    gathered: Gathered | None = None,
) -> Result:
    """Work out what becomes of the files under some paths; nothing is written.

    Args:
        paths: Files and directories.
        settings: What to do.
        exclude: Glob patterns of names or paths to pass over.
        jobs: Number of processes.
        progress: Is called with the numbers of files done and to do.
        gathered: The files, where they have been read already; None to read them.

    Raises:
        FileNotFoundError: A path does not exist.
        ValueError: A selection matches no rule.
    """
    paths, exclude = tuple(paths), tuple(exclude)
    codes = {rule.code for rule in rules_for(settings)}
    show = progress or (lambda *_: None)
    if gathered is None:
        gathered = gather(paths, exclude, settings.destination)
    settings = dataclasses.replace(settings, project=project_of(gathered, settings.destination))
    top = tops_of(paths)
    homes = Homes(gathered.sources, top, gathered.imported) if settings.vendor else None

    of_folders: dict[str, Settings] = {}

    def settings_of(path: str) -> Settings:
        folder = os.path.dirname(os.path.abspath(path))
        if folder not in of_folders:
            of_folders[folder] = _without_streaming(folder, top(path), settings)
        kept = of_folders[folder]
        return _vendored(homes, path, kept) if homes and not kept.shadow else kept

    outcomes: list[Outcome] = [*gathered.failed, *gathered.left.values()]
    # There is nothing of the user's in an unchanged copy of the support module, which is long.
    files = [(path, data) for path, data in gathered.sources if data != support_module()]
    total = len(files) + len(gathered.dependencies)
    known = len(outcomes)
    with contextlib.closing(work_on(files, settings_of, jobs)) as done:
        for outcome in done:
            outcomes.append(outcome)
            show(len(outcomes), total)
    if _all_stay(gathered.sources, outcomes):
        of_folders.clear()
        settings = dataclasses.replace(
            settings, project=dataclasses.replace(settings.project, on_bridge=True)
        )
        del outcomes[known:]
        with contextlib.closing(work_on(files, settings_of, jobs)) as done:
            outcomes += done
    if homes:
        outcomes += support_files(homes, _after(gathered.sources, outcomes))
    programs = [path for path in gathered.paths if is_program(path)]
    code = Code(programs, _after(gathered.sources, outcomes))
    code_in = functools.partial(repository_code, exclude=exclude, destination=settings.destination)
    lists = Lists(code, gathered.dependencies, code_in, settings.target.bridge)
    outcomes = [_installing_both(outcome, settings_of, lists) for outcome in outcomes]
    for path, data in gathered.dependencies if REQUIREMENT in codes else ():
        outcomes += lists.outcome(path, data, lift=settings.lift_pyarrow)
        show(len(outcomes), total)
    ordered = sorted(outcomes, key=lambda outcome: outcome.path)
    return Result(tuple(ordered), len(gathered.paths), tuple(gathered.shown))


def _all_stay(files: Iterable[tuple[str, bytes]], outcomes: Iterable[Outcome]) -> bool:
    """Say whether all loaders of a run stay on the bridge, and so what makes converters in its files can.

    So do those that are left to a human, as long as they are. Not if anything there is native by an earlier run.
    """
    sites = [site for outcome in outcomes for site in outcome.sites]
    loaders = [site for site in sites if site.code in LOADERS]
    native = any(Fact.NATIVE in site.facts and site.state is State.REWRITTEN for site in sites)
    return (
        bool(loaders)
        and all(Fact.ON_BRIDGE in site.facts or site.state is State.MANUAL for site in loaders)
        and not native
        and any(makes_converters(data) for _, data in files)
        and not any(b"write_mds" in data for _, data in files)
    )


def _without_streaming(folder: str, top: str, settings: Settings) -> Settings:
    """Return settings that leave the files of a folder on the bridge if streaming cannot be imported there."""
    if settings.destination is not Destination.STREAMING:
        return settings
    module = streaming_of_its_own(folder, top)
    if not module:
        return settings
    return dataclasses.replace(
        settings, destination=Destination.BRIDGE, shadow=os.path.relpath(module)
    )


def _vendored(homes: Homes, path: str, settings: Settings) -> Settings:
    """Return settings by which a file imports the support module from its home."""
    home = homes.home(path).module
    target = dataclasses.replace(settings.target, module=home, bridged=False)
    return dataclasses.replace(settings, target=target)


def _after(sources: Iterable[tuple[str, bytes]], outcomes: Iterable[Outcome]) -> dict[str, bytes]:
    texts = dict(sources)
    for outcome in outcomes:
        if isinstance(outcome, Rewritten):
            texts[outcome.path] = outcome.after
    return texts


def _installing_both(
    outcome: Outcome, settings_of: Callable[[str], Settings], lists: Lists
) -> Outcome:
    """Return a file again that installs for others (by ``%run``), some of which need Petastorm."""
    if not isinstance(outcome, Rewritten):
        return outcome
    installs = any(site.code == REQUIREMENT for site in outcome.sites)
    if not installs or imports_petastorm(outcome.before):
        return outcome
    if not lists.around(outcome.path).old:
        return outcome
    settings = settings_of(outcome.path)
    target = dataclasses.replace(settings.target, requirement=Requirement.JOINED)
    return process(outcome.path, outcome.before, dataclasses.replace(settings, target=target))
