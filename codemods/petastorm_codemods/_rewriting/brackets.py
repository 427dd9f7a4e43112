"""A line of code with its outermost brackets taken apart, so that their parts can have lines of their own."""

from __future__ import annotations

import keyword
import tokenize
from dataclasses import dataclass, field

from petastorm_codemods._text.tokens import lines_of, tokens_of

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_NO_WORDS = frozenset(
    {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)


@dataclass
class Part:
    """What stands between two commas.

    Attributes:
        words: Tokens with the whitespace before them, and brackets.
        above: Comments on lines of their own.
        behind: The comment behind it on its line.
    """

    words: list[str | Brackets] = field(default_factory=list)
    above: list[str] = field(default_factory=list)
    behind: str = ""


@dataclass
class Brackets:
    """A pair of brackets; its last part is empty where a comma ends it.

    Attributes:
        opening: The opening bracket, with the whitespace before it.
        closing: The closing one.
        parts: What is in them.
        called: Whether they are parentheses of a call.
    """

    opening: str
    closing: str
    parts: list[Part]
    called: bool

    @property
    def filled(self) -> list[Part]:
        """The parts with something in them."""
        return [part for part in self.parts if part.words]

    @property
    def splits(self) -> bool:
        """Whether what is in them may have lines of its own, unlike what parentheses only hold together."""
        words = self.parts[0].words
        listed = self.called or self.opening.strip() != "(" or len(self.parts) > 1
        return bool(words) and (
            listed or any(isinstance(word, Brackets) and word.splits for word in words)
        )

    @property
    def ends_with_comma(self) -> bool:
        """Whether a comma follows the last part."""
        return len(self.parts) > 1 and not self.parts[-1].words

    @property
    def commented(self) -> bool:
        """Whether there are comments in them."""
        return any(
            part.above
            or part.behind
            or any(isinstance(word, Brackets) and word.commented for word in part.words)
            for part in self.parts
        )


def taken_apart(line: str) -> Part:
    """Return the words of a line of code, which may go on over line breaks in brackets.

    What follows a closing bracket that the line does not open is one word; opening brackets that it does not close
    are words as well.
    """
    lines = lines_of(line)
    open_brackets = [Brackets("", "", [Part()], called=False)]
    end = (1, 0)
    for token in tokens_of(line):
        if token.type in _NO_WORDS:
            continue
        text, parts = token.string, open_brackets[-1].parts
        part = parts[-1]
        gap = _gap(lines, end, token) if part.words else ""
        if text in _PAIRS.values() and len(open_brackets) == 1:
            break
        if token.type == tokenize.COMMENT:
            _add_comment(parts, text, alone=token.start[0] > end[0])
        elif text in _PAIRS:
            called = text == "(" and _may_be_called(part)
            open_brackets.append(Brackets(gap + text, _PAIRS[text], [Part()], called))
        elif text in _PAIRS.values():
            closed = open_brackets.pop()
            open_brackets[-1].parts[-1].words.append(closed)
        elif text == "," and len(open_brackets) > 1 and not _keeps_commas(part):
            parts.append(Part())
        else:
            part.words.append(gap + text)
        end = token.end
    whole = open_brackets[0].parts[0]
    for each in open_brackets[1:]:
        whole.words += [each.opening, *_commas(each.parts)]
    rest = "\n".join([lines[end[0] - 1][end[1] :], *lines[end[0] :]])
    whole.words += [rest] if rest.strip() else []
    return whole


def _gap(lines: list[str], end: tuple[int, int], token: tokenize.TokenInfo) -> str:
    """Return the whitespace before a token, where all tokens are on one line."""
    if token.start[0] == end[0]:
        return lines[end[0] - 1][end[1] : token.start[1]]
    return "" if token.string in {".", *_PAIRS.values()} else " "


def _add_comment(parts: list[Part], text: str, *, alone: bool) -> None:
    """Add a comment to the part that it is about: the next one, or the one that its line ends with."""
    if alone or (len(parts) == 1 and not parts[0].words):
        parts[-1].above.append(text)
    else:
        ended = parts[-1] if parts[-1].words else parts[-2]
        ended.behind += f"  {text}"


def _keeps_commas(part: Part) -> bool:
    """Say whether commas are of a comprehension's targets, or of a lambda's parameters."""
    words = [word.strip() if isinstance(word, str) else "" for word in part.words]
    return "for" in words or ("lambda" in words and ":" not in words[words.index("lambda") :])


def _may_be_called(part: Part) -> bool:
    last = part.words[-1] if part.words else ""
    return isinstance(last, Brackets) or (
        last.strip().isidentifier() and not keyword.iskeyword(last.strip())
    )


def _commas(parts: list[Part]) -> list[str | Brackets]:
    words = list(parts[0].words)
    for part in parts[1:]:
        words += [",", *part.words]
    return words
