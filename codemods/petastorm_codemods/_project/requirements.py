"""Where requirements stand in files and commands.

They are texts of PEP 508, wherever they stand: lines of requirements files, values of ``setup.cfg``, strings
of ``pyproject.toml`` and ``setup.py``, items of conda's ``pip:`` lists, and words of commands in notebooks and
programs. `packaging` says what each of them requires.
"""

from __future__ import annotations

import bisect
import enum
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from petastorm_codemods._model import Edit

from .listing import is_dependency_file


class Form(enum.Enum):
    """How a requirement is written, and so how another one is written beside it."""

    LINE = "a line, or an item of pip's list in one of conda's"
    STRING = "a quoted string among others"
    CONDA = "an item that conda reads"
    WORD = "a word of a command"
    CONDA_WORD = "a word of a command of conda's"


@dataclass(frozen=True)
class Entry:
    """One requirement in a file.

    Attributes:
        requirement: What the text says.
        start: Where it starts, in characters of the file's text.
        end: Where name, extras and limits or address end; the marker follows.
        form: How it is written.
    """

    requirement: Requirement
    start: int
    end: int
    form: Form

    @property
    def name(self) -> str:
        """Canonical name of what is required."""
        return canonicalize_name(self.requirement.name)

    @property
    def limits(self) -> SpecifierSet:
        """Its limits, or the version that the name of a wheel in its address tells."""
        address = self.requirement.url or ""
        try:
            wheel = parse_wheel_filename(unquote(re.split(r"[#?]", address)[0].rpartition("/")[2]))
        except (InvalidWheelFilename, InvalidVersion):
            return self.requirement.specifier
        return SpecifierSet(f"=={wheel[1]}")


# What a requirement may stand in, by the format of the file; `packaging` says whether it is one.
_BODY = r"(?P<text>[A-Za-z0-9](?:(?:[ \t]+(?!#|--))?[^ \t\r\n])*)"
_END = r"[ \t]*(?=[ \t](?:#|--)|\r|$)"
_LINE = re.compile(rf"^[ \t]*{_BODY}{_END}", re.MULTILINE)
# A key at the start of a line, and a value beside it or below.
_VALUE = re.compile(
    r"^(?=(?P<list>[\w.\[-]+)?)"
    rf"(?:(?:(?:deps|install_requires)[ \t]*=[ \t]*|[ \t]+){_BODY}{_END})?",
    re.MULTILINE,
)
_ITEM = re.compile(
    rf"^(?P<indent>[ \t]*)-[ \t]+(?P<quote>['\"]?){_BODY}(?P=quote){_END}", re.MULTILINE
)
# A comment, where a list begins or ends, or a string; one that is a key or the value of one, such as a name, is told
# by what is around it.
_STRING = re.compile(
    r"(?:^|[ \t])#[^\r\n]*"
    r"|(?P<list>(?<![\w-])[\w-]+(?=[\"']?[ \t]*=[ \t]*\[)|\])"
    r"|(?P<key>=[ \t]*)?(?P<quote>['\"])(?P<text>(?:(?!(?P=quote))[^\\\r\n])*)(?P=quote)(?P<colon>[ \t]*[:=])?",
    re.MULTILINE,
)
# Lists of modules, folders and words.
_NO_REQUIREMENTS = re.compile(
    r"classifiers|exclude|files|include|keywords|known[-_][\w-]+|modules?|(?:namespace[-_])?packages|provides|"
    r"py[-_]modules|source|src|testpaths",
    re.IGNORECASE,
)
_PIP = re.compile(r"^(?P<indent>[ \t]*)-[ \t]+pip[ \t]*:[ \t]*\r?$", re.MULTILINE)


def parsed(text: str, *, conda: bool = False) -> Requirement | None:
    """Return what a text requires; None if it is no requirement.

    Args:
        text: The text.
        conda: Whether conda reads it, whose ``name=1.2`` is any 1.2.
    """
    if conda:
        text = re.sub(r"^([\w.-]+)[ \t]*=[ \t]*(\d[\d.]*)(?:\.?\*|=.*)?$", r"\1==\2.*", text)
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def entries(path: str, text: str) -> list[Entry]:
    """Return the requirements of a file in the order of the text; its name tells the format."""
    return sorted(_entries(path, text), key=lambda entry: entry.start)


def _entries(path: str, text: str) -> Iterator[Entry]:
    name = os.path.basename(path).lower()
    if name.endswith((".txt", ".in")):
        yield from _matched(_LINE, text, Form.LINE)
    elif name.endswith((".toml", ".py")):
        yield from _matched(_STRING, text, Form.STRING)
    elif name.endswith((".yml", ".yaml")) and is_dependency_file(path):
        yield from _of_conda(text)
    elif name.endswith((".cfg", ".ini")):
        yield from _matched(_VALUE, text, Form.LINE)
        yield from installed(text)
    else:
        yield from installed(text)


def _matched(pattern: re.Pattern[str], text: str, form: Form) -> Iterator[Entry]:
    around = ""
    for match in pattern.finditer(text):
        groups = match.groupdict()
        around = groups.get("list") or around
        if not groups["text"] or groups.get("key") or groups.get("colon"):
            continue
        if not _NO_REQUIREMENTS.fullmatch(around):
            yield from _entry(match["text"], match.start("text"), form)


def _of_conda(text: str) -> Iterator[Entry]:
    sections = [(match.end(), len(match["indent"])) for match in _PIP.finditer(text)]
    ends = [end for end, _ in sections]
    for match in _ITEM.finditer(text):
        above = bisect.bisect_right(ends, match.start())
        pip = above > 0 and sections[above - 1][1] < len(match["indent"])
        form = Form.LINE if pip else Form.CONDA
        yield from _entry(match["text"], match.start("text"), form)


def _entry(text: str, start: int, form: Form) -> Iterator[Entry]:
    requirement = parsed(text, conda=form in {Form.CONDA, Form.CONDA_WORD})
    if requirement is not None:
        before_marker = re.split(r"\s+;" if requirement.url else r"\s*;", text, maxsplit=1)[0]
        start += len(before_marker) - len(before_marker.lstrip())
        yield Entry(requirement, start, start + len(before_marker.strip()), form)


# Commands.

_INSTALL = re.compile(
    r"\b(?P<tool>pip[\d.]*|uv|conda|mamba|poetry|pdm)\b(?:(?!&&|;|\|).){0,200}?\b(?:install|add)\b",
    re.DOTALL,
)
_COMMAND = re.compile(r"(?:[^&|;'\"]|'[^']*'|\"[^\"]*\"|['\"])+")
_WORD = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")


def installed(text: str, start: int = 0, end: int | None = None) -> Iterator[Entry]:
    """Yield the requirements in the commands of some lines that install packages.

    A line goes on behind a backslash, and is no command behind ``#``.
    """
    for line in re.finditer(r"(?:[^\\\r\n]|\\(?:\r\n|[\s\S]))+", text[start:end]):
        plain = re.sub(r"\\\r?\n|\\\r", lambda match: " " * len(match[0]), line[0])
        for command in _COMMAND.finditer(re.split(r"(?:^|\s)#(?! MAGIC\b)", plain, maxsplit=1)[0]):
            install, form = _INSTALL.search(command[0]), form_of(command[0])
            if install and form:
                at = start + line.start() + command.start() + install.end()
                yield from words_of(command[0][install.end() :], at, form)


def words_of(text: str, start: int, form: Form) -> Iterator[Entry]:
    """Yield the requirement that the arguments of a command are, or those among them.

    Args:
        text: The arguments.
        start: Where they start in the file.
        form: How the command takes them.
    """
    whole = [*_entry(text, start, form)]
    yield from whole
    for word in _WORD.finditer(text) if not whole else ():
        quoted = word[0][:1] in {"'", '"'} and word[0][:1] == word[0][-1:]
        body = word[0][1:-1] if quoted else word[0]
        yield from _entry(body, start + word.start() + quoted, form)


def form_of(command: str) -> Form | None:
    """Return how a command that installs packages takes them; None if it installs none."""
    install = _INSTALL.search(command)
    if install is None:
        return None
    return Form.CONDA_WORD if install["tool"] in {"conda", "mamba"} else Form.WORD


def as_word(text: str, entry: Entry, package: Requirement) -> str:
    """Return a requirement as a word of a command, in the place of another one.

    An address needs no spaces around its ``@``. What a shell would read as something else is put into quotes: into
    those that are not around the command already.
    """
    word = str(package).replace(" @ ", "@")
    before = text[text.rfind("\n", 0, entry.start) + 1 : entry.start]
    if before[-1:] in {"'", '"'} and before[-1:] == text[entry.end : entry.end + 1]:
        return word
    quote = '"' if before.count("'") % 2 else "'"
    return f"{quote}{word}{quote}" if re.search(r"[<>;&|*!$()\s]", word) else word


def added_word(text: str, entry: Entry, package: Requirement) -> Edit | None:
    """Return the edit that installs another requirement beside one; None if the line has it already."""
    line = text[text.rfind("\n", 0, entry.start) + 1 :].partition("\n")[0]
    if package.name in line:
        return None
    word = as_word(text, entry, package)
    quote = text[entry.end : entry.end + 1]
    if quote not in {"'", '"'} or text[entry.start - 1] != quote:
        return Edit(entry.end, entry.end, f" {word}")
    # A word of its own, of the shell's or in a list of strings.
    comma = "," if text[entry.end + 1 : entry.end + 2] in {",", "]", ")"} else ""
    return Edit(entry.end + 1, entry.end + 1, f"{comma} {quote}{word}{quote}")
