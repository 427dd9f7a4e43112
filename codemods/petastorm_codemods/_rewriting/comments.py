"""Comments in what is rewritten, which must not be lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._text.tokens import line_starts, tokens_of

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
