"""Modules of a repository that are imported in place of a library, because they have its name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from petastorm_codemods._petastorm.counterparts import STREAMING
from petastorm_codemods._petastorm.offered import OLD

# Folders whose modules are imported by their own names, as those beside a program are.
_ROOTS = ("src", "lib", "python")
_MAKER = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+make_spark_converter\b", re.MULTILINE)


def streaming_of_its_own(path: str, top: str) -> str:
    """Return the module that ``import streaming`` finds for a file before the library; empty if none.

    Args:
        path: The file.
        top: The highest directory whose modules it may import by their own names.
    """
    return next(_modules(path, top, STREAMING), "")


def petastorm_of_its_own(path: str, top: str) -> str:
    """Return the package ``petastorm`` that a file imports and that makes converters of another kind.

    Empty if there is none: a copy of Petastorm's own package is Petastorm, and so is what is installed.
    """
    for module in _modules(path, top, OLD):
        if os.path.basename(module) == "__init__.py" and _makes_converters(os.path.dirname(module)):
            return os.path.dirname(module)
    return ""


def _modules(path: str, top: str, name: str) -> Iterator[str]:
    """Yield the files of modules of a name beside a file, and at the roots of imports above it."""
    directory, top = os.path.dirname(os.path.abspath(path)), os.path.abspath(top)
    above = directory
    while True:
        if above == directory or not os.path.exists(os.path.join(above, "__init__.py")):
            yield from _modules_in(above, name)
        if above == top or os.path.dirname(above) == above:
            return
        above = os.path.dirname(above)


def _modules_in(directory: str, name: str) -> tuple[str, ...]:
    """Return the modules of a name in a directory and in its folders for sources."""
    files = [f"{name}.py", os.path.join(name, "__init__.py")]
    candidates = [os.path.join(directory, root, file) for root in ("", *_ROOTS) for file in files]
    return tuple(filter(os.path.isfile, candidates))


def _makes_converters(package: str) -> bool:
    """Say whether a package defines a maker of converters, and is no copy of Petastorm's own."""
    if os.path.exists(os.path.join(package, "unischema.py")):
        return False
    for directory, _, files in os.walk(package):
        for file in files:
            if file.endswith(".py"):
                with open(os.path.join(directory, file), "rb") as module:
                    if _MAKER.search(module.read()):
                        return True
    return False
