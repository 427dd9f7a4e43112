"""``--vendor``: where the copies of the support module go."""

from __future__ import annotations

import functools
import importlib.resources
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import accumulate

from petastorm_codemods._petastorm.offered import NEW

CODE = "PM100"
NAME = "mds_support"

_IMPORT = re.compile(rb"^[ \t\"]*(?:from|import)[ \t]+([A-Za-z_][\w.]*)", re.MULTILINE)


@dataclass(frozen=True)
class Home:
    """Where a copy of the module goes, and the name that it is imported by."""

    file: str
    module: str


class Homes:
    """Places copies where those who import them find them, also installed or from another folder.

    A module in a package has it in the outermost package around it, a script or notebook beside
    itself, and tests have that of what they test. Nothing goes above the boundary.

    Args:
        users: Paths of the files that may import it.
        boundary: Folder that nothing is written above; see `boundary_of`.
        imported: Dotted names of the modules that files of the run import.
    """

    def __init__(
        self,
        users: Collection[str],
        boundary: Callable[[str], str],
        imported: Collection[str] = (),
    ) -> None:
        self._boundary = boundary
        # With the packages around each, so that asking costs the same however much is imported.
        self._imported = frozenset(
            package for name in imported for package in accumulate(name.split("."), "{}.{}".format)
        )
        self._tested = sorted(
            {self._own(path) for path in users if not _is_test(path)}, key=lambda home: home.file
        )

    def home(self, path: str) -> Home:
        """Return where a file has the module from."""
        if not self._tested or not _is_test(path):
            return self._own(path)
        here = os.path.abspath(path)

        def nearness(home: Home) -> tuple[int, bool]:
            shared = os.path.commonpath([here, home.file])
            return shared.count(os.sep), "." in home.module

        return max(self._tested, key=nearness)

    def _own(self, path: str) -> Home:
        start = os.path.dirname(os.path.abspath(path))
        top = self._boundary(path)
        within = [start]
        while within[-1] != top and os.path.dirname(within[-1]) != within[-1]:
            within.append(os.path.dirname(within[-1]))
        package = next(filter(_is_package, within), None)
        if package is None:
            return Home(os.path.join(start, f"{NAME}.py"), NAME)
        home, folder = package, package
        while _is_package(folder):
            home = folder if folder in within else home
            folder = os.path.dirname(folder)
        inner = os.path.relpath(home, folder).split(os.sep)
        name = self._name(".".join(inner), folder, top)
        return Home(os.path.join(home, f"{NAME}.py"), f"{name}.{NAME}")

    def _name(self, package: str, folder: str, top: str) -> str:
        """Return the name that a package in a folder is imported by.

        That of folders around it may be a part of it, although no ``__init__.py`` is in them: others
        of the run then import it by that name only.
        """
        name = package
        while name not in self._imported:
            outer = os.path.basename(folder)
            if folder == top or not outer.isidentifier():
                return package
            name, folder = f"{outer}.{name}", os.path.dirname(folder)
        return name


def _is_package(folder: str) -> bool:
    """Say whether modules in a folder are imported by its name; none has a hyphen in it."""
    named = os.path.basename(folder).isidentifier()
    return named and os.path.isfile(os.path.join(folder, "__init__.py"))


def _is_test(path: str) -> bool:
    folders = set(os.path.normpath(path).split(os.sep)[:-1])
    name = os.path.basename(path)
    return bool(folders & {"test", "tests"}) or name.startswith(("test_", "conftest."))


@functools.cache
def support_module() -> bytes:
    """Return the module that copies are made of; it imports nothing of ours."""
    return importlib.resources.files(NEW).joinpath("native").joinpath("support.py").read_bytes()


def imported_modules(text: bytes) -> frozenset[str]:
    """Return the dotted names of the modules that a file imports."""
    return frozenset(name.decode() for name in _IMPORT.findall(text))


def imports_module(module: str, text: bytes) -> bool:
    """Say whether a file imports a module; a string that names it, say for a mock, is no import."""
    name = re.escape(module.encode())
    return re.search(rb"^[ \t\"]*(?:from|import)[ \t]+%s\b" % name, text, re.MULTILINE) is not None
