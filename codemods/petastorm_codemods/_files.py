"""Finding the files of a run, and passing over those that cannot concern it without parsing them."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator

from ._gitignore import Ignores, for_directory
from ._model import Destination

_SUFFIXES = (".py", ".ipynb")
_SKIPPED = frozenset(
    {
        ".eggs",
        ".git",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
        "site-packages",
        "venv",
    }
)
_DEPENDENCY = re.compile(
    r"(?:requirements?|constraints?)[\w.-]*\.(?:txt|in)|pyproject\.toml|setup\.(?:py|cfg)|"
    r"(?:conda[\w.-]*|environment[\w.-]*)\.ya?ml|(?:[\w.-]*\.)?Dockerfile(?:[.-][\w.-]*)?",
    re.IGNORECASE,
)
# Files that use a converter made elsewhere, or names imported there, show it by these words only.
_NAMES = b"make_torch_dataloader|make_tf_dataset|make_spark_converter|SparkDatasetConverter"
_WORDS = {
    Destination.BRIDGE: re.compile(b"petastorm", re.IGNORECASE),
    Destination.STREAMING: re.compile(b"petastorm|" + _NAMES, re.IGNORECASE),
}


def is_dependency_file(path: str) -> bool:
    """Say by its name whether a file lists dependencies; ``setup.py`` does, and is Python too."""
    folder, name = os.path.split(path)
    in_folder = os.path.basename(folder).lower() == "requirements" and name.endswith(".txt")
    return in_folder or _DEPENDENCY.fullmatch(name) is not None


def find_files(paths: Iterable[str], exclude: Iterable[str] = ()) -> Iterator[str]:
    """Yield the files to look at, each once, in a stable order.

    Files that are named are taken whatever ``.gitignore`` and their names say. Links in directories
    are not followed: what they lead to is found where it is, or is none of the directory's.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    seen: set[str] = set()
    patterns = tuple(exclude)
    for path in paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"no such file or directory: {path}")
        found = _walk(path, for_directory(path), patterns) if os.path.isdir(path) else [path]
        for file in found:
            identity = os.path.realpath(file)
            if identity not in seen:
                seen.add(identity)
                yield file


def _walk(directory: str, ignores: Ignores, exclude: tuple[str, ...]) -> Iterator[str]:
    folders: list[os.DirEntry[str]] = []
    absolute = os.path.abspath(directory)
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if any(
            fnmatch.fnmatch(entry.name, pattern) or fnmatch.fnmatch(entry.path, pattern)
            for pattern in exclude
        ):
            continue
        folder = entry.is_dir(follow_symlinks=False)
        if not folder and not _is_wanted(entry):
            continue
        if ignores.match(os.path.join(absolute, entry.name), is_directory=folder):
            continue
        if not folder:
            yield entry.path
        elif entry.name not in _SKIPPED:
            folders.append(entry)
    for entry in folders:
        own = ignores.enter(os.path.join(absolute, entry.name))
        yield from _walk(entry.path, own, exclude)


def _is_wanted(entry: os.DirEntry[str]) -> bool:
    known = entry.name.endswith(_SUFFIXES) or is_dependency_file(entry.path)
    return known and entry.is_file(follow_symlinks=False)


def concerns(data: bytes, destination: Destination) -> bool:
    """Say whether a file's bytes hold any word that a rule could act on."""
    return _WORDS[destination].search(data) is not None


def repository_of(path: str) -> str | None:
    """Return the top of the Git repository that a file is in; None outside of one."""
    directory = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(os.path.join(directory, ".git")):
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above
    return directory


def petastorm_around(path: str) -> str:
    """Return the directory of Petastorm's own package that a file is in; empty if it is in none."""
    directory = os.path.dirname(os.path.abspath(path))
    while os.path.dirname(directory) != directory:
        above = os.path.dirname(directory)
        if (
            os.path.basename(directory) == "petastorm"
            and not os.path.exists(os.path.join(above, "__init__.py"))
            and all(
                os.path.exists(os.path.join(directory, name))
                for name in ("__init__.py", "unischema.py")
            )
        ):
            return directory
        directory = above
    return ""
