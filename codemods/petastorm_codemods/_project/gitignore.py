"""What Git lists in a directory; where it cannot be asked, what ``.gitignore`` files leave of it."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

# Git matches patterns of many stars as slowly as any: it takes hours for a line that is made for it.
_SECONDS = 30
# More stars than this in one pattern, and a long name takes seconds to match.
_MOST_STARS = 4


def listed_by_git(directory: str) -> list[str] | None:
    """Return what Git tracks or does not ignore in a directory, as paths relative to it.

    Submodules and repositories within are one entry each, which is a directory.

    Returns:
        None where it cannot be asked: outside of a repository, in one that is broken or not
        trusted, without the command, and if it takes too long.
    """
    if repository_above(directory) is None:
        return None
    # What a repository configures may be a command to run; what hooks set is another directory's.
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
            env=kept,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name})


def repository_above(directory: str) -> str | None:
    """Return the top of the Git repository that a directory is in; None outside of one."""
    found = os.path.abspath(directory)
    while not os.path.exists(os.path.join(found, ".git")):
        above = os.path.dirname(found)
        if above == found:
            return None
        found = above
    return found


@dataclass(frozen=True)
class Ignores:
    """The patterns that hold in one directory, its parents' included.

    Attributes:
        directory: Absolute path of the directory with the last file.
        patterns: Its patterns.
        above: The patterns of the directories above.
    """

    directory: str = ""
    patterns: GitIgnoreSpec | None = None
    above: Ignores | None = None

    def enter(self, directory: str) -> Ignores:
        """Return the patterns that hold within a directory."""
        path = os.path.join(directory, ".gitignore")
        if not os.path.isfile(path):
            return self  # none, or a pipe, which reading would wait for
        try:
            with open(path, encoding="utf-8-sig") as file, warnings.catch_warnings():
                # Of classes like [[:digit:]], which are none in Python's patterns.
                warnings.simplefilter("ignore", FutureWarning)
                lines = [line for line in file if len(re.findall(r"\*+", line)) <= _MOST_STARS]
                return Ignores(directory, GitIgnoreSpec.from_lines(lines), self)
        except (OSError, ValueError):
            return self

    def match(self, path: str, *, is_directory: bool) -> bool:
        """Say whether Git would ignore an absolute path within the directory."""
        if self.patterns is not None:
            relative = os.path.relpath(path, self.directory) + "/" * is_directory
            ignored = self.patterns.check_file(relative).include
            if ignored is not None:
                return ignored
        return self.above is not None and self.above.match(path, is_directory=is_directory)


def for_directory(directory: str) -> Ignores:
    """Return the patterns from the top of the Git repository down to a directory, inclusive."""
    absolute = os.path.abspath(directory)
    return functools.reduce(Ignores.enter, _downwards(absolute), Ignores())


def _downwards(directory: str) -> Iterator[str]:
    """Yield the directories from the top of the repository; the one alone if there is none."""
    top = repository_above(directory) or directory
    inner = os.path.relpath(directory, top)
    parts = [] if inner == os.curdir else inner.split(os.sep)
    yield top
    for number in range(len(parts)):
        yield os.path.join(top, *parts[: number + 1])
