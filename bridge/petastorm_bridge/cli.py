"""The command line, ``petastorm-bridge``.

Heavy imports belong into the commands: ``petastorm-bridge --help`` answers at once, and on the base install.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from petastorm_codemods._cli import HELP as CODEMOD
from petastorm_codemods._cli import codemod, doctor

from . import __version__
from ._convert_command import INTERRUPTED, convert_command
from .parity._cli import app as parity

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
            typer.Exit: Ctrl-C ended a command that has no sentence of its own for that.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("petastorm-bridge: interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except typer.BadParameter as error:
            # Typer passes on what its validator says, beginning with what that calls the error.
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="petastorm-bridge",
    cls=_Group,
    help="Keep Petastorm's Spark converter code running on MDS shards, and move on from it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,  # rich takes as long to load as everything else here
)


def main() -> None:
    """Runs the command line."""
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


@app.command()
def versions() -> None:
    """Print the versions of everything the bridge works with, for a bug report."""
    import platform
    from importlib import metadata

    typer.echo(f"{'petastorm-bridge':<20} {__version__}")
    typer.echo(f"{'python':<20} {platform.python_version()} ({platform.platform()})")
    for name in _DISTRIBUTIONS:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "not installed"
        typer.echo(f"{name:<20} {found}")


app.command()(doctor)
app.command(help=CODEMOD)(codemod)
app.command("convert")(convert_command)
app.add_typer(parity)
