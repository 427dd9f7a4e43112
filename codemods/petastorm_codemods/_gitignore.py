"""``.gitignore`` files, after https://git-scm.com/docs/gitignore."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class _Pattern:
    regex: re.Pattern[str]
    ignores: bool
    directories_only: bool


@dataclass(frozen=True)
class Ignores:
    """The patterns that hold in one directory, its parents' included.

    Attributes:
        directory: Absolute path of the directory with the last file.
        patterns: Its patterns.
        above: The patterns of the directories above.
    """

    directory: str = ""
    patterns: tuple[_Pattern, ...] = ()
    above: Ignores | None = None

    def enter(self, directory: str) -> Ignores:
        """Return the patterns that hold within a directory; a nested repository starts anew."""
        try:
            with open(os.path.join(directory, ".gitignore"), encoding="utf-8") as file:
                patterns = tuple(_patterns(file))
        except (OSError, UnicodeDecodeError):
            return self
        return Ignores(directory, patterns, self) if patterns else self

    def match(self, path: str, *, is_directory: bool) -> bool:
        """Say whether Git would ignore an absolute path within the directory."""
        relative = os.path.relpath(path, self.directory) if self.patterns else ""
        for pattern in reversed(self.patterns):
            if pattern.directories_only and not is_directory:
                continue
            if pattern.regex.fullmatch(relative.replace(os.sep, "/")):
                return pattern.ignores
        return self.above is not None and self.above.match(path, is_directory=is_directory)


def for_directory(directory: str) -> Ignores:
    """Return the patterns from the top of the Git repository down to a directory, inclusive."""
    chain = [os.path.abspath(directory)]
    while not os.path.exists(os.path.join(chain[-1], ".git")):
        above = os.path.dirname(chain[-1])
        if above == chain[-1]:
            return Ignores().enter(chain[0])  # no repository: only the directory's own file counts
        chain.append(above)
    found = Ignores()
    for each in reversed(chain):
        found = found.enter(each)
    return found


def _patterns(lines: Iterable[str]) -> Iterable[_Pattern]:
    for line in lines:
        text = line.rstrip("\n").rstrip("\r")
        text = re.sub(r"(?<!\\)[ \t]+$", "", text)
        if not text or text.startswith("#"):
            continue
        ignores = not text.startswith("!")
        text = text.removeprefix("!")
        directories_only = text.endswith("/")
        text = text.rstrip("/")
        anchored = "/" in text
        body = _regex(text.lstrip("/"))
        if body is not None:
            regex = body if anchored else rf"(?:.*/)?{body}"
            yield _Pattern(re.compile(regex), ignores, directories_only)


def _regex(glob: str) -> str | None:
    parts = re.findall(r"/\*\*/|\*\*/|/\*\*|\*+|\?|\[!?\]?[^\]]*\]|\\.|.", glob)
    table = {"/**/": "/(?:.*/)?", "**/": "(?:.*/)?", "/**": "/.*", "?": "[^/]"}
    out = []
    for part in parts:
        if part in table:
            out.append(table[part])
        elif part.startswith("*"):
            out.append("[^/]*")
        elif part.startswith("[") and len(part) > 1:
            out.append("[" + part[1:-1].replace("!", "^", 1).replace("\\", "\\\\") + "]")
        else:
            out.append(re.escape(part[-1]))
    text = "".join(out)
    try:
        re.compile(text)
    except re.error:
        return None
    return text
