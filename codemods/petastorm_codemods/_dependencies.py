"""Requirements on Petastorm in files that list dependencies, and in ``pip`` lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ._model import Destination, Edit, Target

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
    for line, at in _logical_lines(text, start, end):
        yield from _command_edits(line, at, package)


def is_install(words: str) -> bool:
    """Say whether a command line installs packages."""
    return _INSTALL.search(words) is not None


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


def file_edits(name: str, text: str, package: str) -> Iterator[Edit]:
    """Yield the edits of a file that lists dependencies, which its base name tells the format of."""
    lowered = name.lower()
    for line, at in _logical_lines(text, 0, len(text)):
        body = line.split("#")[0] if not lowered.endswith(".py") else line
        if "dockerfile" in lowered:
            yield from _command_edits(body, at, package)
        elif lowered.endswith((".toml", ".py", ".cfg")):
            yield from _quoted(lowered, body, at, package)
        else:
            yield from _edits(body, at, package)


_STRING = re.compile(r"(?P<quote>['\"])(?P<body>petastorm(?:(?!(?P=quote)).)*)(?P=quote)")
# What stands before a string that is a value of its own and no requirement.
_VALUE = re.compile(r"\s*[\w.\"-]+\s*=\s*\Z|.*\bname\s*=\s*\Z")
_TOML_KEY = re.compile(r"(?P<key>petastorm)\s*=\s*(?P<value>['\"][^'\"]*['\"]|\{[^{}]*\})")


def _quoted(name: str, line: str, at: int, package: str) -> Iterator[Edit]:
    """Requirements stand in quotes in TOML and Python, and on lines of their own in setup.cfg."""
    if name.endswith(".cfg"):
        stripped = line.lstrip()
        if stripped.startswith("petastorm") and line != stripped:
            yield from _edits(line, at, package)
        return
    for match in _STRING.finditer(line):
        whole = _REQUIREMENT.match(match["body"])
        # A marker may follow; anything else is not a requirement.
        rest = match["body"][whole.end() :].lstrip() if whole else "-"
        if _VALUE.match(line[: match.start()]):
            continue
        if whole and (not rest or rest.startswith(";")):
            begin = at + match.start("body")
            yield Edit(begin, begin + whole.end(), _replacement(whole, package))
    if name.endswith(".toml"):
        key = _TOML_KEY.match(line.lstrip())
        if key:  # Poetry: petastorm = "^0.12"
            begin = at + len(line) - len(line.lstrip())
            yield Edit(begin, begin + key.end(), _toml_entry(package))


def _toml_entry(package: str) -> str:
    name, _, extras = package.rstrip("]").partition("[")
    if not extras:
        return f'{name} = "*"'
    listed = ", ".join(f'"{extra}"' for extra in extras.split(","))
    return f'{name} = {{version = "*", extras = [{listed}]}}'


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
    name, _, own = package.partition("[")
    if name != BASE:
        return package
    asked = re.findall(r"[\w-]+", match["extras"] or "")
    extras = {_EXTRAS[extra] for extra in asked if extra in _EXTRAS} | {*re.findall(r"\w+", own)}
    return f"{name}[{','.join(sorted(extras))}]" if extras else name


def package_for(destination: Destination, target: Target) -> str:
    """Return the requirement that takes the place of Petastorm's."""
    return target.package if destination is Destination.STREAMING else BASE


def is_conda_command(text: str, offset: int) -> bool:
    """Say whether the line that a requirement stands in, up to there, is a command of conda's."""
    *_, (line, _) = _logical_lines(text, 0, offset)
    return by_conda(line)


def by_conda(words: str) -> bool:
    """Say whether the last command of a line that installs packages is conda's, or mamba's."""
    install = _INSTALL.search(words)
    last = re.split(r"&&|;|\|", install.group())[-1] if install else ""
    return re.match(r"\W*(?:conda|mamba)\b", last) is not None


def is_conda_entry(path: str, text: str, offset: int) -> bool:
    """Say whether a requirement in a conda environment is conda's own, not one below ``pip:``."""
    if not path.endswith((".yml", ".yaml")):
        return False
    sections = list(re.finditer(r"^([ ]*)-[ ]*pip[ ]*:[ ]*\r?$", text[:offset], re.MULTILINE))
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return not sections or len(line) - len(line.lstrip()) <= len(sections[-1][1])


def _logical_lines(text: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Yield lines with the lines that a backslash continues them with, and where they start."""
    for match in re.finditer(r"(?:[^\\\r\n]|\\(?:\r\n|[\s\S]))+", text[start:end]):
        yield match.group(), start + match.start()
