"""Lines of a file that may install Petastorm, but are written in no form that is understood."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .install_commands import BASE
from .manifests import Entry, Form
from .replacements import Change
from .wanted import Wanted

# Lines that install Petastorm from the place of its sources.
_FROM_SOURCE = re.compile(r"git\+\S*/petastorm(?:\.git)?(?=[@#\s'\"]|$)")
_MENTION = re.compile(
    r"(?<![\w./@-])petastorm(?:\[[\w, -]*\])?(?=\s*(?:[=<>~!]=?=?\s*\d|['\",;\s)\]}]|$))"
)
# Petastorm as the name of something else, and as an argument of other commands.
_NAME = re.compile(r"\b(?:name|title|id|group|image)[\"']?\s*[:=]\s*[\"']?\s*$", re.IGNORECASE)


def mentions(text: str, own: Sequence[Entry], want: Wanted, *, other: bool) -> Iterator[Change]:
    """Yield the lines that install Petastorm in a way that is not understood, or may do so."""
    if not (want.package or want.reason):
        return
    known = {entry.line_end for entry in own if entry.form is Form.ELSEWHERE}
    for source in _FROM_SOURCE.finditer(text):
        if not _in_comment(text, source.start()) and _line_end(text, source.end()) not in known:
            message = f"installs petastorm from its sources; {want.package} takes its place"
            yield Change(source.start(), want.reason or message)
    for match in _MENTION.finditer(text) if other and not own and BASE not in text else ():
        if _in_comment(text, match.start()) or _NAME.search(_before(text, match.start())):
            continue
        what = want.package or BASE
        yield Change(match.start(), f"mentions petastorm, not handled: see whether it needs {what}")
        return


def _before(text: str, offset: int) -> str:
    return text[text.rfind("\n", 0, offset) + 1 : offset]


def _line_end(text: str, offset: int) -> int:
    return offset + len(re.split(r"[\r\n]", text[offset : offset + 4096], maxsplit=1)[0])


def _in_comment(text: str, offset: int) -> bool:
    return re.search(r"(?:^|\s)(?:#|//)", _before(text, offset)) is not None
