"""The command line, ``petastorm-bridge``.

Heavy imports belong into the commands: ``petastorm-bridge --help`` answers at once, and on the base install.
"""

from __future__ import annotations

import difflib
import errno
import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from petastorm_bridge import __version__
from petastorm_codemods import _cli as codemods

from . import _parity
from ._convert import EXAMPLES as CONVERT_EXAMPLES
from ._convert import INTERRUPTED, convert

__all__ = ["app", "main"]

# What a bug report should name, in this order.
_DISTRIBUTIONS = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "mosaicml-streaming",
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "petastorm",
    "libcst",
)


# What stands behind ``\b`` keeps its lines.
EXAMPLES = """\b
Examples:
  petastorm-bridge doctor                            # what is here, and what to do next
  petastorm-bridge codemod . --to bridge --write     # first: imports change, batches stay the same
  petastorm-bridge codemod . --to streaming --write  # then: streaming's own calls
  petastorm-bridge COMMAND --help                    # options and examples of a command
"""
DIFFERENCE_EXAMPLES = """\b
Examples:
  petastorm-bridge difference                        # all of them, a line each
  petastorm-bridge difference no-lost-rows           # what Petastorm does, what happens here, and why
"""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class _Group(TyperGroup):
    """The commands, with flags that are False if not given, and usage errors in words for people.

    Typer's own (``--help``, completion) are None then, and to find out that this is no truth value it loads
    pydantic, which takes longer than everything else here.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the program itself."""
        options = super().get_params(ctx)
        for option in options:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return options

    def invoke(self, ctx: Any) -> Any:
        """Run a command.

        Raises:
            typer.BadParameter: A value is none that the command takes.
            typer.Exit: A command that has no sentence of its own for it was ended by Ctrl-C, by a file that
                cannot be used, or by output that finds no room.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("petastorm-bridge: interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except OSError as error:
            if error.filename is not None:
                typer.echo(f"petastorm-bridge: {error.filename}: {error.strerror}", err=True)
            elif error.errno in _NO_ROOM:  # standard output has no name
                typer.echo(f"petastorm-bridge: cannot write: {error}", err=True)
            else:
                raise  # such as a pipe that nobody reads any more, which Typer takes for an end
            raise typer.Exit(2) from error
        except typer.BadParameter as error:
            error.message = _for_people(error)
            raise


class _Command(TyperCommand):
    """A command whose help names its arguments without their types, which are Python's words."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's arguments and options."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: ""  # noqa: ARG005 - called with it
        return params


def _for_people(error: typer.BadParameter) -> str:
    """Return what is wrong with a value, and the value: Typer passes on the words of its validator alone."""
    message = error.message.removeprefix("Value error, ")
    _, should_be, what = message.partition("Input should be ")
    if not should_be:
        return message
    cause: Any = error.__cause__
    return f"{str(cause.errors()[0]['input'])!r} is not {what.partition(',')[0]}"


app = typer.Typer(
    name="petastorm-bridge",
    cls=_Group,
    help="Keep code that reads data with Petastorm running, and take it off Petastorm.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,  # rich takes as long to load as everything else here
)


def main() -> None:
    """Runs the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # What its encoding lacks, such as a comment in Japanese, is escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"petastorm-bridge {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            metavar="",
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    del version  # handled by its callback before any command runs


def versions() -> None:
    """Print the versions of everything the bridge works with, for a bug report."""
    import platform
    from importlib import metadata

    typer.echo(f"{'petastorm-bridge':<20} {__version__}")
    typer.echo(f"{'python':<20} {platform.python_version()} ({platform.platform()})")
    for name in _DISTRIBUTIONS:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "not installed"
        typer.echo(f"{name:<20} {version}")


def difference(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Such as no-lost-rows; without it all are listed.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Explain a known difference between Petastorm and the bridge.

    Those that are listed with [--allow] show in batches: `parity compare --allow NAME` accepts one.
    """
    from petastorm_bridge._tables.differences import AREAS, DIFFERENCES
    from petastorm_bridge.parity._comparing.rules import ALLOWANCES

    known = {each.name: each for each in DIFFERENCES}
    # Those of streaming, which is compared with Petastorm too.
    others = {each: str(effect.value) for each, effect in ALLOWANCES.items() if each not in known}
    if name is None:
        typer.echo(
            "What Petastorm does and the bridge does otherwise; with a NAME: what happens here, and why."
        )
        parts = {
            f"{area}: if you {touched}": {
                e.name: e.petastorm for e in DIFFERENCES if e.area == area
            }
            for area, touched in AREAS.items()
        }
        for heading, texts in {**parts, "Streaming, compared with Petastorm": others}.items():
            typer.echo(f"\n{heading}")
            for each, text in texts.items():
                typer.echo(f"  {each:<32}{text}{' [--allow]' if each in ALLOWANCES else ''}")
    elif name in others:
        typer.echo(f"{name}: {others[name]}.")
    elif name in known:
        entry = known[name]
        typer.echo(f"{name}: {entry.area}\n\nPetastorm: {entry.petastorm}\nHere: {entry.bridge}")
        typer.echo(f"Why: {entry.reason}")
    else:
        near = difflib.get_close_matches(name.lower(), [*known, *others], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise typer.BadParameter(f"no difference is called {name!r}{hint}", param_hint="NAME")


def _add(
    group: typer.Typer, command: Any, line: str, epilog: str | None = None, text: str | None = None
) -> None:
    group.command(cls=_Command, short_help=line, epilog=epilog, help=text)(command)


_parity_app = typer.Typer(
    name="parity",
    help="Check that two loaders give the same batches.",
    epilog=_parity.EXAMPLES,
    no_args_is_help=True,
)
# In the order in which people need them; the list of commands has room for these lines.
_add(app, codemods.doctor, "Say what is here and what to do next.", codemods.DOCTOR_EXAMPLES)
_add(
    app, codemods.codemod, "Rewrite Petastorm code and its requirements.", codemods.EXAMPLES,
    codemods.HELP,
)  # fmt: skip
_add(app, codemods.rule, "Explain a rule of the codemod.", codemods.RULE_EXAMPLES)
_add(app, convert, "Convert a Parquet store to MDS shards.", CONVERT_EXAMPLES)
_add(app, difference, "Explain a known difference from Petastorm.", DIFFERENCE_EXAMPLES)
_add(app, versions, "Print the versions that a bug report should name.")
_add(_parity_app, _parity.record, "Record what a loader gives.", _parity.RECORD_EXAMPLES)
_add(
    _parity_app, _parity.compare, "Compare two recordings, or a recording and a loader.",
    _parity.COMPARE_EXAMPLES,
)  # fmt: skip
_add(
    _parity_app, _parity.run, "Run Petastorm, the bridge and streaming on the same data.",
    _parity.RUN_EXAMPLES,
)  # fmt: skip
app.add_typer(_parity_app)
