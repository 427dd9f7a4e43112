"""The command ``petastorm-bridge convert``."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from petastorm_bridge.convert import Conversion

INTERRUPTED = 130  # what shells give for Ctrl-C
# What stands behind ``\b`` keeps its lines.
EXAMPLES = """\b
Examples:
  petastorm-bridge convert /data/events /data/events-mds
  petastorm-bridge convert /data/events /data/events-mds --columns id,image --compression zstd:3
  petastorm-bridge convert s3://bucket/events /data/events-mds --workers 8
"""


def convert(  # noqa: PLR0917 - typer calls it with keywords
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="Path or URL of a Parquet file or directory, or of a dataset of Petastorm's own.",
        ),
    ],
    destination: Annotated[str, typer.Argument(metavar="DST", help="Directory to make.")],
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Convert only these columns, separated by commas."),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How shards are compressed, for instance zstd:3."),
    ] = None,
    hashes: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Hashes of shards to store, separated by commas, for instance sha1,xxh64.",
        ),
    ] = None,
    size_limit: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Size of a shard before compression: bytes, or 64mb, 1gb."
        ),
    ] = "32mb",
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of processes. [default: one for each core]"),
    ] = None,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark",
            help="Let Spark's executors do the work. They must see SRC and DST under the same paths.",
            metavar="",
            show_default=False,
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            help="Read every stored value back and compare it with the source.",
        ),
    ] = True,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", metavar="", show_default=False, help="Show no progress."),
    ] = False,
) -> None:
    """Convert a Parquet store or a dataset of Petastorm's own to MDS shards. Neither Spark nor Java is needed.

    Rows keep their order. DST becomes a dataset only when everything is written and verified. If the
    command is interrupted, run it again: it goes on where it stopped.

    Exit code 0: converted, now or before; 1: what was stored differs from SRC; 2: it could not be converted.
    """
    try:
        from petastorm_bridge.convert import ConversionError, convert_dataset
    except ImportError as error:
        _fail(str(error), 2)
    if not source or not destination:
        _fail(f"{'DST' if source else 'SRC'} is empty. Name a directory.", 2)
    try:
        done = convert_dataset(
            source,
            destination,
            columns=_names(columns),
            size_limit=_bytes(size_limit),
            compression=compression,
            hashes=_names(hashes),
            workers=workers,
            verify=verify,
            progress=not quiet,
            spark=_session() if spark else None,
        )
    except KeyboardInterrupt:
        _fail("interrupted. What is finished is kept: the same command goes on.", INTERRUPTED)
    except ConversionError as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(_of_system(error), 2)
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        _fail(str(error), 2)
    else:
        typer.echo(_summary(done, has_hashes=_names(hashes) != []))


def _session() -> Any:
    from petastorm_bridge.spark._session import spark_session

    # Spark starts Python with ``-m``: modules of the working directory would come first.
    os.environ["PYTHONSAFEPATH"] = "1"
    return spark_session()


def _fail(text: str, code: int) -> NoReturn:
    typer.echo(f"petastorm-bridge convert: {text}", err=True)
    raise typer.Exit(code)


def _of_system(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space left for {error.filename}. What is finished is kept: make room, and the same "
            "command goes on."
        )
    if error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}. Give a place that can be read, and one that can be written."
    return str(error)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _bytes(text: str) -> int:
    """Return a number of bytes that is written as streaming writes it; ValueError if it is none."""
    units = {"kb": 10, "mb": 20, "gb": 30}
    plain = text.strip().lower()
    number, unit = (plain[:-2], plain[-2:]) if plain[-2:] in units else (plain, "")
    try:
        return int(float(number) * (1 << units.get(unit, 0)))
    except (ValueError, OverflowError):
        raise ValueError(
            f"--size-limit {text!r} is no number of bytes, such as 67108864 or 64mb."
        ) from None


def _summary(done: Conversion, *, has_hashes: bool) -> str:
    if done.is_verified:
        checked = "every value compared with the source"
    elif done.taken_over:
        checked = f"{'hashes' if has_hashes else 'sizes'} of what an earlier run wrote"
    else:
        checked = "nothing, as asked"
    rows, shards = (
        f"{number:,} {what}{'s' * (number != 1)}"
        for number, what in ((done.rows, "row"), (done.shards, "shard"))
    )
    lines = [f"{rows} in {shards}, {done.size:,} bytes, at {done.path}", f"Checked: {checked}."]
    if done.was_finished:
        lines.insert(0, "Already converted by an earlier run; nothing was written.")
    elif done.taken_over:
        lines.insert(1, f"{done.taken_over:,} of the rows were there from an earlier run.")
    width = max(map(len, done.encodings))
    lines += [f"  {name:<{width}}  {encoding}" for name, encoding in done.encodings.items()]
    return "\n".join(lines)
