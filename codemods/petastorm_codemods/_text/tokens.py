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
    """Yield the tokens of a statement or of its beginning, as far as there are any.

    An f-string is one token; from Python 3.12 on `tokenize` takes it apart.
    """
    first: tokenize.TokenInfo | None = None
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines_of(text))).readline):
            name = tokenize.tok_name[token.type]
            if name == "FSTRING_START":
                first = first or token
                depth += 1
            elif name == "FSTRING_END" and first is not None:
                depth -= 1
                if not depth:
                    yield _joined_string(text, first, token)
                    first = None
            elif first is None:
                yield token
    except (tokenize.TokenError, SyntaxError):
        return


def _joined_string(
    text: str, first: tokenize.TokenInfo, last: tokenize.TokenInfo
) -> tokenize.TokenInfo:
    lines = lines_of(text)[first.start[0] - 1 : last.end[0]]
    lines[-1] = lines[-1][: last.end[1]]
    lines[0] = lines[0][first.start[1] :]
    joined = "\n".join(lines)
    return tokenize.TokenInfo(tokenize.STRING, joined, first.start, last.end, first.line)
