"""The options of ``petastorm-bridge codemod``, ``doctor`` and ``rule``; what they do is loaded when they run."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from ._model import Destination

SHORT = "Rewrite Petastorm code in modules, notebooks and dependency files."
HELP = f"""{SHORT}

Nothing is written without --write. First take the code to the bridge (--to bridge: imports change, batches stay
the same), and on another day to streaming (--to streaming: calls become streaming's own, for a review). Without
--to, the command shows in a few lines what either would do here, and changes nothing.

Exit code 0: nothing is left to do; 1: changes are pending, or places are left to you; 2: the run
ended abnormally, or --to is missing beside an option that needs it.
"""
# What stands behind ``\b`` keeps its lines.
EXAMPLES = """\b
Examples:
  petastorm-bridge codemod .                         # show what either destination would do
  petastorm-bridge codemod . --to bridge             # show the changes as a diff
  petastorm-bridge codemod . --to bridge --write     # make them
  petastorm-bridge codemod . --to bridge --check     # for CI: exit code 0 if nothing is left to do
  petastorm-bridge codemod . --to streaming --write  # the second step, on another day
"""
DOCTOR_EXAMPLES = """\b
Examples:
  petastorm-bridge doctor                            # the working directory
  petastorm-bridge doctor services/rank --json       # for programs
"""
RULE_EXAMPLES = """\b
Examples:
  petastorm-bridge rule                              # all rules, a line each
  petastorm-bridge rule PM102                        # all there is to say of one
"""
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
        typer.Option(
            help='Where the code goes. [default: "to" of [tool.petastorm-bridge] in pyproject.toml]'
        ),
    ] = None,
    check: Annotated[bool, _flag("--check", "Only say which files would change.")] = False,
    diff: Annotated[bool, _flag("--diff", "Print the changes as a diff and nothing else.")] = False,
    write: Annotated[bool, _flag("--write", "Write the changes.")] = False,
    select: Annotated[
        _Codes,
        typer.Option(metavar="CODE", help="Only these rules: PM001, or PM0 for all that begin so."),
    ] = None,
    ignore: Annotated[_Codes, typer.Option(metavar="CODE", help="Not these rules.")] = None,
    exclude: Annotated[
        _Codes, typer.Option(metavar="GLOB", help="Not these files: patterns of names or paths.")
    ] = None,
    unsafe: Annotated[
        bool, _flag("--unsafe", "Also make rewrites that change what the program does.")
    ] = False,
    fast: Annotated[
        bool, _flag("--fast", "With --to streaming: read whole batches instead of rows.")
    ] = False,
    vendor: Annotated[
        bool, _flag("--vendor", "With --to streaming: copy the few functions that the code needs.")
    ] = False,
    converted: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL=DIR",
            help="With --to streaming, after `petastorm-bridge convert URL DIR`: take readers of URL to DIR.",
        ),
    ] = None,
    lift_pyarrow: Annotated[
        bool,
        _flag("--lift-pyarrow", "Raise upper limits on pyarrow that exclude petastorm-bridge."),
    ] = False,
    requirement: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Require this, such as 'petastorm-bridge @ file:///Volumes/path/to/the.whl'. [default: this version]",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Report | None,
        typer.Option(help="Print a report in this format and nothing else.", show_default=False),
    ] = None,
    statistics: Annotated[
        bool, _flag("--statistics", "Print how often each rule was met, not where.")
    ] = False,
    output_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write what --report, --statistics or --diff print to this file.",
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
    given = dict(locals())
    _refuse(check=check, diff=diff, write=write)
    formats = {"--report": report is not None, "--diff": diff, "--statistics": statistics}
    _refuse_formats([option for option, is_given in formats.items() if is_given], output_file)
    from ._options import Options
    from ._terminal import rewrite

    codes = {name: _codes(given[name]) for name in ("select", "ignore", "exclude")}
    lists = {"paths": tuple(paths or ["."]), "converted": tuple(converted or ())}
    asked = Options(**given | codes | lists | {"report": report.value if report else None})
    raise typer.Exit(rewrite(asked))


def doctor(
    path: Annotated[
        str, typer.Argument(help="Directory or file.", metavar="PATH", show_default=False)
    ] = ".",
    as_json: Annotated[bool, _flag("--json", "Print JSON.")] = False,
) -> None:
    """Look at a repository and its environment: what there is, what is in the way, and what to do next.

    Nothing is written.

    Exit code 0: nothing is in the way; 1: something is, such as a pinned version that excludes
    petastorm-bridge or a file that does not parse, or no place can be rewritten; 2: the path cannot be read.
    """
    from ._doctor.shown import doctor as look

    raise typer.Exit(look(path, as_json=as_json))


def rule(
    code: Annotated[
        str | None, typer.Argument(help="Such as PM102; without it all are listed.", metavar="CODE")
    ] = None,
) -> None:
    """Explain a rule of the codemod: what it does, with an example, and what to do where it does nothing."""
    from ._reports.guide import rule_lines, rule_list

    try:
        lines = list(rule_list() if code is None else rule_lines(code))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="CODE") from error
    typer.echo("\n".join(lines))


def _refuse(*, check: bool, diff: bool, write: bool) -> None:
    for option, given in (("--check", check), ("--diff", diff)):
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
