"""``--vendor``: what a repository uses of the support module, as one file of its own."""

from __future__ import annotations

import ast
import functools
import importlib.resources
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from petastorm_codemods._petastorm.offered import NEW

_PARTS = ("_native_write.py", "_native_read.py")
NAME = "mds_support"
CODE = "PM100"
_TITLE = "What streaming lacks for code that used Petastorm's Spark converter"
_HEAD = f'"""{_TITLE}."""\n# Copied from petastorm-bridge. SPDX-License-Identifier: Apache-2.0\n'
# Left out where the repository has no such attribute; the one in the value is needed with them.
_ATTRIBUTES = {"cache_dir_url": "", "file_urls": "cache_dir_url"}


@dataclass(frozen=True)
class _Piece:
    """A statement at the top of the support module.

    Attributes:
        names: What it binds.
        uses: The names that it reads.
        text: Its lines, with the comments above.
        order: First what is bound once, then functions and classes, then methods added to those.
    """

    names: frozenset[str]
    uses: frozenset[str]
    text: str
    order: int


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
    """

    def __init__(self, users: Collection[str], boundary: Callable[[str], str]) -> None:
        self._boundary = boundary
        homes = {self._own(path) for path in users if not _is_test(path)}
        ordered = sorted(homes, key=lambda home: ("." not in home.module, home.file))
        self._tested = ordered[0] if ordered else None

    def home(self, path: str) -> Home:
        """Return where a file has the module from."""
        return self._tested if self._tested and _is_test(path) else self._own(path)

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
        return Home(os.path.join(home, f"{NAME}.py"), ".".join([*inner, NAME]))


def _is_package(folder: str) -> bool:
    """Say whether modules in a folder are imported by its name; none has a hyphen in it."""
    named = os.path.basename(folder).isidentifier()
    return named and os.path.isfile(os.path.join(folder, "__init__.py"))


def _is_test(path: str) -> bool:
    folders = set(os.path.normpath(path).split(os.sep)[:-1])
    name = os.path.basename(path)
    return bool(folders & {"test", "tests"}) or name.startswith(("test_", "conftest."))


def names_in(text: str) -> frozenset[str]:
    """Return the public names that a file offers which was written before.

    Raises:
        ValueError: Something else has the file's name.
    """
    if not text.startswith(f'"""{_TITLE}'):
        raise ValueError(f"{NAME}.py exists and is something else")
    return frozenset(
        node.name
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    )


def used_names(texts: Iterable[bytes]) -> frozenset[str]:
    """Return the words of some files that are names of the support module, or attributes of it."""
    known = {name for piece in _pieces() for name in piece.names} | {*_ATTRIBUTES}
    words = {word.decode() for text in texts for word in re.findall(rb"[A-Za-z_]\w*", text)}
    return frozenset(known & words)


def vendored(names: Collection[str]) -> str:
    """Return the file with some names of the support module and all that they need."""
    pieces = _pieces()
    wanted: set[str] = set()
    new = {name for name in names if name not in _ATTRIBUTES}
    while new:
        wanted |= new
        uses = {use for piece in pieces if piece.names & new for use in piece.uses}
        new = uses - wanted
    kept = sorted((p for p in pieces if p.names & wanted), key=lambda piece: piece.order)
    attributes = {*names} | {_ATTRIBUTES.get(name, "") for name in names}
    body = _without("\n".join(_spaced(kept)), {*_ATTRIBUTES} - attributes)
    return "\n".join([_HEAD, *_imports(kept), "", body, ""])


def _spaced(pieces: Iterable[_Piece]) -> Iterator[str]:
    before = 0
    for piece in pieces:
        together = piece.order == before != 1
        yield piece.text if together else f"\n\n{piece.text}"
        before = piece.order


@functools.cache
def _sources() -> tuple[str, ...]:
    folder = importlib.resources.files(NEW)
    return tuple(folder.joinpath(part).read_text("utf-8") for part in _PARTS)


@functools.cache
def _pieces() -> tuple[_Piece, ...]:
    return tuple(piece for text in _sources() for piece in _statements(text))


def _statements(text: str) -> Iterator[_Piece]:
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Expr):
            continue
        order = int(isinstance(node, ast.ClassDef | ast.FunctionDef))
        decorators = getattr(node, "decorator_list", [])
        first = (decorators[0].lineno if decorators else node.lineno) - 1
        while lines[first - 1].startswith("#"):
            first -= 1
        used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        bound = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and _binds(each)}
        names = {node.name} if isinstance(node, ast.ClassDef | ast.FunctionDef) else bound
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            names, order = {node.targets[0].attr}, 2
        own = "\n".join(lines[first : node.end_lineno])
        yield _Piece(frozenset(names), frozenset(used - names), own, order)


def _binds(node: ast.Name) -> bool:
    """Say whether a name is assigned to, or what it holds is."""
    return isinstance(node.ctx, ast.Store) or node.id == "_TIMES"


def _without(body: str, attributes: Collection[str]) -> str:
    """Remove some attributes from the class of directories."""
    for name in attributes:
        body = re.sub(rf"    {name} = property\(.*\n", "", body)
        body = re.sub(
            rf"    @property\n    def {name}\(.*\n(?:(?:        .*)?\n)*?(?=    \S)", "", body
        )
    return body


def _imports(pieces: Iterable[_Piece]) -> list[str]:
    """Return the imports that the pieces use, the standard library's first."""
    used = {use for piece in pieces for use in piece.uses}
    groups: tuple[list[str], list[str]] = ([], [])
    for text in _sources():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and node.module != "__future__" and not node.level:
                names = [each for each in node.names if (each.asname or each.name) in used]
                line = f"from {node.module} import {', '.join(each.name for each in names)}"
            elif isinstance(node, ast.Import):
                bound = [(each.asname or each.name).partition(".")[0] for each in node.names]
                names = [each for each, name in zip(node.names, bound, strict=True) if name in used]
                line = ast.unparse(node)
            else:
                continue
            module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            library = (module or "").partition(".")[0] not in sys.stdlib_module_names
            if names and line not in groups[library]:
                groups[library].append(line)
    first, second = (_merged(group) for group in groups)
    return [*first, "", *second]


def _merged(lines: Iterable[str]) -> list[str]:
    """Return import lines in order, those from one module as one, and plain ones as one."""
    plain = sorted(line.removeprefix("import ") for line in lines if line.startswith("import "))
    # No line breaks within "numpy as np".
    wrapped = textwrap.wrap(", ".join(plain).replace(" as ", "~"), 90)
    names: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("from "):
            module, _, what = line.removeprefix("from ").partition(" import ")
            names.setdefault(module, set()).update(what.split(", "))
    return [f"import {line.rstrip(',')}".replace("~", " as ") for line in wrapped] + [
        f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names)
    ]
