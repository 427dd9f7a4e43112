"""What files and commands require: where Petastorm stands in them, and what takes its place.

Texts of PEP 508 are rewritten wherever they stand: lines of requirements files, values of ``setup.cfg``, strings
of ``pyproject.toml`` and ``setup.py``, items of conda's ``pip:`` lists, and words of commands in notebooks and
programs. `packaging` says what each of them requires. Whatever else installs Petastorm, such as Dockerfiles,
Poetry's tables, YAML and JSON, is reported with its line and left as it is.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from petastorm_codemods._model import (
    Edit,
    Failed,
    NeedsHuman,
    Outcome,
    Safety,
    Site,
    State,
    Success,
    Unchanged,
)
from petastorm_codemods._petastorm.offered import OLD
from petastorm_codemods._text.decode import decode_python, decode_utf8, newline_of
from petastorm_codemods._text.edits import apply_edits

from .files import is_dependency_file, is_lock_file

CODE = "PM010"
DISTRIBUTION = "petastorm-bridge"
STREAMING = "mosaicml-streaming"
# Petastorm's extras that are the bridge's: https://github.com/uber/petastorm/blob/v0.13.1/setup.py
_EXTRAS = {"tf": "tensorflow", "tf_gpu": "tensorflow", "torch": "streaming"}


# What the bridge is and needs, by its own metadata.


def bridge(text: str = "", extras: frozenset[str] = frozenset()) -> Requirement:
    """Return the requirement on petastorm-bridge that is written into files.

    Args:
        text: What ``--requirement`` says; empty for the version that runs.
        extras: Extras that are asked for besides.

    Raises:
        ValueError: The text is no requirement on petastorm-bridge, or has a marker.
    """
    try:
        wanted = Requirement(text or _running())
    except InvalidRequirement as error:
        raise ValueError(_wrong(text)) from error
    if canonicalize_name(wanted.name) != DISTRIBUTION or wanted.marker:
        raise ValueError(_wrong(text))
    wanted.extras |= extras
    return wanted


def _wrong(text: str) -> str:
    return (
        f"--requirement takes a requirement on {DISTRIBUTION} without a marker, such as "
        f"'{DISTRIBUTION} @ file:///Volumes/…/{DISTRIBUTION.replace('-', '_')}-0.1.0-py3-none-any.whl', not {text!r}"
    )


def _running() -> str:
    try:
        return f"{DISTRIBUTION}=={metadata.version(DISTRIBUTION)}"
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        return DISTRIBUTION


@functools.cache
def _needs() -> tuple[Requirement, ...]:
    """Return what the distribution requires; nothing where it is not installed, as in a checkout."""
    try:
        return tuple(map(Requirement, metadata.requires(DISTRIBUTION) or ()))
    except metadata.PackageNotFoundError:
        return ()


@functools.cache
def python_limit() -> SpecifierSet:
    """Return the Pythons that the distribution runs on."""
    try:
        return SpecifierSet(metadata.metadata(DISTRIBUTION)["Requires-Python"] or "")
    except metadata.PackageNotFoundError:
        return SpecifierSet()


@functools.cache
def limits(extras: frozenset[str], used: frozenset[str] = frozenset()) -> dict[str, SpecifierSet]:
    """Return the limits of what the distribution brings with some extras, by canonical name.

    Args:
        extras: The names of the extras; those that they bring themselves count as well.
        used: Names of packages whose limits count whichever extra brings them: programs use them that ask for none.
    """
    inner = frozenset().union(
        *(
            need.extras
            for need in _needs()
            if canonicalize_name(need.name) == DISTRIBUTION and _is_brought(need, extras)
        )
    )
    if not inner <= extras:
        return limits(extras | inner, used)
    brought: dict[str, SpecifierSet] = {}
    for need in _needs():
        name = canonicalize_name(need.name)
        if _is_brought(need, extras) or name in used:
            brought[name] = brought.get(name, SpecifierSet()) & need.specifier
    return brought


def _is_brought(need: Requirement, extras: frozenset[str]) -> bool:
    marker = need.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def _bringer(name: str, package: Requirement) -> str:
    """Return what brings the limit on a distribution: the bridge as it is required, or one of its extras."""
    if name in limits(frozenset(package.extras)):
        return str(package)
    extras = {*(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ())} - {"all"}
    bringing = (extra for extra in sorted(extras) if name in limits(frozenset({extra})))
    extra = next(bringing, "")
    return f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION


def vendored() -> Requirement:
    """Return what code with the support module in its repository requires."""
    return Requirement(f"{STREAMING}{limits(frozenset({'streaming'})).get(STREAMING, '')}")


def with_streaming(text: str) -> Requirement:
    """Return a requirement on the bridge with the extra that brings streaming."""
    requirement = Requirement(text)
    requirement.extras.add("streaming")
    return requirement


def brings_streaming(extras: Collection[str]) -> bool:
    """Say whether the bridge with some extras brings streaming."""
    return not {"streaming", "all"}.isdisjoint(extras)


# Versions.


def contradict(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Say whether no version is within both limits: none that they name, nor just behind it, nor a late one."""
    both = one & other
    named = [Version("0"), Version("99999")]
    for limit in both:
        try:
            version = Version(limit.version.removesuffix(".*"))
        except InvalidVersion:  # === compares texts
            continue
        named += [version, Version(f"{version.base_version}.1")]
    return not any(both.contains(version, prereleases=True) for version in named)


def specifiers(text: str) -> SpecifierSet | None:
    """Return the limits that a text gives in the form of PEP 440, or of conda's ``=1.2``; None if it gives none."""
    try:
        return SpecifierSet(re.sub(r"^\s*=\s*(\d+(?:\.\d+)*)(?:\.\*)?\s*$", r"==\1.*", text))
    except InvalidSpecifier:
        return None


def _pythons() -> list[str]:
    """Return Pythons to try limits with, older ones than ours and later ones."""
    return ["2.7", *(f"3.{minor}" for minor in range(40))]


def _never_applies(marker: Marker | None) -> bool:
    """Say whether an environment marker holds on no Python that the distribution runs on."""
    return marker is not None and not any(
        marker.evaluate({"extra": "", "python_version": each, "python_full_version": f"{each}.9"})
        for each in _pythons()
        if python_limit().contains(each)
    )


# Where requirements stand.


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
_BODY = r"(?P<text>[A-Za-z0-9](?:(?![ \t](?:#|--))[^\r\n])*?)"
_END = r"[ \t]*(?=[ \t](?:#|--)|\r|$)"
_LINE = re.compile(rf"^[ \t]*{_BODY}{_END}", re.MULTILINE)
_VALUE = re.compile(
    rf"^(?:(?:deps|install_requires)[ \t]*=[ \t]*|[ \t]+){_BODY}{_END}", re.MULTILINE
)
_ITEM = re.compile(
    rf"^(?P<indent>[ \t]*)-[ \t]+(?P<quote>['\"]?){_BODY}(?P=quote){_END}", re.MULTILINE
)
# A comment, or a string; one that is a key or the value of one, such as a name, is told by what is around it.
_STRING = re.compile(
    r"(?:^|[ \t])#[^\r\n]*"
    r"|(?P<key>=[ \t]*)?(?P<quote>['\"])(?P<text>(?:(?!(?P=quote))[^\\\r\n])*)(?P=quote)(?P<colon>[ \t]*[:=])?",
    re.MULTILINE,
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
    for match in pattern.finditer(text):
        groups = match.groupdict()
        if groups["text"] and not groups.get("key") and not groups.get("colon"):
            yield from _entry(match["text"], match.start("text"), form)


def _of_conda(text: str) -> Iterator[Entry]:
    sections = [(match.end(), len(match["indent"])) for match in _PIP.finditer(text)]
    for match in _ITEM.finditer(text):
        above = [indent for end, indent in sections if end <= match.start()]
        pip = bool(above) and above[-1] < len(match["indent"])
        form = Form.LINE if pip else Form.CONDA
        yield from _entry(match["text"], match.start("text"), form)


def _entry(text: str, start: int, form: Form) -> Iterator[Entry]:
    """Yield the entry of a text at a place in a file; nothing if it is no requirement."""
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


def extras_for(asked: Collection[str]) -> frozenset[str]:
    """Return the bridge's extras for some of Petastorm's."""
    return frozenset(_EXTRAS[extra] for extra in asked if extra in _EXTRAS)


# What becomes of a file.


@dataclass(frozen=True)
class Wanted:
    """What takes the place of a requirement on Petastorm in one file.

    Attributes:
        package: The requirement; None if nothing imports what it is for.
        beside: What has to be listed besides.
        limits: Limits of what the bridge imports for them, by canonical name.
        joined: Whether Petastorm stays required.
        reason: Why the file is left, if it is.
        lacks_streaming: Whether the programs import streaming, and no list of theirs has it: those that were on the
            bridge before have a list without.
    """

    package: Requirement | None = None
    beside: tuple[str, ...] = ()
    limits: Mapping[str, SpecifierSet] = field(default_factory=dict)
    joined: bool = False
    reason: str = ""
    lacks_streaming: bool = False


@dataclass(frozen=True)
class Change:
    """A place in the file, what to say about it, and what to do unless that is a human's to do."""

    offset: int
    message: str
    edits: tuple[Edit, ...] = ()


_TOOL = re.compile(
    r"^#.*autogenerated by (?P<tool>pip-compile|uv)\b|\s--(?:hash|require-hashes)\b", re.MULTILINE
)
_IGNORE = re.compile(rf"#\s*{DISTRIBUTION}:\s*ignore\b")
_NAME = re.compile(r"(?<![\w./@-])petastorm(?![\w./-])")
_PYTHON = re.compile(
    r"^[ \t]*FROM[ \t]+(?:\S*/)?python:(?P<image>\d+\.\d+)"
    r"|(?:^[ \t]*\"?requires-python\"?|\bpython_requires)[ \t]*=[ \t]*['\"]?(?P<limit>[<>=!~][^'\"\r\n#]*)"
    r"|^[ \t]*-[ \t]+python[ \t]*(?P<conda>[=<>]+[ \t]*\d[\w.,<>=* ]*)",
    re.MULTILINE,
)
# Other ways to say that Petastorm is to be installed: from its sources; as the key of a table, or on a line that is
# no requirement; and as a value of YAML or JSON, but for those that are names.
_SOURCES = r"git\+\S*/petastorm(?:\.git)?(?=[@#\s'\"]|$)"
_KEY = r"^[ \t]*[\"']?petastorm[\"']?[ \t]*(?=[=<>~!;\[\\]|\r?$)"
_SAID = r"(?<![\w./@-])petastorm(?:\[[\w, -]*\])?(?=\s*(?:[=<>~!]=?=?\s*\d|['\",;\s)\]}]|$))"
_MENTION = re.compile(f"{_SOURCES}|{_KEY}", re.MULTILINE)
_MENTION_IN_DATA = re.compile(f"{_SOURCES}|{_SAID}", re.MULTILINE)
_LABEL = re.compile(r"\b(?:name|title|id|group|image)[\"']?\s*[:=]\s*[\"']?\s*$", re.IGNORECASE)


def rewritten(path: str, data: bytes, want: Wanted, *, lift: bool = False) -> Outcome:
    """Return what becomes of a file that lists dependencies or installs them.

    Args:
        path: Its path; the name tells the format.
        data: Its bytes.
        want: What takes Petastorm's place.
        lift: Whether limits on pyarrow are raised.
    """
    try:
        decoded = decode_python(data) if path.endswith(".py") else decode_utf8(data)
    except (SyntaxError, ValueError) as error:
        return Failed(path, f"{type(error).__name__}: {error}")
    text = decoded.text
    changes: dict[int, Change] = {}
    for change in _changes(path, text, want, lift=lift):
        if not _IGNORE.search(_line_at(text, change.offset)):
            changes.setdefault(change.offset, change)
    ordered = [changes[offset] for offset in sorted(changes)]
    if not ordered:
        return Unchanged(path)
    after = apply_edits(text, [edit for change in ordered for edit in change.edits])
    became = Success if all(change.edits for change in ordered) else NeedsHuman
    sites = tuple(_site(text, change) for change in ordered)
    return became(path, data, decoded.encode(after), sites)


def _changes(path: str, text: str, want: Wanted, *, lift: bool) -> Iterator[Change]:
    if want.package is None and not want.reason:
        return
    tool = "it is a lock file" if is_lock_file(path) else _written_by(text)
    if tool:
        yield from _generated(text, want, tool)
        return
    if os.path.basename(path).lower().startswith("constraint"):
        want = _as_constraint(want)
    required = entries(path, text)
    listed = frozenset(entry.name for entry in required)
    own = [entry for entry in required if entry.name == OLD]
    for entry in own:
        yield from _replacement(text, entry, want, listed)
    if want.lacks_streaming:
        yield from _with_streaming(text, required, want)
    yield from _mentions(path, text, own, want)
    if want.package is not None:
        yield from _conflicts(required, text, want, lift=lift)
        yield from _too_old(text, want)


def _as_constraint(want: Wanted) -> Wanted:
    """Return what a file of constraints says of it: pip takes no extras there, and installs nothing of it."""
    package = Requirement(str(want.package)) if want.package else None
    if package is not None:
        package.extras.clear()
    return dataclasses.replace(want, package=package, beside=(), lacks_streaming=False)


def _written_by(text: str) -> str:
    """Return what writes a file, so that it is not for anyone else to edit; empty if nothing does."""
    found = _TOOL.search(text)
    if found is None:
        return ""
    hashes = "pip checks hashes here, which nothing but a new compilation gives"
    return f"{found['tool']} wrote it" if found["tool"] else hashes


def _generated(text: str, want: Wanted, tool: str) -> Iterator[Change]:
    """Yield what to do about a file that a tool writes; nothing if it does not name Petastorm."""
    named = _NAME.search(text)
    if named and not (want.joined and DISTRIBUTION in text):
        what = f"change its source to {want.package} and write it anew"
        yield Change(named.start(), f"{tool}: {what if want.package else want.reason}")


def _replacement(text: str, entry: Entry, want: Wanted, listed: frozenset[str]) -> Iterator[Change]:
    """Yield what becomes of one requirement on Petastorm.

    Args:
        text: The file's text.
        entry: The requirement.
        want: What takes its place.
        listed: Canonical names of everything that the file requires.
    """
    if want.package is None:
        yield Change(entry.start, want.reason)
        return
    package = Requirement(str(want.package))
    if package.name == DISTRIBUTION:
        package.extras |= extras_for(entry.requirement.extras - {"torch"})
    is_listed = canonicalize_name(package.name) in listed
    beside = [*want.beside]
    if "torch" in entry.requirement.extras and "streaming" not in package.extras:
        beside += ["torch"] if "torch" not in listed and package.name == DISTRIBUTION else []
    old = text[entry.start : entry.end]
    problem = _unwritable(entry, package)
    if problem or (want.joined and is_listed):
        if not (want.joined and is_listed):
            yield Change(entry.start, problem)
    elif want.joined:
        message = f"{package} is needed beside {old}"
        yield Change(entry.start, message, (_addition(text, entry, [str(package), *beside]),))
    elif is_listed:
        yield _removal(text, entry, package)
    else:
        spelled = str(package) + " " * (package.url is not None and text[entry.end :][:1] == ";")
        edits = [Edit(entry.start, entry.end, spelled)]
        message = f"{old} becomes {package}"
        if beside:
            edits.append(_addition(text, entry, beside))
            message += f"; {', '.join(beside)} came with it"
        yield Change(entry.start, message, tuple(edits))


def _with_streaming(text: str, required: Sequence[Entry], want: Wanted) -> Iterator[Change]:
    """Yield what becomes of requirements on the bridge whose programs have come to import streaming."""
    assert want.package is not None
    for entry in required:
        if entry.name != DISTRIBUTION or entry.form not in {Form.LINE, Form.STRING}:
            continue
        old = text[entry.start : entry.end]
        if want.package.name == DISTRIBUTION:
            new = str(with_streaming(old))
            message, edit = f"{old} becomes {new}", Edit(entry.start, entry.end, new)
        else:
            message = f"{want.package} is needed beside {old}"
            edit = _addition(text, entry, [str(want.package)])
        yield Change(entry.start, message, (edit,))


def _unwritable(entry: Entry, package: Requirement) -> str:
    """Return why another requirement is not written in an entry's place; empty if it is."""
    if entry.form is Form.CONDA:
        return f"conda has no {package}: list it under pip instead"
    if entry.form is Form.CONDA_WORD:
        return f"conda has no {package}: install it with pip"
    if entry.requirement.url:
        return f"petastorm is installed from elsewhere; {package} takes its place"
    if entry.form is Form.WORD:
        return f"a command that is not edited installs petastorm; {package} takes its place"
    if _never_applies(entry.requirement.marker):
        return f"{package} needs Python {python_limit()}, which this marker excludes"
    return ""


def _removal(text: str, entry: Entry, package: Requirement) -> Change:
    message = f"{package.name} is listed already: petastorm goes"
    if entry.form is not Form.LINE or "=" in text[_line_start(text, entry.start) : entry.start]:
        return Change(entry.start, f"{message}, by hand")
    end = _line_end(text, entry.end)
    newline = re.compile(r"\r?\n|\r|").match(text, end)
    end = newline.end() if newline else end
    return Change(entry.start, message, (Edit(_line_start(text, entry.start), end, ""),))


def _addition(text: str, entry: Entry, packages: Sequence[str]) -> Edit:
    """Return the edit that lists some requirements behind an entry, in its form and with its marker."""
    if entry.form is Form.STRING:
        quote = text[entry.start - 1]
        end = text.index(quote, entry.end) + 1
        marker = text[entry.end : end - 1]
        return Edit(end, end, "".join(f", {quote}{each}{marker}{quote}" for each in packages))
    before = text[_line_start(text, entry.start) : entry.start].rstrip("'\"")
    if before.strip() not in {"", "-"}:  # deps = petastorm
        before = " " * 4
    marker = f" ; {entry.requirement.marker}" if entry.requirement.marker else ""
    newline, end = newline_of(text), _line_end(text, entry.end)
    return Edit(end, end, "".join(f"{newline}{before}{each}{marker}" for each in packages))


def _mentions(path: str, text: str, own: Sequence[Entry], want: Wanted) -> Iterator[Change]:
    """Yield the lines that install Petastorm in another way than by a requirement."""
    if path.endswith(".py") or (want.joined and DISTRIBUTION in text):
        return
    known = {_line_start(text, entry.start) for entry in own}
    data = path.lower().endswith((".yml", ".yaml", ".json", ".tf"))
    for match in (_MENTION_IN_DATA if data else _MENTION).finditer(text):
        start = _line_start(text, match.start())
        before = text[start : match.start()]
        is_comment = re.search(r"(?:^|\s)(?:#|//)", before) is not None
        if start in known or is_comment or _LABEL.search(before):
            continue
        known.add(start)
        offset = match.start() + len(match[0]) - len(match[0].lstrip())
        message = f"installs petastorm in a form that is not edited; {want.package} takes its place"
        yield Change(offset, message if want.package else want.reason)


def _conflicts(
    required: Sequence[Entry], text: str, want: Wanted, *, lift: bool
) -> Iterator[Change]:
    """Yield the limits that contradict those of what the file lists now."""
    assert want.package is not None
    for entry in required:
        ours, theirs = want.limits.get(entry.name), entry.limits
        if ours is None or not contradict(theirs, ours):
            continue
        if _never_applies(entry.requirement.marker):
            continue
        bringer = _bringer(entry.name, want.package)
        message = (
            f"{text[entry.start : entry.end]} contradicts {bringer}, which needs {entry.name}{ours}"
        )
        is_text = entry.form in {Form.LINE, Form.STRING} and not entry.requirement.url
        if lift and entry.name == "pyarrow" and is_text:
            start = entry.start + len(re.split(r"\s*[(<>=!~]", text[entry.start :], maxsplit=1)[0])
            yield Change(entry.start, f"{message}: lifted", (Edit(start, entry.end, str(ours)),))
        else:
            advice = "raise it, or use --lift-pyarrow" if entry.name == "pyarrow" else "raise it"
            yield Change(entry.start, f"{message}: {advice}")


def _too_old(text: str, want: Wanted) -> Iterator[Change]:
    """Yield the Pythons that a file is for and on which the bridge does not run."""
    for match in _PYTHON.finditer(text) if want.limits else ():
        which = match.lastgroup or ""
        given = match[which].strip()
        limit = specifiers(f"={given}" if which == "image" else given)
        if limit is None:
            continue
        ours = f"{want.package} needs Python {python_limit()}"
        if contradict(limit, python_limit()):
            yield Change(match.start(which), f"Python {given} is too old, {ours}")
        elif which == "limit" and any(
            limit.contains(each) and not python_limit().contains(each) for each in _pythons()
        ):
            yield Change(match.start(which), f"Python {given} lets older ones in, {ours}: raise it")


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def _line_end(text: str, offset: int) -> int:
    found = re.compile(r"[^\r\n]*").match(text, offset)
    return found.end() if found else offset


def _line_at(text: str, offset: int) -> str:
    return text[_line_start(text, offset) : _line_end(text, offset)]


def _site(text: str, change: Change) -> Site:
    before = text[: change.offset]
    line, column = before.count("\n") + 1, change.offset - before.rfind("\n")
    state = State.REWRITTEN if change.edits else State.MANUAL
    safety = Safety.SAFE if change.edits else Safety.MANUAL
    return Site(CODE, line, column, None, change.message, safety, state)
