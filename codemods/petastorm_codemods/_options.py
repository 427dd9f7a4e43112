"""The options of ``petastorm-bridge codemod``, and what ``[tool.petastorm-bridge]`` says of them for a repository."""

from __future__ import annotations

import dataclasses
import glob
import importlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from petastorm_bridge.fs_utils import local_path

from ._model import Converted, Destination

# What the nearest pyproject.toml may decide once and for all.
_LISTS = ("select", "ignore", "exclude", "converted")
_FLAGS = ("unsafe", "fast", "vendor")
OF_STREAMING = ("fast", "vendor", "converted")
OF_OUTPUT = ("check", "diff", "write", "report", "statistics", "output_file")


@dataclass(frozen=True)
class Options:
    """What is asked for.

    Attributes:
        paths: Files and directories, at least one.
        to: Destination; None to show what either would do.
        select: Codes or prefixes of codes; empty for all.
        ignore: Codes or prefixes of codes.
        exclude: Glob patterns of names or paths to pass over.
        unsafe: Whether behaviour-changing rewrites are made.
        fast: Whether rewritten code reads whole batches.
        vendor: Whether the support module becomes a file of the repository.
        converted: Datasets that were converted, each as ``URL=DIR``.
        lift_pyarrow: Whether limits on pyarrow that contradict the bridge's are raised.
        requirement: What is required of petastorm-bridge; None for the version that runs.
        jobs: Number of processes; 0 for as many as there are cores.
        check: Whether to say only which files would change.
        diff: Whether to print the changes as a diff and nothing else.
        write: Whether the changes are written.
        report: Format of the report that is printed instead; None for lines for people.
        statistics: Whether to print how often each rule was met, not where.
        output_file: Where the report, the statistics or the diff go; None to print them.
    """

    paths: tuple[str, ...]
    to: Destination | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    unsafe: bool = False
    fast: bool = False
    vendor: bool = False
    converted: tuple[str, ...] = ()
    lift_pyarrow: bool = False
    requirement: str | None = None
    jobs: int = 0
    check: bool = False
    diff: bool = False
    write: bool = False
    report: str | None = None
    statistics: bool = False
    output_file: str | None = None


def with_configuration(asked: Options) -> Options:
    """Return options again, with what the nearest ``pyproject.toml`` says where the command line says nothing.

    Patterns of files to pass over add up; those of paths count from the folder of the file that has them. The file's
    options of streaming wait until that is the destination.

    Raises:
        ValueError: The table has a key or a type that is not known, or is no TOML.
    """
    decided, folder = _table_for(asked.paths[0])
    to = asked.to or decided.get("to")
    below = (
        os.path.normpath(os.path.join(glob.escape(folder), each)) if "/" in each else each
        for each in decided.get("exclude", ())
    )
    missing = {
        name: value
        for name, value in decided.items()
        if not getattr(asked, name) and (to is Destination.STREAMING or name not in OF_STREAMING)
    }
    return dataclasses.replace(asked, **{**missing, "exclude": (*below, *asked.exclude)})


def towards(options: Options, to: Destination) -> Options:
    """Return options again for a destination: to the bridge without those of streaming."""
    if to is Destination.STREAMING:
        return dataclasses.replace(options, to=to)
    return dataclasses.replace(options, to=to, fast=False, vendor=False, converted=())


def arguments(asked: Options) -> list[str]:
    """Return paths and options as a command line has them, but for what is printed and written and how fast."""
    words = [*asked.paths]
    for each in dataclasses.fields(asked):
        value = getattr(asked, each.name)
        if each.name in {"paths", "jobs", *OF_OUTPUT} or value == each.default:
            continue
        option = f"--{each.name.replace('_', '-')}"
        if value is True:
            words.append(option)
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [option, one.value if isinstance(one, Destination) else one]
    return words


def _table_for(path: str) -> tuple[dict[str, Any], str]:
    """Return the options in the nearest table above a file or directory, by their names, and the table's folder.

    Raises:
        ValueError: The table has a key or a type that is not known, or is no TOML.
    """
    directory = os.path.abspath(path)
    while True:
        file = os.path.join(directory, "pyproject.toml")
        if os.path.isfile(file):
            with open(file, "rb") as stream:
                data = stream.read()
            tools = _loads(data, file).get("tool") if b"petastorm-bridge" in data else None
            if isinstance(tools, dict) and "petastorm-bridge" in tools:
                return _checked(tools["petastorm-bridge"], file), directory
        above = os.path.dirname(directory)
        if above == directory:
            return {}, directory
        directory = above


def _loads(data: bytes, file: str) -> dict[str, Any]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        document: dict[str, Any] = toml.loads(data.decode())
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{file} is nested too deep.") from error
    return document


def _checked(table: Any, file: str) -> dict[str, Any]:
    where = f"{file}, [tool.petastorm-bridge]"
    if not isinstance(table, dict):
        raise ValueError(f"{where} is a table, not {table!r}")  # noqa: TRY004 - the text is wrong
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in _LISTS:
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise ValueError(f"{where}: {key} is a list of strings, not {value!r}")
            values[key] = tuple(value)
        elif key == "to" and value in [each.value for each in Destination]:
            values[key] = Destination(value)
        elif (key in _FLAGS and isinstance(value, bool)) or (
            key == "requirement" and isinstance(value, str)
        ):
            values[key] = value
        else:
            known = "to ('bridge' or 'streaming'), select, ignore, exclude, converted, requirement, and unsafe, fast, vendor (true or false)"
            raise ValueError(f"{where}: cannot use {key} = {value!r}; known are {known}")
    return values


def conversions(values: Iterable[str]) -> tuple[Converted, ...]:
    """Return the datasets that some ``URL=DIR`` name.

    The directory need not be on this machine. If it is, its index says how columns are stored.

    Raises:
        ValueError: One has no URL or no directory, or two say different things of one URL.
    """
    datasets: dict[str, Converted] = {}
    for value in values:
        # Paths of partitions have the sign as well, those of conversions hardly ever.
        url, sign, directory = value.strip().rpartition("=")
        if not (sign and url and directory):
            raise ValueError(
                f"--converted takes URL=DIR, what `petastorm-bridge convert URL DIR` was given, not {value!r}"
            )
        directory = local_path(directory) or directory
        one = Converted(url.rstrip("/"), directory, _columns(directory))
        if datasets.setdefault(one.url, one) != one:
            both = f"{datasets[one.url].directory} and {directory}"
            raise ValueError(f"--converted names two directories for {one.url}: {both}; choose one")
    return tuple(datasets.values())


def _columns(directory: str) -> tuple[tuple[str, str], ...]:
    """Return the names of a conversion's columns with their encodings; nothing if its index is not here."""
    try:
        with open(os.path.join(directory, "index.json"), encoding="utf-8") as file:
            first = json.load(file)["shards"][0]
        return tuple(zip(first["column_names"], first["column_encodings"], strict=True))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ()
