"""The command ``petastorm-bridge codemod``."""

from __future__ import annotations

import enum
import os
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.syntax import Syntax

from ._config import Config, read_config
from ._decode import write_atomically
from ._engine import Settings
from ._model import Destination, Failed, NeedsHuman, Site, State, Success, Target, pending
from ._native import FAST_MODULE
from ._report import FORMATS, counts, diff, exit_code, printable
from ._run import Result, run


class Report(str, enum.Enum):
    """Formats of ``--report``."""

    JSON = "json"
    SARIF = "sarif"
    MARKDOWN = "markdown"


_Codes = list[str] | None


def codemod(  # noqa: PLR0917 - typer calls it with keywords
    paths: Annotated[list[str], typer.Argument(help="Files and directories.", show_default=False)],
    to: Annotated[
        Destination | None,
        typer.Option(help="Where call sites are taken. [default: streaming]", show_default=False),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say which files would change.")
    ] = False,
    show_diff: Annotated[
        bool, typer.Option("--diff", help="Print the changes as a diff and nothing else.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Write the changes.")] = False,
    select: Annotated[
        _Codes, typer.Option(help="Only these rules: PM001, or PM0 for all that begin so.")
    ] = None,
    ignore: Annotated[_Codes, typer.Option(help="Not these rules.")] = None,
    exclude: Annotated[_Codes, typer.Option(help="Not these files: glob patterns.")] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Make behaviour-changing rewrites too.")
    ] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Read whole batches instead of rows.")
    ] = False,
    vendor: Annotated[
        bool, typer.Option("--vendor", help="Write the support module into the repository.")
    ] = False,
    report: Annotated[
        Report | None, typer.Option(help="Print a report in this format and nothing else.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes. [default: all cores]")] = 0,
) -> None:
    """Rewrite Petastorm code in modules, notebooks and dependency files.

    Without --write nothing is written. Exit code 0: nothing to do, or all written; 1: changes are
    pending; 2: something failed or needs a human.
    """
    errors = Console(stderr=True, highlight=False)
    try:
        config = read_config(paths[0])
        settings = _settings(config, to, _codes(select), _codes(ignore), unsafe, fast, vendor)
        result = _run(paths, settings, (*config.exclude, *_codes(exclude)), jobs, errors)
    except (ValueError, OSError) as error:
        errors.print(printable(f"petastorm-bridge codemod: {error}"), style="red", markup=False)
        raise typer.Exit(2) from error
    if write:
        result = _write(result)
    if report:
        typer.echo(_shown(FORMATS[report.value](result)), color=True)
    elif show_diff:
        for outcome in result.outcomes:
            typer.echo(_shown(diff(outcome)), nl=False, color=True)
    else:
        _summary(result, with_diff=not (check or write), written=write)
    raise typer.Exit(exit_code(result, written=write))


def _codes(values: _Codes) -> tuple[str, ...]:
    return tuple(code.strip() for value in values or () for code in value.split(","))


def _settings(  # noqa: PLR0917 - one for each option
    config: Config,
    to: Destination | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    unsafe: bool,
    fast: bool,
    vendor: bool,
) -> Settings:
    fast, vendor = fast or config.fast, vendor or config.vendor
    if fast and vendor:
        raise ValueError(
            "--fast reads with a dataset of petastorm_bridge, which --vendor does without; choose one"
        )
    return Settings(
        destination=to or Destination(config.to or "streaming"),
        select=select or config.select,
        ignore=ignore or config.ignore,
        unsafe=unsafe or config.unsafe,
        target=Target(FAST_MODULE, fast=True) if fast else Target(),
        vendor=vendor,
    )


def _run(
    paths: list[str], settings: Settings, exclude: tuple[str, ...], jobs: int, errors: Console
) -> Result:
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("Rewriting", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        processes = jobs or os.cpu_count() or 1
        return run(paths, settings, exclude=exclude, jobs=processes, progress=show)


def _write(result: Result) -> Result:
    """Write the changed files; a file that cannot be written has failed, the others are written."""
    outcomes: list[Any] = []
    for outcome in result.outcomes:
        kept: Any = outcome
        if isinstance(outcome, Success | NeedsHuman) and pending(outcome):
            try:
                write_atomically(outcome.path, outcome.after)
            except OSError as error:
                kept = Failed(outcome.path, f"cannot be written: {error}", outcome.sites)
        outcomes.append(kept)
    return Result(tuple(outcomes), result.scanned)


def _summary(result: Result, *, with_diff: bool, written: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for outcome in result.outcomes:
        if with_diff and pending(outcome):
            console.print(Syntax(_shown(diff(outcome)), "diff", background_color="default"))
        elif pending(outcome):
            what = f"{'wrote' if written else 'would change'} {outcome.path}"
            console.print(_shown(what), markup=False)
        for site in outcome.sites:
            if site.state is not State.REWRITTEN or site.told:
                console.print(_shown(_line(outcome.path, site)), style="yellow", markup=False)
        if isinstance(outcome, Failed):
            reason = _shown(f"{outcome.path}: failed: {outcome.reason}")
            console.print(reason, style="red", markup=False)
    numbers = counts(result)
    done = "rewritten" if written else "to rewrite"
    console.print(
        f"{numbers['scanned']} files looked at: {numbers['rewritten']} {done}, "
        f"{numbers['needs a human']} need a human, {numbers['failed']} failed; "
        f"{numbers['sites rewritten']} places {done}, {numbers['sites left']} left",
        markup=False,
    )


def _shown(text: str) -> str:
    """Return text as standard output may have it: a terminal nothing that steers it."""
    if sys.stdout.isatty():
        return printable(text)
    return text.encode(errors="backslashreplace").decode()  # names of files in no encoding


def _line(path: str, site: Site) -> str:
    place = f"{path}:cell {site.cell}:" if site.cell else f"{path}:"
    return f"{place}{site.line}:{site.column}: {site.code} {site.message} [{site.state.value}]"
