"""``[tool.petastorm-bridge]`` in the nearest ``pyproject.toml``: what is decided once for a repository."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any

_LISTS = ("select", "ignore", "exclude", "converted")
_FLAGS = ("unsafe", "fast", "vendor")


@dataclass(frozen=True)
class Config:
    """Defaults of the command line's options; None where the file says nothing.

    Attributes:
        to: Destination.
        select: Codes or prefixes of codes.
        ignore: Codes or prefixes of codes.
        exclude: Glob patterns.
        unsafe: Whether behaviour-changing rewrites are made.
        fast: Whether rewritten code reads whole batches.
        vendor: Whether the support module becomes a file of the repository.
        converted: Datasets that were converted, each as ``URL=DIR``.
        requirement: What is required of petastorm-bridge.
    """

    to: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    unsafe: bool = False
    fast: bool = False
    vendor: bool = False
    converted: tuple[str, ...] = ()
    requirement: str | None = None


def read_config(path: str) -> Config:
    """Return the configuration that holds for a file or directory.

    Raises:
        ValueError: The table has a key or a type that is not known, or is no TOML.
    """
    directory = os.path.abspath(path)
    while not os.path.isfile(os.path.join(directory, "pyproject.toml")):
        above = os.path.dirname(directory)
        if above == directory:
            return Config()
        directory = above
    file = os.path.join(directory, "pyproject.toml")
    with open(file, encoding="utf-8") as stream:
        text = stream.read()
    if "petastorm-bridge" not in text:
        return Config()
    return _checked(_loads(text, file).get("tool", {}).get("petastorm-bridge", {}), file)


def _loads(text: str, file: str) -> dict[str, Any]:
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        document: dict[str, Any] = toml.loads(text)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    return document


def _checked(table: dict[str, Any], file: str) -> Config:
    where = f"{file}, [tool.petastorm-bridge]"
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in _LISTS:
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise ValueError(f"{where}: {key} is a list of strings, not {value!r}")
            values[key] = tuple(value)
        elif (
            (key in _FLAGS and isinstance(value, bool))
            or (key == "to" and value in {"bridge", "streaming"})
            or (key == "requirement" and isinstance(value, str))
        ):
            values[key] = value
        else:
            known = "to ('bridge' or 'streaming'), select, ignore, exclude, converted, requirement, and unsafe, fast, vendor (true or false)"
            raise ValueError(f"{where}: cannot use {key} = {value!r}; known are {known}")
    return Config(**values)
