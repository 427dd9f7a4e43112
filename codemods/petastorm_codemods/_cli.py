"""The options of ``petastorm-bridge codemod``; what it does is in ``_terminal``, loaded when it runs."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from ._model import Destination

HELP = (
    "Rewrite Petastorm code in modules, notebooks and dependency files.\n\n"
    "Without --write nothing is written.\n\n"
    "Exit code 0: nothing is left to do; 1: changes are pending, or places are left for a human; "
    "2: the run ended abnormally."
)
# The metavar of an option that takes no value.
_FLAG = ""


class Report(str, enum.Enum):
    """Formats of ``--report``."""

    JSON = "json"
    SARIF = "sarif"
    MARKDOWN = "markdown"
    GITHUB = "github"
    GITLAB = "gitlab"


_Codes = list[str] | None


def _flag(name: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, help=text, metavar=_FLAG, show_default=False
    )
    return option


def codemod(  # noqa: PLR0917 - typer calls it with keywords
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Files and directories. [default: .]", metavar="PATH"),
    ] = None,
    to: Annotated[
        Destination | None,
        typer.Option(help="Where call sites are taken. [default: streaming]"),
    ] = None,
    check: Annotated[bool, _flag("--check", "Only say which files would change.")] = False,
    show_diff: Annotated[
        bool, _flag("--diff", "Print the changes as a diff and nothing else.")
    ] = False,
    write: Annotated[bool, _flag("--write", "Write the changes.")] = False,
    select: Annotated[
        _Codes,
        typer.Option(metavar="CODE", help="Only these rules: PM001, or PM0 for all that begin so."),
    ] = None,
    ignore: Annotated[_Codes, typer.Option(metavar="CODE", help="Not these rules.")] = None,
    exclude: Annotated[
        _Codes, typer.Option(metavar="GLOB", help="Not these files: patterns of names or paths.")
    ] = None,
    unsafe: Annotated[bool, _flag("--unsafe", "Make behaviour-changing rewrites too.")] = False,
    fast: Annotated[bool, _flag("--fast", "Read whole batches instead of rows.")] = False,
    vendor: Annotated[
        bool, _flag("--vendor", "Write the support module into the repository.")
    ] = False,
    converted: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL=DIR",
            help="`petastorm-bridge convert URL DIR` has been run: readers of URL become streaming's.",
        ),
    ] = None,
    lift_pyarrow: Annotated[
        bool,
        _flag("--lift-pyarrow", "Raise limits on pyarrow that petastorm-bridge cannot live with."),
    ] = False,
    report: Annotated[
        Report | None,
        typer.Option(help="Print a report in this format and nothing else.", show_default=False),
    ] = None,
    statistics: Annotated[
        bool, _flag("--statistics", "Print how often each rule was met, instead of the places.")
    ] = False,
    output_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write there what --report, --statistics or --diff print.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=0,
            help="Processes. [default: all cores]",
            show_default=False,
        ),
    ] = 0,
) -> None:
    """Rewrite Petastorm code in modules, notebooks and dependency files."""
    _refuse(check=check, show_diff=show_diff, write=write)
    formats = {"--report": report is not None, "--diff": show_diff, "--statistics": statistics}
    _refuse_formats([option for option, given in formats.items() if given], output_file)
    from ._terminal import Asked, rewrite

    asked = Asked(
        paths=tuple(paths or ["."]),
        to=to,
        select=_codes(select),
        ignore=_codes(ignore),
        exclude=_codes(exclude),
        unsafe=unsafe,
        fast=fast,
        vendor=vendor,
        lift_pyarrow=lift_pyarrow,
        converted=tuple(converted or ()),
        jobs=jobs,
        check=check,
        diff=show_diff,
        write=write,
        report=report.value if report else None,
        statistics=statistics,
        output_file=output_file,
    )
    raise typer.Exit(rewrite(asked))


def doctor(
    path: Annotated[
        str, typer.Argument(help="Directory or file.", metavar="PATH", show_default=False)
    ] = ".",
    as_json: Annotated[bool, _flag("--json", "Print JSON.")] = False,
) -> None:
    """Say what this repository and environment have, which way to leave Petastorm fits, and what stops it.

    Nothing is written. Exit code 0: nothing is in the way; 1: something is, such as a limit that contradicts
    petastorm-bridge's or a file that does not parse, or no place can be rewritten; 2: that could not be said.
    """
    from ._doctor.shown import doctor as look

    raise typer.Exit(look(path, as_json=as_json))


def _refuse(*, check: bool, show_diff: bool, write: bool) -> None:
    """Refuse what writes and does not write at the same time."""
    for option, given in (("--check", check), ("--diff", show_diff)):
        if given and write:
            raise typer.BadParameter(f"{option} writes nothing; choose one", param_hint="--write")


def _refuse_formats(given: list[str], output_file: str | None) -> None:
    """Refuse several documents at once, and a file with nothing to write to it."""
    if len(given) > 1:
        raise typer.BadParameter(f"it excludes {given[0]}; choose one", param_hint=given[1])
    if output_file is not None and not given:
        message = "name what to write with --report, --statistics or --diff"
        raise typer.BadParameter(message, param_hint="--output-file")


def _codes(values: _Codes) -> tuple[str, ...]:
    return tuple(code.strip() for value in values or () for code in value.split(","))
