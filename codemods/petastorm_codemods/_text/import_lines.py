"""What a file imports and runs by the look of its lines, without parsing it: also of notebooks and broken code."""

from __future__ import annotations

import functools
import re

from .decode import decode_utf8
from .ipynb import read_notebook

# What is in brackets ends before the next such statement, so that brackets left open cost no more than others.
_STATEMENT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]*(?P<names>"
    rb"\((?:[^)\n]|\n(?![ \t]*from\b))*\)|[^\n]*(?<=\\)\r?\n[^\n]*|[^\n]*)"
    rb"|import[ \t]+(?P<plain>[.\w]+(?:[ \t]*,[ \t]*[.\w]+|[ \t]+as[ \t]+\w+)*))",
    re.MULTILINE,
)

_WORD = re.compile(rb"\w+")
_RUN = re.compile(rb"^[ \t]*(?:# MAGIC[ \t]+)?%run[ \t]+[\"']?([^\s\"']+)", re.MULTILINE)
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{")
# Where lines begin in the strings of a notebook whose JSON cannot be read.
_IN_STRINGS = re.compile(rb"\"|\\n")


@functools.lru_cache(
    maxsize=8
)  # several questions are asked about a file, one file after the other
def import_lines(data: bytes) -> tuple[tuple[str, bytes], ...]:
    """Return the modules that a file imports, each with the text of the names that come from it.

    The text is empty for ``import a``, which is one entry for each module; relative modules keep their dots.
    """
    return tuple(
        (module, match["names"] or b"")
        for match in _STATEMENT.finditer(code_of(data))
        for module in _modules_of(match)
    )


def _modules_of(statement: re.Match[bytes]) -> list[str]:
    plain = (statement["plain"] or b"").split(b",")
    modules = [statement["module"]] if statement["module"] else [part.split()[0] for part in plain]
    return [module.decode(errors="replace") for module in modules]


def first_import(text: str, package: str) -> int | None:
    """Return where the first statement of a text is that imports a package or what is in it; None if none does."""
    data = text.encode(errors="replace")  # a character for each one that has no encoding
    for match in _STATEMENT.finditer(data):
        if any(module.partition(".")[0] == package for module in _modules_of(match)):
            indent = len(match[0]) - len(match[0].lstrip())
            return len(data[: match.start() + indent].decode())
    return None


def imported_modules(data: bytes) -> frozenset[str]:
    """Return the dotted names of the modules that a file imports."""
    return frozenset(module for module, _ in import_lines(data))


def imported_paths(data: bytes) -> frozenset[str]:
    """Return the dotted names of the modules that a file imports, and of what it imports from them by name.

    That may be a module, too.
    """
    return imported_modules(data) | {
        f"{module}.{word.decode(errors='replace')}"
        for module, names in import_lines(data)
        for word in _WORD.findall(names)
    }


def files_run(data: bytes) -> frozenset[str]:
    """Return the paths of the notebooks and programs that a file runs by ``%run``, as they are written."""
    names = (name.decode(errors="replace") for name in _RUN.findall(code_of(data)))
    return frozenset(re.sub(r"\.(?:py|ipynb)$", "", name) for name in names)


@functools.lru_cache(maxsize=2)
def code_of(data: bytes) -> bytes:
    """Return the code of a notebook, however its JSON is laid out; a program as it is."""
    if not _JSON.match(data):
        return data
    try:
        cells = read_notebook(decode_utf8(data).text).cells
    except ValueError:
        return _IN_STRINGS.sub(b"\n", data)
    return "\n".join(cell.text for cell in cells).encode(errors="replace")
