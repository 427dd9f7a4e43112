"""Finding the files of a run, and passing over those that cannot concern it without parsing them."""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator

from petastorm_codemods._model import Destination

from .gitignore import Ignores, for_directory, listed_by_git, repository_above

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
    r"(?:conda[\w.-]*|environment[\w.-]*)\.ya?ml|(?:[\w.-]*\.)?Dockerfile(?:[._-][\w.-]*)?",
    re.IGNORECASE,
)
_SETS_UP = re.compile(rb"\b(?:setuptools|distutils|skbuild)\b|\bsetup[ \t]*\(")
# Lock files, which their tools write, and whatever else may install packages.
_LOCK = re.compile(
    r"(?:[\w.-]*\.)?(?:poetry|uv|pdm|pixi|conda(?:-[\w-]+)*|Pipfile|pylock(?:\.[\w-]+)?)[.-]"
    r"(?:lock|lock\.ya?ml|lock\.toml)|pylock(?:\.[\w-]+)?\.toml",
    re.IGNORECASE,
)
_OTHER = re.compile(
    r"Pipfile|Makefile|Justfile|Jenkinsfile|Vagrantfile|Containerfile|"
    r"[\w.-]+\.(?:sh|bash|zsh|ps1|bat|cmd|mk|ya?ml|json|toml|cfg|ini|lock|tf)",
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


def is_program_named_setup(path: str, data: bytes) -> bool:
    """Say whether a ``setup.py`` sets up no package: a notebook or a program that others run."""
    return os.path.basename(path) == "setup.py" and not _SETS_UP.search(data)


def is_lock_file(path: str) -> bool:
    """Say by its name whether a file is a lock that a tool writes."""
    return _LOCK.fullmatch(os.path.basename(path)) is not None


def is_other_file(path: str) -> bool:
    """Say by its name whether a file may install packages although it lists no dependencies."""
    return _OTHER.fullmatch(os.path.basename(path)) is not None or is_lock_file(path)


def find_files(paths: Iterable[str], exclude: Iterable[str] = ()) -> Iterator[str]:
    """Yield the files to look at, each once, in a stable order.

    Files that are named are taken whatever ``.gitignore`` and their names say. Links in directories
    are not followed: what they lead to is found where it is, or is none of the directory's.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    seen: set[str] = set()
    patterns = tuple(pattern.removeprefix("./") for pattern in exclude)
    for path in paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"no such file or directory: {path}")
        found = _in_directory(path, patterns) if os.path.isdir(path) else [path]
        for file in found:
            identity = os.path.realpath(file)
            if identity not in seen:
                seen.add(identity)
                yield os.path.normpath(file)


def _in_directory(directory: str, exclude: tuple[str, ...]) -> Iterator[str]:
    names = listed_by_git(directory)
    if names is None:
        yield from _walk(directory, for_directory(directory), exclude)
        return
    passed = _Passed(directory, exclude)
    for name in names:
        path = os.path.join(directory, name)
        if passed(os.path.dirname(name.rstrip("/"))) or _is_excluded(path, exclude):
            continue
        if name.endswith("/") or (os.path.isdir(path) and not os.path.islink(path)):
            if not passed(name.rstrip("/")):  # a repository within, or a submodule
                yield from _in_directory(path.rstrip("/"), exclude)
        elif is_wanted(path) and stat.S_ISREG(_mode(path)):
            yield path


class _Passed:
    """Says of folders in a directory whether what Git lists there is passed over.

    Git lists what it tracks, also where a link has taken a folder's place since.
    """

    def __init__(self, directory: str, exclude: tuple[str, ...]) -> None:
        self._directory = directory
        self._exclude = exclude
        self._known = {"": False}

    def __call__(self, folder: str) -> bool:
        if folder not in self._known:
            path = os.path.join(self._directory, folder)
            self._known[folder] = (
                self(os.path.dirname(folder))
                or os.path.basename(folder) in _SKIPPED
                or _is_excluded(path, self._exclude)
                or os.path.islink(path)
            )
        return self._known[folder]


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:  # tracked, and deleted since
        return 0


def _is_excluded(path: str, exclude: tuple[str, ...]) -> bool:
    path = os.path.normpath(path)
    name = os.path.basename(path)
    return any(fnmatch.fnmatch(name, each) or fnmatch.fnmatch(path, each) for each in exclude)


def _walk(directory: str, ignores: Ignores, exclude: tuple[str, ...]) -> Iterator[str]:
    folders: list[os.DirEntry[str]] = []
    absolute = os.path.abspath(directory)
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        folder = entry.is_dir(follow_symlinks=False)
        if not folder and not (is_wanted(entry.path) and entry.is_file(follow_symlinks=False)):
            continue
        if _is_excluded(entry.path, exclude):
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


def is_wanted(path: str) -> bool:
    """Say by its name whether a file is looked into."""
    return path.endswith(_SUFFIXES) or is_dependency_file(path) or is_other_file(path)


def concerns(data: bytes, destination: Destination) -> bool:
    """Say whether a file's bytes hold any word that a rule could act on."""
    return _WORDS[destination].search(data) is not None


def repository_of(path: str) -> str | None:
    """Return the top of the Git repository that a file is in; None outside of one."""
    return repository_above(os.path.dirname(os.path.abspath(path)))


def tops_of(paths: Iterable[str]) -> Callable[[str], str]:
    """Return what gives the highest directory that modules of a file's project are in.

    That is the top of its repository; outside of one, of the paths that a run was asked for.
    """
    given = [os.path.abspath(path) for path in paths]
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in given]

    def top(path: str) -> str:
        here = os.path.abspath(path)
        around = [each for each in folders if here.startswith(each.rstrip(os.sep) + os.sep)]
        return repository_of(path) or min(around, key=len, default=os.path.dirname(here))

    return top


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
