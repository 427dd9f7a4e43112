"""The commands ``petastorm-bridge parity record``, ``compare`` and ``run``."""

from __future__ import annotations

import ast
import contextlib
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from petastorm_bridge import parity
from petastorm_bridge._workers.progress import progress_bar

if TYPE_CHECKING:
    from petastorm_bridge.parity._result import Report

# What stands behind ``\b`` keeps its lines.
EXAMPLES = """\b
Examples:
  petastorm-bridge parity record loaders:train --out golden          # where Petastorm works: train() of loaders.py
  petastorm-bridge parity compare golden loaders:train               # after the migration
  petastorm-bridge parity run --data /data/train --batch-size 64 --petastorm-python /old/bin/python
"""
RECORD_EXAMPLES = """\b
Examples:
  petastorm-bridge parity record loaders:train --out golden          # train() of loaders.py
  petastorm-bridge parity record loaders:train --out golden --limit 10000
"""
COMPARE_EXAMPLES = """\b
Examples:
  petastorm-bridge parity compare golden loaders:train               # a recording and a loader
  petastorm-bridge parity compare golden candidate --order shuffled --key id
  petastorm-bridge parity compare golden candidate --tolerance float32=1e-6 --html parity.html
"""
RUN_EXAMPLES = """\b
Examples:
  petastorm-bridge parity run --data /data/train --batch-size 64 --petastorm-python /old/bin/python
  petastorm-bridge parity run --data /data/train --batch-size 64 --only bridge --only streaming
  petastorm-bridge parity run --data /data/train --batch-size 64 --option shuffle_row_groups=True
"""

_PROGRAM = "petastorm-bridge parity"  # what error messages begin with


def _flag(name: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, help=text, metavar="", show_default=False)
    return option


# Their values are checked by `Rules` and `Runner`, which say what there is.
_Order = Annotated[
    str, typer.Option(metavar="<exact|shuffled>", help="shuffled: rows may come in any order.")
]
_Batches = Annotated[
    str, typer.Option(metavar="<exact|any>", help="any: batches may begin and end anywhere.")
]
_Shards = Annotated[
    str, typer.Option(metavar="<exact|union>", help="union: a row may be on any rank.")
]
_Nan = Annotated[
    str, typer.Option(metavar="<exact|any>", help="any: NaNs of different bits are the same.")
]
_Tolerance = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        metavar="DTYPE=RTOL[,ATOL]",
        help="How far numbers may differ, for instance float32=1e-6; float stands for all "
        "floating-point dtypes. Everything else must be the same bit for bit.",
    ),
]
_Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Accept this known difference; `petastorm-bridge difference` lists them. May be repeated.",
    ),
]
_Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Do not compare this column. May be repeated."),
]
_Key = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Tell by this column which row is which, for rows in any order. May be repeated.",
    ),
]
_File = {"metavar": "FILE", "show_default": False}
_Json = Annotated[Path | None, typer.Option("--json", help="Write a JSON report.", **_File)]
_Junit = Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML.", **_File)]
_Markdown = Annotated[Path | None, typer.Option("--markdown", help="Write Markdown.", **_File)]
_Html = Annotated[Path | None, typer.Option("--html", help="Write a page to look at.", **_File)]


def record(  # noqa: PLR0917 - typer calls it with keywords
    function: Annotated[
        str, typer.Argument(metavar="LOADER", help="module:function that returns the loader.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the recording.")],
    epochs: Annotated[int, typer.Option(metavar="N", help="Passes over the loader.")] = 1,
    limit: Annotated[
        int | None,
        typer.Option(metavar="ROWS", help="Stop after so many rows; endless loaders need it."),
    ] = None,
    rows: Annotated[bool, _flag("--rows", "The loader gives single rows, not batches.")] = False,
    rank: Annotated[
        int | None, typer.Option(metavar="N", help="This process's rank. [default: $RANK]")
    ] = None,
    world_size: Annotated[
        int | None, typer.Option(metavar="N", help="Number of ranks. [default: $WORLD_SIZE]")
    ] = None,
    overwrite: Annotated[bool, _flag("--overwrite", "Replace an earlier recording.")] = False,
) -> None:
    """Record what a loader gives: names, dtypes, shapes, values, and where batches begin and end.

    Where this package cannot be installed, copy its file petastorm_bridge/parity/recorder.py and run
    `python recorder.py module:function --out golden/`: it needs Python 3.8, NumPy and pyarrow.
    """
    given = {**locals(), "out": str(out)}
    from petastorm_bridge.parity import recorder

    raise typer.Exit(recorder.record_named(_PROGRAM, **given))


def compare(  # noqa: PLR0917 - typer calls it with keywords
    a: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="How batches should be: a recording, or module:function of a loader.",
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(
            metavar="NEW", help="What is judged: a recording, or module:function of a loader."
        ),
    ],
    order: _Order = "exact",
    batches: _Batches = "exact",
    shards: _Shards = "exact",
    nan: _Nan = "exact",
    tolerance: _Tolerance = None,
    allow: _Allow = None,
    ignore: _Ignore = None,
    key: _Key = None,
    limit: Annotated[
        int | None, typer.Option(metavar="ROWS", help="Take at most so many rows of a loader.")
    ] = None,
    json: _Json = None,
    junit: _Junit = None,
    markdown: _Markdown = None,
    html: _Html = None,
) -> None:
    """Compare two recordings, or a recording and a loader: columns, number of rows, order, batches, values.

    Exit code 0: the same; 1: different; 2: they could not be compared.
    """
    given = dict(locals())
    from petastorm_bridge.parity._comparing.compare import compare as run
    from petastorm_bridge.parity._result import Report

    with _errors():
        _refuse_places(given)
        rules = _rules(given)
        sides = [_side(text) for text in (a, b)]
        labels = _labels(a, b)
        with _progress() as progress:
            result = run(
                sides[0],
                sides[1],
                rules,
                labels=labels,
                profile=html is not None,
                progress=progress,
                limit=limit,
            )
    _finish(Report(f"Comparison of {a} and {b}", (result,)), given)


def run(  # noqa: PLR0917 - typer calls it with keywords
    data: Annotated[
        str, typer.Option(metavar="DATA", help="Parquet directory, or name of a Spark table.")
    ],
    batch_size: Annotated[int, typer.Option(metavar="ROWS", min=1, help="Rows in a batch.")],
    loader: Annotated[
        str,
        typer.Option(
            metavar="<torch|batched|tf>",
            help="DataLoader, BatchedDataLoader or make_petastorm_dataset.",
        ),
    ] = "torch",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An argument of the readers, such as num_epochs=2. May be repeated.",
        ),
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION",
            help="module:function that is given the class TransformSpec and returns an instance.",
        ),
    ] = None,
    petastorm_python: Annotated[
        str | None,
        typer.Option(
            metavar="PYTHON",
            help="Interpreter in which Petastorm is installed. [default: this one]",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<petastorm|bridge|streaming>", help="Run this one only. May be repeated."
        ),
    ] = None,
    attempts: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Run Petastorm so often at most: it loses rows now and then."
        ),
    ] = 10,
    limit: Annotated[
        int | None, typer.Option(metavar="ROWS", help="Stop after so many rows.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long one run may take.")
    ] = 3600,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the recordings there.", show_default=False),
    ] = None,
    order: _Order = "exact",
    batches: _Batches = "exact",
    nan: _Nan = "exact",
    tolerance: _Tolerance = None,
    allow: _Allow = None,
    ignore: _Ignore = None,
    key: _Key = None,
    json: _Json = None,
    junit: _Junit = None,
    markdown: _Markdown = None,
    html: _Html = None,
) -> None:
    """Run Petastorm, the bridge and streaming on the same data, and compare what they give.

    Each of the three needs its package: give --petastorm-python for an interpreter that has Petastorm,
    install the extra [streaming], or choose with --only.

    Exit code 0: the same; 1: different; 2: something could not be compared.
    """
    given = dict(locals())
    from petastorm_bridge.parity._running import live
    from petastorm_bridge.parity._running.runner import PACKAGES, Request

    with _errors(), tempfile.TemporaryDirectory(prefix="parity-") as temporary:
        _refuse_places(given)
        rules = _rules(given)
        with _progress() as progress:
            request = Request(
                data,
                batch_size,
                loader,
                parse_options(option or ()),
                transform,
                petastorm_python,
                attempts,
                limit,
                timeout,
                tuple(only or PACKAGES),
                keep=None if keep is None else str(keep.absolute()),
            )
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
            report = live.run(
                request, rules, temporary, profile=html is not None, progress=progress
            )
    _finish(report, given)


# As strings they would all be true.
_PYTHON_WORDS = {"true": "True", "false": "False", "null": "None", "none": "None"}


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE``: literals of Python or JSON; anything else is a string."""
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise parity.CannotCompareError(f"the option {text!r} is not of the form NAME=VALUE")
        try:
            options[name] = ast.literal_eval(_PYTHON_WORDS.get(value.lower(), value))
        except (ValueError, SyntaxError):
            options[name] = value
    return options


_REPORTS = ("json", "junit", "markdown", "html")


def _refuse_places(given: Mapping[str, Any]) -> None:
    """Refuse reports that could not be written, with CannotCompareError, before anything takes its time."""
    for kind in _REPORTS:
        place: Path | None = given[kind]
        if place is not None and not place.parent.is_dir():
            raise parity.CannotCompareError(
                f"--{kind} {place}: there is no directory {place.parent}"
            )
        if place is not None and place.is_dir():
            raise parity.CannotCompareError(f"--{kind} {place}: that is a directory; name a file")


def _side(text: str) -> Any:
    """Return what a side is compared by: its recording, or the function that returns its loader."""
    from petastorm_bridge.parity._recordings.recording import open_recording
    from petastorm_bridge.parity.recorder import find_function

    if os.path.isdir(text):
        return open_recording(text)
    if ":" in text:
        return find_function(text)
    try:
        return open_recording(text)
    except parity.CannotCompareError as error:
        raise parity.CannotCompareError(
            f"{error}; a loader is written as module:function"
        ) from error


def _labels(a: str, b: str) -> tuple[str, str]:
    names = [os.path.basename(os.path.normpath(s)) if os.path.isdir(s) else s for s in (a, b)]
    return (a, b) if names[0] == names[1] else (names[0], names[1])


def _rules(given: Mapping[str, Any]) -> parity.Rules:
    """Return the rules that the options of a command ask for."""
    asked = {n: given[n] for n in ("order", "batches", "shards", "nan") if n in given}
    asked |= {n: tuple(given[n] or ()) for n in ("allow", "ignore", "key")}
    return parity.Rules(tolerances=dict(map(_parse_tolerance, given["tolerance"] or ())), **asked)


def _parse_tolerance(text: str) -> tuple[str, Any]:
    dtype, _, numbers = text.partition("=")
    try:
        tolerances = [float(number) for number in numbers.split(",")]
        return dtype, parity.Tolerance(*tolerances)
    except (ValueError, TypeError):
        raise parity.CannotCompareError(
            f"the tolerance {text!r} is not of the form DTYPE=RTOL or DTYPE=RTOL,ATOL"
        ) from None


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn what keeps sides from being compared into exit code 2."""
    from rich.console import Console

    from petastorm_bridge.parity.recorder import legible

    try:
        yield
    except (parity.CannotCompareError, parity.RecordingError) as error:
        errors = Console(stderr=True, highlight=False, emoji=False)
        text = "\n".join(map(legible, str(error).split("\n")))
        errors.print(f"{_PROGRAM}: {text}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from error
    except typer.Exit:
        raise
    except Exception as error:  # mostly a loader's own: the user must see where it comes from
        traceback.print_exc()
        typer.echo(f"{_PROGRAM}: nothing was compared, because of this error", err=True)
        raise typer.Exit(2) from error


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """Give a function that shows what is being done, and how many rows of how many, while the block runs."""
    with contextlib.ExitStack() as bars:
        shown: dict[str, Any] = {}

        def move(what: str, done: int, total: int) -> None:
            if what not in shown:
                shown[what] = progress_bar(what, " rows", total)
                if shown[what] is not None:
                    bars.enter_context(shown[what])
            if shown[what] is not None:
                shown[what].total = total
                shown[what].update(done - shown[what].n)

        yield move


def _finish(report: Report, given: Mapping[str, Any]) -> None:
    """Print the report, write the files that were asked for, and leave with the exit code."""
    from rich.console import Console

    from petastorm_bridge.parity._reports.text import WRITERS, print_report

    console = Console(highlight=False, soft_wrap=True, emoji=False)
    print_report(report, console)
    now = datetime.now().astimezone().isoformat(" ", "seconds")
    command = shlex.join(["petastorm-bridge", *sys.argv[1:]])
    report = replace(report, made=(f"Made on {now}", f"Command: {command}"))
    for kind in _REPORTS:
        place: Path | None = given[kind]
        if place is not None:
            place.write_text(WRITERS[kind](report), encoding="utf-8")
            console.print(f"\n{kind} report: {place}", style="dim", markup=False)
    raise typer.Exit(report.exit_code)
