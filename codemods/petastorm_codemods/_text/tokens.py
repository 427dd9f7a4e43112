"""The tokens of a statement, also of its beginning alone, alike on every Python."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

_LINE_BREAK = re.compile(r"\r\n?|\n")


def next_line(text: str, offset: int) -> int:
    """Return where the line behind that of a character starts; the end of the text if there is none."""
    match = _LINE_BREAK.search(text, offset)
    return match.end() if match else len(text)


def line_starts(text: str) -> list[int]:
    """Return where the lines of a text start, as Python counts them."""
    return [0, *(match.end() for match in _LINE_BREAK.finditer(text))]


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as Python counts them: form feeds, unlike `splitlines`, end none."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def tokens_of(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of a statement or of its beginning, as far as there are any, and none of what is in a string.

    From Python 3.12 on `tokenize` takes f-strings apart, which are left out then.
    """
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines_of(text))).readline):
            name = tokenize.tok_name[token.type]
            is_end = name.endswith("STRING_END")
            depth += name.endswith("STRING_START") - is_end
            if not depth and not is_end:
                yield token
    except (tokenize.TokenError, SyntaxError):
        return
