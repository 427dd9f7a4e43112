"""Which files a run looks at, what each is by its name, and the repository around it; none is read here."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator

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
# Texts for people, and notebooks of Databricks whose own language is not Python.
_TEXTS = (".md", ".mdx", ".qmd", ".rmd", ".rst", ".r", ".scala", ".sql")
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
# Git matches patterns of many stars as slowly as any: it takes hours for a line that is made for it.
_SECONDS = 30


def is_dependency_file(path: str) -> bool:
    """Say by its name whether a file lists dependencies; ``setup.py`` does, and is Python too."""
    folder, name = os.path.split(path)
    in_folder = os.path.basename(folder).lower() == "requirements" and name.endswith(
        (".txt", ".in")
    )
    return in_folder or _DEPENDENCY.fullmatch(name) is not None


def is_lock_file(path: str) -> bool:
    """Say by its name whether a file is a lock that a tool writes."""
    return _LOCK.fullmatch(os.path.basename(path)) is not None


def is_other_file(path: str) -> bool:
    """Say by its name whether a file may install packages although it lists no dependencies."""
    return _OTHER.fullmatch(os.path.basename(path)) is not None or is_lock_file(path)


def is_program(path: str) -> bool:
    """Say by its name whether a file is a module or a notebook."""
    return path.endswith(_SUFFIXES)


def is_text(path: str) -> bool:
    """Say by its name whether a file may show code that is not rewritten in it."""
    return path.lower().endswith(_TEXTS)


def is_wanted(path: str) -> bool:
    """Say by its name whether a file is looked into."""
    return is_program(path) or is_dependency_file(path) or is_other_file(path) or is_text(path)


def find_files(paths: Iterable[str], exclude: Iterable[str] = ()) -> Iterator[str]:
    """Yield the files to look at, each once, in a stable order.

    In a Git repository those that Git lists; elsewhere, and where it cannot be asked, all. Files that are named are
    taken whatever their names and ``.gitignore`` say. Links in directories are not followed: what they lead to is
    found where it is, or is none of the directory's.

    Raises:
        FileNotFoundError: A path does not exist.
    """
    seen: set[str] = set()
    patterns = tuple(pattern.removeprefix("./") for pattern in exclude)
    for path in paths:
        if not os.path.exists(path):
            raise FileNotFoundError(f"no such file or directory: {shlex.quote(path)}")
        files = _in_directory(path, patterns) if os.path.isdir(path) else [path]
        for file in files:
            identity = os.path.realpath(file)
            if identity not in seen:
                seen.add(identity)
                yield os.path.normpath(file)


def _in_directory(directory: str, exclude: tuple[str, ...]) -> Iterator[str]:
    @functools.cache
    def passed(folder: str) -> bool:
        """Say whether a folder is passed over; Git lists what it tracks, also where a link has taken its place since."""
        path = os.path.join(directory, folder)
        return bool(folder) and (
            passed(os.path.dirname(folder))
            or os.path.basename(folder) in _SKIPPED
            or _is_excluded(path, exclude)
            or os.path.islink(path)
        )

    names = _listed_by_git(directory)
    for name in _listed_by_walking(directory, passed) if names is None else names:
        path = os.path.join(directory, name)
        if passed(os.path.dirname(name.rstrip("/"))) or _is_excluded(path, exclude):
            continue
        if name.endswith("/") or (os.path.isdir(path) and not os.path.islink(path)):
            if not passed(name.rstrip("/")):  # a repository within, or a submodule
                yield from _in_directory(path.rstrip("/"), exclude)
        elif is_wanted(path) and stat.S_ISREG(_mode(path)):
            yield path


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:  # tracked, and deleted since
        return 0


def _is_excluded(path: str, exclude: tuple[str, ...]) -> bool:
    # Patterns of a pyproject.toml are absolute, whatever paths a run is given.
    names = (
        {os.path.basename(path), os.path.normpath(path), os.path.abspath(path)} if exclude else ()
    )
    return any(fnmatch.fnmatch(name, each) for name in names for each in exclude)


def _listed_by_walking(directory: str, is_passed: Callable[[str], bool]) -> Iterator[str]:
    for folder, folders, files in os.walk(directory):
        inner = os.path.relpath(folder, directory) if folder != directory else ""
        folders[:] = sorted(name for name in folders if not is_passed(os.path.join(inner, name)))
        yield from (os.path.join(inner, name) for name in sorted(files))


def _listed_by_git(directory: str) -> list[str] | None:
    """Return what Git tracks or does not ignore in a directory, as paths relative to it.

    Submodules and repositories within are one entry each, which is a directory.

    Returns:
        None where it cannot be asked: outside of a repository, in one that is broken or not
        trusted, without the command, and if it takes too long.
    """
    if repository_above(directory) is None:
        return None
    # What a repository configures may be a command to run, also where objects are missing that a remote has;
    # what hooks set is another directory's.
    options = ("-c", "core.fsmonitor=false", "--no-optional-locks", "-C", directory)
    ask = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - the command is our own
            ["git", *options, *ask],  # noqa: S607 - whatever Git the user has
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            env={**kept, "GIT_ALLOW_PROTOCOL": ""},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def repository_above(directory: str) -> str | None:
    """Return the top of the Git repository that a directory is in; None outside of one."""
    folders = upwards(os.path.abspath(directory))
    return next((each for each in folders if os.path.exists(os.path.join(each, ".git"))), None)


def upwards(folder: str) -> Iterator[str]:
    """Yield a folder and those above it, as far as its path says."""
    yield folder
    while folder and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        yield folder


def repository_of(path: str) -> str | None:
    """Return the top of the Git repository that a file is in; None outside of one."""
    return repository_above(os.path.dirname(os.path.abspath(path)))


def tops_of(paths: Iterable[str]) -> Callable[[str], str]:
    """Return what gives the highest directory that modules of a file's project are in.

    That is the top of its repository; outside of one, of the paths that a run was asked for.
    """
    given = [os.path.abspath(path) for path in paths]
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in given]

    @functools.cache
    def top(folder: str) -> str:
        inner = os.path.join(folder, "")
        around = [each for each in folders if inner.startswith(os.path.join(each, ""))]
        return repository_above(folder) or min(around, key=len, default=folder)

    return lambda path: top(os.path.dirname(os.path.abspath(path)))
