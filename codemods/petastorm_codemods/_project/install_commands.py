"""Commands that install Petastorm, and what takes its place there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from petastorm_codemods._model import Destination, Edit, Target

CODE = "PM010"

# A requirement as in PEP 508, or conda's `petastorm=0.11`; not part of a longer name, path or URL.
_REQUIREMENT = re.compile(
    r"(?<![\w./@#-])petastorm(?P<extras>\s*\[[^\]\n]*\])?"
    r"(?P<versions>\s*\(?(?:===|==|~=|!=|<=|>=|=|<|>)\s*[\w.*+!]+"
    r"(?:\s*,\s*(?:==|~=|!=|<=|>=|<|>)\s*[\w.*+!]+)*\)?)?(?![\w.\[-])(?!\s*/)"
)
_INSTALL = re.compile(r"\b(?:pip[\d.]*|uv|conda|mamba|poetry|pdm)\b.*\b(?:install|add)\b")
# petastorm's extras: https://github.com/uber/petastorm/blob/v0.13.1/setup.py
_EXTRAS = {"tf": "tensorflow", "tf_gpu": "tensorflow", "torch": "streaming"}
BASE = "petastorm-bridge"


def install_edits(text: str, start: int, end: int, package: str) -> Iterator[Edit]:
    """Yield the edits of the lines between two positions that install Petastorm."""
    for line, at in logical_lines(text, start, end):
        yield from _command_edits(line, at, package)


def is_install(words: str) -> bool:
    """Say whether a command line installs packages."""
    return _INSTALL.search(words) is not None


def install_at(words: str) -> int | None:
    """Return where the arguments start of a command line that installs packages; else None."""
    install = _INSTALL.search(words)
    return install.end() if install else None


def word_edits(text: str, start: int, end: int, package: str) -> Iterator[Edit]:
    """Yield the edits of words of such a command, which stand between two positions."""
    yield from _edits(text[start:end], start, package)


def joined(text: str, edit: Edit) -> Edit | None:
    """Return the edit that leaves a requirement and adds the new one; None if that is there.

    Args:
        text: The text of the source.
        edit: Replaces the one by the other.
    """
    line = text[text.rfind("\n", 0, edit.start) + 1 :].partition("\n")[0]
    if edit.text.partition("[")[0] in line:
        return None
    quote = text[edit.end : edit.end + 1]
    if quote not in {"'", '"'} or text[edit.start - 1] != quote:
        return Edit(edit.end, edit.end, f" {edit.text}")
    # A word of its own, of the shell's or in a list.
    comma = "," if text[edit.end + 1 : edit.end + 2] in {",", "]", ")"} else ""
    return Edit(edit.end + 1, edit.end + 1, f"{comma} {quote}{edit.text}{quote}")


def _command_edits(line: str, at: int, package: str) -> Iterator[Edit]:
    """Yield the edits of the arguments of commands that install packages."""
    for command in re.finditer(r"(?:[^&|;'\"]|'[^']*'|\"[^\"]*\"|['\"])+", line):
        install = _INSTALL.search(command.group())
        if install:
            rest = command.start() + install.end()
            yield from _edits(line[rest : command.end()], at + rest, package)


def _edits(line: str, at: int, package: str) -> Iterator[Edit]:
    for match in _REQUIREMENT.finditer(line):
        text = _replacement(match, package)
        yield Edit(at + match.start(), at + match.end(), text)


def _replacement(match: re.Match[str], package: str) -> str:
    asked = frozenset(re.findall(r"[\w-]+", match["extras"] or ""))
    return with_extras(package, asked)


def with_extras(package: str, asked: frozenset[str]) -> str:
    """Return a requirement with extras in place of some of Petastorm's."""
    name, _, own = package.partition("[")
    if name != BASE:
        return package
    extras = {_EXTRAS[extra] for extra in asked if extra in _EXTRAS} | {*re.findall(r"\w+", own)}
    return f"{name}[{','.join(sorted(extras))}]" if extras else name


def package_for(destination: Destination, target: Target) -> str:
    """Return the requirement that takes the place of Petastorm's."""
    return target.package if destination is Destination.STREAMING else BASE


def is_conda_command(text: str, offset: int) -> bool:
    """Say whether the line that a requirement stands in, up to there, is a command of conda's."""
    *_, (line, _) = logical_lines(text, 0, offset)
    return by_conda(line)


def by_conda(words: str) -> bool:
    """Say whether the last command of a line that installs packages is conda's, or mamba's."""
    install = _INSTALL.search(words)
    last = re.split(r"&&|;|\|", install.group())[-1] if install else ""
    return re.match(r"\W*(?:conda|mamba)\b", last) is not None


def logical_lines(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[str, int]]:
    """Yield lines with the lines that a backslash continues them with, and where they start."""
    for match in re.finditer(r"(?:[^\\\r\n]|\\(?:\r\n|[\s\S]))+", text[start:end]):
        yield match.group(), start + match.start()
