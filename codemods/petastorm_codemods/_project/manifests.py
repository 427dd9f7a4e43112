"""The requirements that stand in files, whatever the files' format, and where they stand."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from .files import is_dependency_file
from .flow_lists import flow_items
from .install_commands import by_conda, install_at, logical_lines

_OPERATOR = r"(?:===|==|~=|!=|<=|>=|=|<|>)"
_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_REQUIREMENT = (
    rf"(?P<name>{_NAME})(?P<extras>\s*\[[^\]\n]*\])?"
    rf"(?P<versions>\s*\(?{_OPERATOR}\s*[\w.*+!-]+(?:\s*,\s*{_OPERATOR}\s*[\w.*+!-]+)*\)?)?"
)
_MARKER = r"(?:\s*;(?P<marker>[^#\n]*?))?"
# A requirement that is all of a line, but for pip's options.
_LINE = re.compile(rf"\s*{_REQUIREMENT}{_MARKER}(?P<options>(?:\s*\\?\s*--[^#]*)*)\s*\Z")
_URL_LINE = re.compile(rf"\s*(?P<name>{_NAME})(?P<extras>\s*\[[^\]\n]*\])?\s*@\s*\S+")
# A wheel's name tells its version: name, version, perhaps a build, and three tags.
_WHEEL = re.compile(r"/[^/\s-]+-(?P<version>[^/\s-]+)-[^/\s#?]+\.whl(?=[#?]|\Z)")
_WHOLE = re.compile(rf"\s*{_REQUIREMENT}{_MARKER}\s*")
_WORD = re.compile(rf"(?<![\w./@#:=~<>!,\[-]){_REQUIREMENT}(?![\w.\[/@-])(?!\s*/)")
_STRING = re.compile(r"(?P<quote>['\"])(?P<body>(?:(?!(?P=quote))[^\\\n])*)(?P=quote)")
# What stands before a string that is a value of its own and no requirement.
_VALUE = re.compile(r"\s*[\w.\"-]+\s*=\s*\Z|.*\b(?:name|python_requires)\s*=\s*\Z")
_KEY = re.compile(
    rf"\s*(?P<name>\"?{_NAME}\"?)\s*=\s*(?P<value>['\"][^'\"\n]*['\"]|\{{[^{{}}\n]*\}})"
)
_TABLE = re.compile(r"\s*\[+\s*(?P<name>[^\]]+?)\s*\]+\s*(?:#.*)?\Z")
# Tables whose keys are the names of what is required: Poetry's, Pipenv's, Pixi's.
_NAMES_REQUIREMENTS = re.compile(r"(?:.*\.)?(?:dev-)?(?:dependencies|packages)")
_ITEM = re.compile(rf"(?P<indent>\s*)-\s+(?P<quote>['\"]?){_REQUIREMENT}(?P=quote)\s*\Z")
_PACKAGE = re.compile(
    rf"[\"']?package[\"']?\s*:\s*(?P<quote>['\"]?){_REQUIREMENT}(?P=quote)(?=[\s,}}]|\Z)"
)
_PIP_SECTION = re.compile(r"(?P<indent>\s*)-\s*pip\s*:\s*\Z")


class Form(enum.Enum):
    """How a requirement is written, and so how another one is written beside it."""

    LINE = "a line of its own"
    ITEM = "an item of a YAML list"
    CONDA = "an item that conda reads"
    FLOW = "an item without quotes of a YAML list in brackets"
    STRING = "a quoted string among others"
    KEY = "a key with its version"
    WORD = "a word of a command"
    CONDA_WORD = "a word of conda's command"
    PACKAGE = "the package of a cluster's library"
    ELSEWHERE = "a name with the place that it is installed from"


@dataclass(frozen=True)
class Entry:
    """One requirement in a file.

    Attributes:
        name: Canonical name of what is required.
        extras: Names of its extras.
        versions: Its limits as they are written, or as the wheel's name in an address gives them;
            empty if there are none.
        marker: Its environment marker; empty if there is none.
        start: Where it starts, in characters of the text.
        end: Where name, extras and limits end.
        line_end: Where the lines end that it stands in.
        form: How it is written.
        hashed: Whether pip is given hashes of it.
    """

    name: str
    extras: frozenset[str]
    versions: str
    marker: str
    start: int
    end: int
    line_end: int
    form: Form
    hashed: bool = False


def entries(path: str, text: str) -> list[Entry]:
    """Return the requirements of a file in the order of the text; its name tells the format."""
    return sorted(_entries(path, text), key=lambda entry: entry.start)


def _entries(path: str, text: str) -> Iterator[Entry]:
    name = os.path.basename(path).lower()
    table, pip_indent = "", -1
    if name.endswith((".yml", ".yaml")) and is_dependency_file(path):
        yield from _in_brackets(text)
    for line, at in logical_lines(text):
        body = _without_comment(line, name)
        if name.endswith((".txt", ".in")):
            yield from _on_line(body, at, line)
        elif name.endswith((".toml", ".py")) or name == "pipfile":
            found = _TABLE.match(line)
            table = found["name"] if found else table
            yield from _on_toml_line(body, at, line, table, keys=not name.endswith(".py"))
        elif name.endswith((".cfg", ".ini")):
            yield from _on_ini_line(body, at, line)
        elif name.endswith((".yml", ".yaml")) and is_dependency_file(path):
            section = _PIP_SECTION.match(body)
            pip_indent = len(section["indent"]) if section else pip_indent
            yield from _items(body, at, line, pip_indent)
        else:
            yield from commands(body, at)
            yield from _packages(body, at, line)


def _without_comment(line: str, name: str) -> str:
    if name.endswith((".py", ".json")):
        return line
    return re.split(r"(?:^|\s)#", line, maxsplit=1)[0]


def _entry(match: re.Match[str], at: int, line: str, begin: int, form: Form) -> Entry:
    groups = match.groupdict()
    return Entry(
        name=canonicalize_name(match["name"]),
        extras=frozenset(re.findall(r"[\w.-]+", match["extras"] or "")),
        versions=(groups.get("versions") or "").strip(),
        marker=(groups.get("marker") or "").strip(),
        start=at + match.start("name"),
        end=at + max(match.end("name"), match.end("extras"), match.end("versions")),
        line_end=begin + len(line),
        form=form,
        hashed="--hash" in (groups.get("options") or ""),
    )


def _on_line(body: str, at: int, line: str) -> Iterator[Entry]:
    match = _LINE.match(body)
    if match:
        yield _entry(match, at, line, at, Form.LINE)
        return
    match = _URL_LINE.match(body)
    if match:
        name, extras = canonicalize_name(match["name"]), frozenset[str]()
        start, end = at + match.start("name"), at + match.end()
        wheel = _WHEEL.search(match.group())
        versions = f"=={unquote(wheel['version'])}" if wheel else ""
        yield Entry(name, extras, versions, "", start, end, at + len(line), Form.ELSEWHERE)


def _on_toml_line(body: str, at: int, line: str, table: str, *, keys: bool) -> Iterator[Entry]:
    key = _KEY.match(body) if keys else None
    if key and _NAMES_REQUIREMENTS.fullmatch(table):
        yield _keyed(key, at, line)
        return
    for string in _STRING.finditer(body):
        match = _WHOLE.fullmatch(string["body"])
        if match and not _VALUE.match(body[: string.start()]):
            yield _entry(match, at + string.start("body"), line, at, Form.STRING)
        elif _URL_LINE.match(string["body"]):
            yield from _on_line(string["body"], at + string.start("body"), string["body"])


def _keyed(key: re.Match[str], at: int, line: str) -> Entry:
    value, version = key["value"], key["value"][1:-1]
    extras: list[str] = []
    form = Form.KEY
    if value.startswith("{"):
        found = re.search(r"\bversion\s*=\s*['\"]([^'\"]*)", value)
        version = found[1] if found else ""
        form = Form.KEY if found else Form.ELSEWHERE
        listed = re.search(r"\bextras\s*=\s*\[([^\]]*)\]", value)
        extras = re.findall(r"[\w.-]+", listed[1]) if listed else []
    start, end = at + key.start("name"), at + key.end()
    name = canonicalize_name(key["name"].strip('"'))
    return Entry(name, frozenset(extras), version, "", start, end, at + len(line), form)


def _on_ini_line(body: str, at: int, line: str) -> Iterator[Entry]:
    if install_at(body) is not None:
        yield from commands(body, at)
        return
    value = re.match(r"(?:deps|install_requires)\s*=\s*(?=\S)|\s+", body)
    match = _LINE.match(body, value.end()) if value else None
    if match:
        yield _entry(match, at, line, at, Form.LINE)


def _items(body: str, at: int, line: str, pip_indent: int) -> Iterator[Entry]:
    """Yield the item of conda's list, or of pip's within it, which is indented further."""
    match = _ITEM.match(body)
    if match:
        pip = -1 < pip_indent < len(match["indent"])
        yield _entry(match, at, line, at, Form.ITEM if pip else Form.CONDA)


def _in_brackets(text: str) -> Iterator[Entry]:
    for item in flow_items(text):
        match = _WHOLE.fullmatch(item.text)
        if match:
            pip = Form.STRING if item.is_quoted else Form.FLOW
            yield _entry(
                match, item.start, item.text, item.start, pip if item.is_pip else Form.CONDA
            )


def _packages(body: str, at: int, line: str) -> Iterator[Entry]:
    for match in _PACKAGE.finditer(body):
        yield _entry(match, at, line, at, Form.PACKAGE)


def commands(line: str, at: int) -> Iterator[Entry]:
    """Yield the arguments of the commands in a line that install packages."""
    for command in re.finditer(r"(?:[^&|;'\"]|'[^']*'|\"[^\"]*\"|['\"])+", line):
        install = install_at(command.group())
        if install is not None:
            rest = command.start() + install
            form = Form.CONDA_WORD if by_conda(command.group()) else Form.WORD
            yield from words(line[rest : command.end()], at + rest, form)


def words(line: str, at: int, form: Form = Form.WORD) -> Iterator[Entry]:
    """Yield the words of such a command."""
    for match in _WORD.finditer(line):
        yield _entry(match, at, line, at, form)
