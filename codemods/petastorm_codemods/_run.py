"""A run over many files, in parallel processes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

from ._engine import process
from ._meaning.imports import imports_petastorm
from ._model import NeedsHuman, Outcome, Requirement, Result, Success
from ._processes import work_on
from ._project.evidence import Code, is_program
from ._project.gathering import Gathered, gather, project_of, repository_code
from ._project.install_commands import CODE as REQUIREMENT
from ._project.lists import Lists
from ._project.support_files import homes_for, support_files
from ._project.vendor import Homes
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
        jobs: Number of processes; more than one needs an importable ``__main__``.
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
    settings = dataclasses.replace(settings, project=project_of(gathered))
    homes = homes_for(gathered.sources, gathered.imported, paths) if settings.vendor else None

    def own(path: str) -> Settings:
        return _vendored(homes, path, settings) if homes else settings

    outcomes: list[Outcome] = [*gathered.failed, *gathered.forks.values()]
    total = len(gathered.sources) + len(gathered.dependencies)
    for outcome in work_on(gathered.sources, own, jobs):
        outcomes.append(outcome)
        show(len(outcomes), total)
    if homes:
        outcomes += support_files(homes, _after(gathered.sources, outcomes))
    programs = [path for path in gathered.paths if is_program(path)]
    code = Code(programs, _after(gathered.sources, outcomes))
    around = functools.partial(repository_code, exclude=exclude, destination=settings.destination)
    lists = Lists(code, gathered.dependencies, around)
    outcomes = [_installing_both(outcome, own(outcome.path), lists) for outcome in outcomes]
    for path, data in gathered.dependencies if REQUIREMENT in codes else ():
        outcomes += lists.outcome(path, data, lift=settings.lift_pyarrow)
        show(len(outcomes), total)
    ordered = sorted(outcomes, key=lambda outcome: outcome.path)
    return Result(tuple(ordered), len(gathered.paths))


def _vendored(homes: Homes, path: str, settings: Settings) -> Settings:
    """Return settings by which a file imports the support module from its home."""
    home = homes.home(path).module
    target = dataclasses.replace(settings.target, module=home, package="mosaicml-streaming")
    return dataclasses.replace(settings, target=target)


def _after(sources: Iterable[tuple[str, bytes]], outcomes: Iterable[Outcome]) -> dict[str, bytes]:
    """Return the files as they are after a run, by path."""
    texts = dict(sources)
    for outcome in outcomes:
        if isinstance(outcome, Success | NeedsHuman):
            texts[outcome.path] = outcome.after
    return texts


def _installing_both(outcome: Outcome, settings: Settings, lists: Lists) -> Outcome:
    """Return a file again that installs for others (by ``%run``), some of which need Petastorm."""
    if not isinstance(outcome, Success | NeedsHuman) or imports_petastorm(outcome.before):
        return outcome
    if not any(site.code == REQUIREMENT for site in outcome.sites):
        return outcome
    if not lists.around(outcome.path).old:
        return outcome
    target = dataclasses.replace(settings.target, requirement=Requirement.JOINED)
    return process(outcome.path, outcome.before, dataclasses.replace(settings, target=target))
