"""Comments that silence rules, and comments in what is rewritten, which must not be lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._text.tokens import line_starts, tokens_of

# With codes or without.
_IGNORE = re.compile(
    r"#\s*(?:petastorm-bridge:\s*ignore(?:\[(?P<own>[\w, ]*)\])?|noqa:\s*(?P<noqa>[A-Z][\w, ]*))",
    re.IGNORECASE,
)
# They are about the line that they stood on.
_PRAGMA = re.compile(r"#\s*(?:type:|noqa|pylint:|pragma:|fmt:|ruff:|pyright:|mypy:)")


def is_pragma(comment: str) -> bool:
    """Say whether a comment is for a tool, about the line that it stands on."""
    return _PRAGMA.match(comment) is not None


def comments_outside(
    analysis: Analysis, start: int, end: int, kept: Sequence[tuple[int, int]]
) -> Iterator[str]:
    """Yield the comments of some text that are not in the parts of it which are kept."""
    for place, last in comments_between(analysis.source.text, start, end):
        if not any(first <= place < behind for first, behind in kept):
            yield analysis.source.text[place:last]


def comments_between(source: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the comments of a part of a source stand, those for tools apart."""
    text = source[start:end]
    if "#" not in text:
        return
    starts = line_starts(text)
    for token in tokens_of(text):
        if token.string.startswith("#") and not is_pragma(token.string):
            place = start + starts[token.start[0] - 1] + token.start[1]
            yield place, place + len(token.string)


def is_ignored(text: str, offset: int, code: str) -> bool:
    """Say whether a comment on the line of a character silences a rule there."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    silenced = (
        match["own"] or match["noqa"]
        for match in _IGNORE.finditer(text[start : len(text) if end < 0 else end])
    )
    return any(codes is None or code in re.findall(r"PM\d+", codes.upper()) for codes in silenced)
