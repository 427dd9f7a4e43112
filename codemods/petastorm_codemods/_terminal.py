"""A run of ``petastorm-bridge codemod`` on a terminal: configuration, writing, and what is printed."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import sys

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from petastorm_bridge._workers.threads import usable_cores

from ._model import (
    Failed,
    Outcome,
    Result,
    Rewritten,
    Site,
    State,
    pending,
)
from ._options import OF_OUTPUT, OF_STREAMING, Options, arguments, with_configuration
from ._project.distribution import bridge
from ._reports.closing import closing_lines, plural
from ._reports.formats import FORMATS
from ._reports.report import diff, exit_code, printable, statistics
from ._run import run
from ._settings import Settings, settings_for
from ._text.decode import is_read_only, write_atomically

_INTERRUPTED = 130  # as of a shell


def rewrite(asked: Options) -> int:
    """Do what is asked, print what came of it, and return the exit code."""
    errors = Console(stderr=True, highlight=False, emoji=False)
    written: list[str] = []
    try:
        _refuse_place(asked.output_file)
        options = with_configuration(asked)
        if options.to is None:
            return _overview(asked, options)
        settings = settings_for(options)
        result = _run(options, settings, errors)
        if asked.write:
            result = _write(result, written)
        document = _document(result, asked)
        if asked.output_file is not None:
            # Names of files in no encoding are escaped.
            write_atomically(asked.output_file, document.encode(errors="backslashreplace"))
    except KeyboardInterrupt:
        # The run is over: pressed again on a busy machine, it would end the sentence instead.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        kept = f"{plural(len(written), 'file')} had been rewritten, each as a whole"
        what = f"{kept}: the same command does the others" if written else "no file was changed"
        _abnormal(errors, f"interrupted; {what}.")
        return _INTERRUPTED
    except (ValueError, OSError) as error:
        return _abnormal(errors, str(error))
    except Exception as error:  # noqa: BLE001 - a fault of ours is no finding, which code 1 would say
        errors.print_exception()
        return _abnormal(errors, f"a fault of this tool: {type(error).__name__}: {error}")
    if asked.output_file is None and asked.diff:
        _print_patch(document)
    elif asked.output_file is None and asked.report:
        sys.stdout.write(printable(document))
    else:
        _tell(result, asked, settings)
    return exit_code(result, written=asked.write)


def _abnormal(errors: Console, reason: str) -> int:
    message = printable(f"petastorm-bridge codemod: {reason}")
    errors.print(message, style="red", markup=False, soft_wrap=True)
    return 2


def _document(result: Result, asked: Options) -> str:
    """Return what is asked for in place of lines for people; empty if nothing is."""
    if asked.report:
        text = FORMATS[asked.report](result)
        return f"{text}\n" if text else ""
    if asked.diff:
        return "".join(map(diff, result.outcomes))
    if asked.statistics:
        return "".join(f"{line}\n" for line in statistics(result, written=asked.write))
    return ""


def _tell(result: Result, asked: Options, settings: Settings) -> None:
    """Print what people read: changes or numbers of rules, then the closing lines."""
    if asked.statistics:
        sys.stdout.writelines(f"{line}\n" for line in statistics(result, written=asked.write))
    elif asked.output_file is None:
        _changes(result, with_diff=not (asked.check or asked.write), written=asked.write)
    _closing(result, asked, settings)


def _refuse_place(path: str | None) -> None:
    """Refuse a place that no file can be put at, before anything is done.

    Raises:
        OSError: A directory, a device, a read-only file or the like is there, or no directory for it.
    """
    if path is None:
        return
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"--output-file: {path} is no regular file")
    if os.path.exists(path) and is_read_only(path):
        raise OSError(f"--output-file: {path} is read-only")
    directory = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(directory):
        raise OSError(f"--output-file {path}: there is no directory {directory}")
    if not os.access(directory, os.W_OK):
        raise OSError(f"--output-file {path}: {directory} is read-only")


def _overview(asked: Options, options: Options) -> int:
    """Print what either destination would do here, and return the exit code.

    Raises:
        ValueError: An option needs to know the destination.
    """
    # As long as it is not known where the code goes, these mean nothing.
    given = next((name for name in (*OF_OUTPUT, *OF_STREAMING) if getattr(options, name)), None)
    if given is not None:
        raise ValueError(
            f"--{given.replace('_', '-')} needs a destination: --to bridge (first: imports only, the same "
            "batches) or --to streaming (then: streaming's own calls). Give it here, or once as "
            'to = "bridge" in [tool.petastorm-bridge] of pyproject.toml'
        )
    from ._doctor.shown import overview

    lines, code = overview(asked, options)
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    return code


def _run(options: Options, settings: Settings, errors: Console) -> Result:
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("Rewriting", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        jobs = options.jobs or usable_cores()
        return run(options.paths, settings, exclude=options.exclude, jobs=jobs, progress=show)


def _refuse_link(path: str) -> None:
    """Keep what is written within what was named: a link may lead anywhere.

    Raises:
        OSError: The path is a link, dangling or not.
    """
    if os.path.islink(path):
        raise OSError(f"it is a link; name the file that it leads to, {os.path.realpath(path)}")


def _write(result: Result, written: list[str]) -> Result:
    """Write the changed files; a file that cannot be written has failed, the others are written.

    Args:
        result: What becomes of each file.
        written: Takes the paths of those that are written, one after the other.
    """
    outcomes: list[Outcome] = []
    for outcome in result.outcomes:
        kept: Outcome = outcome
        if isinstance(outcome, Rewritten) and pending(outcome):
            try:
                _refuse_link(outcome.path)
                write_atomically(outcome.path, outcome.after)
                written.append(outcome.path)
            except OSError as error:
                reason = f"cannot be written: {error}"
                kept = Failed(outcome.path, reason, outcome.sites, abnormal=True)
        outcomes.append(kept)
    return dataclasses.replace(result, outcomes=tuple(outcomes))


def _console() -> Console:
    """Return what prints lines as they are: rich would make a picture of the place ``train.py:100:1``."""
    return Console(highlight=False, soft_wrap=True, emoji=False)


def _changes(result: Result, *, with_diff: bool, written: bool) -> None:
    """Print the changes, then what is left of them."""
    console = _console()
    for outcome in result.outcomes:
        if with_diff and pending(outcome):
            console.print(_coloured(printable(diff(outcome))), end="")
        elif pending(outcome):
            what = f"{'wrote' if written else 'would change'} {outcome.path}"
            console.print(printable(what), markup=False)
    for outcome in result.outcomes:
        for site in outcome.sites:
            if site.state is not State.REWRITTEN or site.told:
                console.print(printable(_line(outcome.path, site)), style="magenta", markup=False)
        if isinstance(outcome, Failed):
            reason = printable(f"{outcome.path}: failed: {outcome.reason}")
            console.print(reason, style="red", markup=False)


def _closing(result: Result, asked: Options, settings: Settings) -> None:
    """Print the numbers and the next step: the end is what is read first."""
    console = _console()
    lines = closing_lines(
        result,
        arguments(asked),
        settings.destination,
        fast=settings.target.fast,
        written=asked.write,
        requirement=str(bridge(settings.target.bridge)),
    )
    for line in lines:
        console.print(printable(line), markup=False)


def _print_patch(text: str) -> None:
    """Print a diff: a terminal gets nothing that steers it, Git all of it, in UTF-8 whatever else the output is in."""
    if sys.stdout.isatty():
        text = printable(text)
    elif isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files in no encoding are escaped.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="")
    sys.stdout.write(text)


_STYLES = (("+++", "bold"), ("---", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


def _coloured(lines: str) -> Text:
    text = Text()
    for line in lines.splitlines(keepends=True):
        style = next((style for start, style in _STYLES if line.startswith(start)), "")
        text.append(line, style)
    return text


def _line(path: str, site: Site) -> str:
    place = f"{path}:cell {site.cell}:" if site.cell else f"{path}:"
    return f"{place}{site.line}:{site.column}: {site.code} {site.message} [{site.state.value}]"
