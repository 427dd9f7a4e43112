"""A run of ``petastorm-bridge codemod`` on a terminal: configuration, writing, and what is printed."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from ._config import Config, read_config
from ._model import (
    Destination,
    Failed,
    NeedsHuman,
    Outcome,
    Result,
    Site,
    State,
    Success,
    Target,
    pending,
)
from ._reports.closing import closing_lines
from ._reports.report import FORMATS, diff, exit_code, printable
from ._run import run
from ._settings import Settings
from ._text.decode import write_atomically


@dataclass(frozen=True)
class Asked:
    """What stands on the command line; see its help."""

    paths: tuple[str, ...]
    to: Destination | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    unsafe: bool = False
    fast: bool = False
    vendor: bool = False
    lift_pyarrow: bool = False
    jobs: int = 0
    check: bool = False
    diff: bool = False
    write: bool = False
    report: str | None = None


def rewrite(asked: Asked) -> int:
    """Do what is asked, print what came of it, and return the exit code."""
    errors = Console(stderr=True, highlight=False)
    try:
        config = read_config(asked.paths[0])
        settings = _settings(asked, config)
        result = _run(asked, settings, config, errors)
    except (ValueError, OSError) as error:
        message = printable(f"petastorm-bridge codemod: {error}")
        errors.print(message, style="red", markup=False, soft_wrap=True)
        return 2
    if asked.write:
        result = _write(result)
    if asked.report:
        print(_shown(FORMATS[asked.report](result)))  # noqa: T201 - what was asked for
    elif asked.diff:
        sys.stdout.writelines(_shown(diff(outcome)) for outcome in result.outcomes)
    else:
        _changes(result, with_diff=not (asked.check or asked.write), written=asked.write)
        _closing(result, asked, settings)
    return exit_code(result, written=asked.write)


def _settings(asked: Asked, config: Config) -> Settings:
    destination = asked.to or Destination(config.to or "streaming")
    # What the file says of another destination than the one asked for does not count.
    other = asked.to is not None and config.to != asked.to.value
    fast = asked.fast or (config.fast and not other)
    vendor = asked.vendor or (config.vendor and not other)
    if fast and vendor:
        raise ValueError(
            "--fast reads with a dataset of petastorm_bridge, which --vendor does without; choose one"
        )
    if destination is Destination.BRIDGE and (fast or vendor):
        option = "--fast" if fast else "--vendor"
        raise ValueError(
            f"{option} is for --to streaming; --to bridge changes no call sites. Choose one"
        )
    return Settings(
        destination=destination,
        select=asked.select or config.select,
        ignore=asked.ignore or config.ignore,
        unsafe=asked.unsafe or config.unsafe,
        target=Target(fast=fast),
        vendor=vendor,
        lift_pyarrow=asked.lift_pyarrow,
    )


def _run(asked: Asked, settings: Settings, config: Config, errors: Console) -> Result:
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("Rewriting", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        exclude = (*config.exclude, *asked.exclude)
        jobs = asked.jobs or os.cpu_count() or 1
        return run(asked.paths, settings, exclude=exclude, jobs=jobs, progress=show)


def _refuse_link(path: str) -> None:
    """Keep what is written within what was named: a link may lead anywhere.

    Raises:
        OSError: The path is a link, dangling or not.
    """
    if os.path.islink(path):
        raise OSError(f"it is a link; name the file that it leads to, {os.path.realpath(path)}")


def _write(result: Result) -> Result:
    """Write the changed files; a file that cannot be written has failed, the others are written."""
    outcomes: list[Outcome] = []
    for outcome in result.outcomes:
        kept: Outcome = outcome
        if isinstance(outcome, Success | NeedsHuman) and pending(outcome):
            try:
                _refuse_link(outcome.path)
                write_atomically(outcome.path, outcome.after)
            except OSError as error:
                reason = f"cannot be written: {error}"
                kept = Failed(outcome.path, reason, outcome.sites, abnormal=True)
        outcomes.append(kept)
    return Result(tuple(outcomes), result.scanned)


def _changes(result: Result, *, with_diff: bool, written: bool) -> None:
    """Print the changes, then what is left of them."""
    console = Console(highlight=False, soft_wrap=True)
    for outcome in result.outcomes:
        if with_diff and pending(outcome):
            console.print(_coloured(_shown(diff(outcome))), end="")
        elif pending(outcome):
            what = f"{'wrote' if written else 'would change'} {outcome.path}"
            console.print(_shown(what), markup=False)
    for outcome in result.outcomes:
        for site in outcome.sites:
            if site.state is not State.REWRITTEN or site.told:
                console.print(_shown(_line(outcome.path, site)), style="yellow", markup=False)
        if isinstance(outcome, Failed):
            reason = _shown(f"{outcome.path}: failed: {outcome.reason}")
            console.print(reason, style="red", markup=False)


def _closing(result: Result, asked: Asked, settings: Settings) -> None:
    """Print the numbers and the next step: the end is what is read first."""
    console = Console(highlight=False, soft_wrap=True)
    arguments = list(asked.paths)
    if asked.to is not None:
        arguments += ["--to", asked.to.value]
    arguments += [
        f"--{option}" for option in ("fast", "vendor", "unsafe") if getattr(asked, option)
    ]
    lines = closing_lines(
        result,
        arguments,
        settings.destination,
        fast=settings.target.fast,
        written=asked.write,
    )
    for line in lines:
        console.print(_shown(line), markup=False)


def _shown(text: str) -> str:
    """Return text as standard output may have it: a terminal nothing that steers it."""
    if sys.stdout.isatty():
        return printable(text)
    return text.encode(errors="backslashreplace").decode()  # names of files in no encoding


_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


def _coloured(lines: str) -> Text:
    """Return a diff with its changes coloured; context keeps the terminal's own colour."""
    text = Text()
    for line in lines.splitlines(keepends=True):
        style = next((style for start, style in _STYLES if line.startswith(start)), "")
        text.append(line, style)
    return text


def _line(path: str, site: Site) -> str:
    place = f"{path}:cell {site.cell}:" if site.cell else f"{path}:"
    return f"{place}{site.line}:{site.column}: {site.code} {site.message} [{site.state.value}]"
