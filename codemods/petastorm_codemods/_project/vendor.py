"""``--vendor``: where the copies of the support module go in a run, and what becomes of each."""

from __future__ import annotations

import functools
import importlib.resources
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from petastorm_codemods._model import Failed, Outcome, Safety, Site, State, Success
from petastorm_codemods._petastorm.counterparts import SUPPORT
from petastorm_codemods._petastorm.offered import NEW, OLD
from petastorm_codemods._text.import_lines import import_lines, imported_modules

from .listing import upwards

CODE = "PM100"


@dataclass(frozen=True)
class Home:
    """Where a copy of the module goes, and the name that it is imported by."""

    file: str
    module: str

    @property
    def package(self) -> str:
        """The dotted name of the package that it is in; empty if it is in none."""
        return self.module.rpartition(".")[0]

    @property
    def root(self) -> str:
        """The folder from which it is imported by its name."""
        return str(Path(self.file).parents[self.module.count(".")])


class Homes:
    """Places copies where those who import them find them, also installed or from another folder.

    A module in a package has it in the outermost package around it, a script or notebook beside
    itself or in a package there that it imports, and tests have that of what they test. Nothing goes
    above the boundary.

    Args:
        sources: Path and bytes of the files of a run, of which some may import it.
        boundary: Returns the folder that nothing is written above for a file; see `files.tops_of`.
        imported: Dotted names of the modules that files of the run import.
    """

    def __init__(
        self,
        sources: Iterable[tuple[str, bytes]],
        boundary: Callable[[str], str],
        imported: Collection[str],
    ) -> None:
        self._users = {path: imported_modules(data) for path, data in sources if _may_need(data)}
        self._boundary = boundary
        # With the packages around each, so that asking costs the same however much is imported.
        self._imported = frozenset(
            package for name in imported for package in accumulate(name.split("."), "{}.{}".format)
        )
        self._tested = sorted(
            {self._own(path) for path in self._users if not _is_test(path)},
            key=lambda home: home.file,
        )
        self._packages = [home for home in self._tested if home.package]
        # By the folders around each: what is nearest to a test, packages first.
        self._nearest: dict[Path, Home] = {}
        for home in sorted(self._tested, key=lambda home: not home.package):
            for folder in Path(home.file).parents:
                self._nearest.setdefault(folder, home)

    def home(self, path: str) -> Home:
        """Return where a file has the module from."""
        if not self._tested or not _is_test(path):
            return self._beside(path) or self._own(path)
        folders = Path(os.path.abspath(path)).parents
        return next(self._nearest[folder] for folder in folders if folder in self._nearest)

    def _beside(self, path: str) -> Home | None:
        """Return the copy of a package that a script imports from the folder in which it is itself."""
        folder = os.path.dirname(os.path.abspath(path))
        imported = [f"{module}." for module in self._users.get(path, ())]
        return next(
            (
                home
                for home in self._packages
                if home.root == folder
                and any(module.startswith(f"{home.package}.") for module in imported)
            ),
            None,
        )

    def _own(self, path: str) -> Home:
        start = os.path.dirname(os.path.abspath(path))
        top = self._boundary(path)
        inside = os.path.join(top, "")
        within = [each for each in upwards(start) if os.path.join(each, "").startswith(inside)]
        package = next(filter(_is_package, within), None)
        if package is None:
            module = self._name(Path(path).stem, start, top)
            return Home(
                os.path.join(start, f"{SUPPORT}.py"),
                ".".join([*module.split(".")[:-1], SUPPORT]),
            )
        home, folder = package, package
        while _is_package(folder):
            home = folder if folder in within else home
            folder = os.path.dirname(folder)
        inner = os.path.relpath(home, folder).split(os.sep)
        name = self._name(".".join(inner), folder, top)
        return Home(os.path.join(home, f"{SUPPORT}.py"), f"{name}.{SUPPORT}")

    def _name(self, inner: str, folder: str, top: str) -> str:
        """Return the name that a package or module in a folder is imported by.

        That of folders around it may be a part of it, although no ``__init__.py`` is in them: others
        of the run then import it by that name only.
        """
        name = inner
        while name not in self._imported:
            outer = os.path.basename(folder)
            if folder == top or not outer.isidentifier():
                return inner
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
    return importlib.resources.files(NEW).joinpath("mds_support.py").read_bytes()


def _may_need(data: bytes) -> bool:
    return b"make_tf_dataset" in data or any(
        module.startswith(OLD) or b"make_spark_converter" in names
        for module, names in import_lines(data)
    )


def support_files(homes: Homes, texts: Mapping[str, bytes]) -> Iterator[Outcome]:
    """Yield the outcome of each copy of the support module.

    Args:
        homes: Where the copies go.
        texts: The files of the run as they are after it, by path.
    """
    used = {
        home.file: home
        for path, text in sorted(texts.items())
        if (home := homes.home(path)).module in imported_modules(text)
        and os.path.abspath(path) != home.file
    }
    for file in sorted(used):  # which some may import by another name than others
        yield from _support_file(used[file])


def _support_file(home: Home) -> Iterator[Outcome]:
    """Yield the outcome of one copy; nothing if it is there already."""
    path = os.path.relpath(home.file)
    if os.path.islink(home.file):
        yield Failed(path, "it is a link, and nothing is written through links")
        return
    if os.path.exists(home.file) and not os.path.isfile(home.file):
        yield Failed(path, "left alone, because it is no regular file", abnormal=True)
        return  # reading a pipe could wait for ever
    before = Path(home.file).read_bytes() if os.path.exists(home.file) else b""
    after = support_module()
    title, _, _ = after.partition(b"\n")
    if before and not before.startswith(title.rstrip(b'."')):
        yield Failed(path, f"{os.path.basename(path)} exists and is something else")
    elif before != after:
        message = f"{home.module} holds what rewritten code imports"
        site = Site(CODE, 1, 1, None, message, Safety.SAFE, State.REWRITTEN)
        yield Success(path, before, after, (site,))
