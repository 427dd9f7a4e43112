"""Rewritten statements keep to the layout of their file: its line length, indentation and alignment.

Edits change words; what they make of a statement may be longer than the file's lines, or leave its
later lines aligned with nothing. Such a statement is laid out again as the formatters Black and Ruff do
it: what stands in brackets goes to lines of its own, all of it on one or each argument on one. Statements
with comments inside, strings over several lines or backslashes stay as the edits leave them.
"""

from __future__ import annotations

import ast
import bisect
import io
import itertools
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit
from petastorm_codemods._text.edits import apply_edits

# Formatters' usual limits; a file keeps to the smallest that its own lines keep to.
_LIMITS = (88, 100, 120)
_OPENING, _CLOSING = "([{", ")]}"


def laid_out(analysis: Analysis, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits with the same effect but for line breaks and indentation.

    Args:
        analysis: Of the source before the edits.
        edits: They do not overlap.
    """
    statements = sorted(_statements(analysis))
    starts = [start for start, _ in statements]
    text = analysis.source.text
    style = None
    # Insertions at one place keep their order.
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    result: list[Edit] = []
    for number, group in itertools.groupby(
        ordered, key=lambda edit: _index(statements, starts, edit)
    ):
        own = list(group)
        if number is None:
            result += own
            continue
        start, end = statements[number]
        style = style or _style_of(text, analysis.source.newline)
        before = text[start:end]
        after = apply_edits(before, [Edit(e.start - start, e.end - start, e.text) for e in own])
        column = start - analysis.line_start(start)
        laid = _layout(before, after, analysis.indent(start), column, style)
        result += own if laid == after else [Edit(start, end, laid)]
    return result


def _index(statements: Sequence[tuple[int, int]], starts: Sequence[int], edit: Edit) -> int | None:
    """Return the statement that an edit is in; None for lines of their own and what spans more."""
    number = bisect.bisect_right(starts, edit.start) - 1
    if number < 0 or edit.end > statements[number][1] or edit.text.endswith(("\n", "\r")):
        return None
    return number


def _statements(analysis: Analysis) -> Iterator[tuple[int, int]]:
    """Yield where simple statements and the heads of compound ones begin and end."""
    text = analysis.source.text
    for line in analysis.nodes(cst.SimpleStatementLine):
        yield analysis.span(line)
    heads: list[tuple[cst.CSTNode, cst.CSTNode]] = [
        *((node, node.items[-1]) for node in analysis.nodes(cst.With)),
        *((node, node.iter) for node in analysis.nodes(cst.For)),
        *((node, node.test) for node in analysis.nodes(cst.While)),
    ]
    for node, last in heads:
        colon = text.find(":", analysis.span(last)[1])
        if colon >= 0:
            yield analysis.start(node), colon + 1


@dataclass(frozen=True)
class _Style:
    """How a file is laid out.

    Attributes:
        limit: Characters in a line.
        unit: One level of indentation.
        newline: How lines end.
    """

    limit: int
    unit: str
    newline: str


def _style_of(text: str, newline: str) -> _Style:
    lines = text.splitlines()
    code = [line for line in lines if not line.lstrip().startswith("#")]
    longest = max(map(len, code), default=0)
    limit = next((limit for limit in _LIMITS if longest <= limit), _LIMITS[-1])
    indents = (line[: len(line) - len(line.lstrip())] for line in code if line.strip())
    unit = min((indent for indent in indents if indent), key=len, default="    ")
    return _Style(limit, "\t" if unit[0] == "\t" else " " * min(len(unit), 4), newline)


def _layout(before: str, after: str, indent: str, column: int, style: _Style) -> str:
    """Return a rewritten statement in its file's layout; unchanged where nothing calls for more.

    Args:
        before: The original statement, without the indentation of its first line.
        after: The rewritten one.
        indent: Indentation of the first line.
        column: Where the statement starts in its line.
        style: The file's layout.
    """
    old, new = _lines(before), _lines(after)
    new = _realigned(old, new, column)
    after = style.newline.join(new)
    limit = max(style.limit, _longest(old, column))
    if _longest(new, column) <= limit and not _hugs(old, new):
        return after
    flat = _flattened(after)
    if flat is None:
        return after
    lines = _Splitter(style, flat.exploded).split(_with_parentheses(flat.line), indent)
    laid = style.newline.join(lines)[len(indent) :]
    return laid if _same_meaning(after, laid) else after


def _longest(lines: Sequence[str], column: int) -> int:
    return max([column + len(lines[0]), *map(len, lines[1:])])


def _hugs(old: Sequence[str], new: Sequence[str]) -> bool:
    """Say whether a rewrite opens several brackets where the original opened one and broke the line.

    ``f(`` may end a line, but what was put around it, ``g(f(``, asks for a line of its own.
    """
    return len(old) > 1 and len(_open_brackets(old[:1])) == 1 < len(_open_brackets(new[:1]))


def _with_parentheses(line: str) -> str:
    """Return an import of names with the parentheses that let it be broken."""
    head, word, names = line.partition(" import ")
    if not head.startswith("from ") or not word or names.startswith(("(", "*")):
        return line
    return f"{head} import ({names})"


def _realigned(old: Sequence[str], new: Sequence[str], column: int) -> list[str]:
    """Return lines with those moved that were aligned with what follows an open bracket."""
    places = [
        (_alignment(old[:number], column), _indent_of(old[number])) for number in range(1, len(old))
    ]
    if not any(wanted == there for wanted, there in places):
        return list(new)
    everywhere = all(wanted in {None, there} for wanted, there in places)
    result = [new[0]]
    for number, line in enumerate(new[1:]):
        same = len(old) == len(new) and places[number][0] == places[number][1]
        wanted = _alignment(result, column) if same or everywhere else None
        result.append(line if wanted is None else " " * wanted + line.lstrip())
    return result


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def _alignment(lines: Sequence[str], column: int) -> int | None:
    """Return the column behind the innermost open bracket; None if there is none, or its line ends."""
    open_brackets = _open_brackets(lines)
    if not open_brackets:
        return None
    row, at = open_brackets[-1]
    rest = lines[row - 1][at + 1 :].partition("#")[0]
    return at + 1 + (column if row == 1 else 0) if rest.strip() else None


def _open_brackets(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return line (from 1) and column of the brackets that are open after some lines."""
    open_brackets: list[tuple[int, int]] = []
    for kind, text, place, _, _ in _tokens("\n".join(lines)):
        if kind == tokenize.OP and text in _OPENING:
            open_brackets.append(place)
        elif kind == tokenize.OP and text in _CLOSING and open_brackets:
            open_brackets.pop()
    return open_brackets


@dataclass(frozen=True)
class _Flat:
    """A statement on one line.

    Attributes:
        line: Its text, without indentation.
        exploded: Numbers of the opening brackets, counted from the left, whose content had a comma
            at its end before the closing bracket's line: each of it stays on a line of its own.
    """

    line: str
    exploded: frozenset[int]


def _flattened(statement: str) -> _Flat | None:
    """Return a statement on one line; None if that would lose something or cannot be told."""
    lines = _lines(statement)
    tokens = [token for token in _tokens(statement) if token.string.strip()]
    known = {tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING}
    broken = any(token.start[0] != token.end[0] for token in tokens)
    if broken or any(line.endswith("\\") for line in lines) or {t.type for t in tokens} - known:
        return None
    parts: list[str] = []
    open_brackets: list[int] = []
    exploded: set[int] = set()
    seen = 0
    for last, token in zip([None, *tokens], tokens, strict=False):
        text = token.string
        same_line = last is not None and last.end[0] == token.start[0]
        if text in _CLOSING and open_brackets:
            opened = open_brackets.pop()
            if not same_line and parts[-1] == ",":
                exploded.add(opened)
                if not _is_one_tuple([part for part in parts if part.strip()]):
                    parts.pop()
        if last is not None:
            parts.append(_space(last, token, lines))
        parts.append(text)
        if text in _OPENING:
            open_brackets.append(seen)
            seen += 1
    return _Flat("".join(parts), frozenset(exploded))


def _space(last: tokenize.TokenInfo, token: tokenize.TokenInfo, lines: Sequence[str]) -> str:
    """Return what is between two tokens on one line."""
    if last.end[0] == token.start[0]:
        return lines[token.start[0] - 1][last.end[1] : token.start[1]]
    return "" if token.string in _CLOSING or last.string in _OPENING else " "


def _is_one_tuple(parts: Sequence[str]) -> bool:
    """Say whether a comma at the end of parts may make a tuple of one; calls have no such thing."""
    depth = 0
    for number in range(len(parts) - 2, -1, -1):
        if parts[number] in _CLOSING:
            depth += 1
        elif parts[number] in _OPENING:
            if depth:
                depth -= 1
                continue
            before = parts[number - 1] if number else ""
            return parts[number] == "(" and not (before.isidentifier() or before in _CLOSING)
        elif parts[number] == "," and not depth:
            return False
    return False


class _Splitter:
    """Breaks one line into several, as Black does with calls: the last bracket first."""

    def __init__(self, style: _Style, exploded: frozenset[int]) -> None:
        self._style = style
        self._exploded = exploded

    def split(self, line: str, indent: str, first: int = 0) -> list[str]:
        """Return the lines of a line; `first` is the number of its first opening bracket."""
        pairs = _pairs(line)
        numbers = {at: first + number for number, at in enumerate(_openings(line))}
        must = [number for number in numbers.values() if number in self._exploded]
        outer = [pair for pair in pairs if line[pair[0] + 1 : pair[1]].strip()]
        if not outer or (not must and len(indent) + len(line) <= self._style.limit):
            return [indent + line]
        opening, closing = self._best(line, indent, outer, numbers if must else {})
        head, body, tail = line[: opening + 1], line[opening + 1 : closing], line[closing:]
        heads = self.split(head, indent, first)
        number = numbers[opening]
        inner = self._body(body.strip(), indent + self._style.unit, number, head)
        return [*heads, *inner, indent + tail]

    def _best(
        self,
        line: str,
        indent: str,
        pairs: Sequence[tuple[int, int]],
        numbers: dict[int, int],
    ) -> tuple[int, int]:
        """Return the brackets to break: the last ones, unless others alone make the line fit.

        Args:
            line: The line.
            indent: Its indentation.
            pairs: Its outermost brackets.
            numbers: By place, the brackets of which some must be broken; empty if none must.
        """
        broken = {at for at, number in numbers.items() if number in self._exploded}
        holders = [pair for pair in pairs if any(pair[0] <= at < pair[1] for at in broken)]
        if holders:
            return holders[-1]
        for opening, closing in reversed(pairs):
            head, tail = indent + line[: opening + 1], indent + line[closing:]
            if max(len(head), len(tail)) <= self._style.limit:
                return opening, closing
        return pairs[-1]

    def _body(self, body: str, indent: str, number: int, head: str) -> list[str]:
        inside = range(number + 1, number + 1 + len(_openings(body)))
        explode = number in self._exploded
        fits = len(indent) + len(body) <= self._style.limit
        if (
            fits
            and not explode
            and not self._exploded & set(inside)
            and "import" not in head.split()
        ):
            return [indent + body]
        parts = _at_commas(body)
        if len(parts) == 1 and not explode:
            return self.split(body, indent, number + 1)
        lines: list[str] = []
        first = number + 1
        for part in parts:
            lines += self.split(f"{part},", indent, first)
            first += len(_openings(part))
        return lines


def _lines(text: str) -> list[str]:
    """Return the lines of a text as Python counts them: form feeds, unlike `splitlines`, end none."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of a statement or of its beginning, as far as there are any.

    An f-string is one token; from Python 3.12 on `tokenize` takes it apart.
    """
    first: tokenize.TokenInfo | None = None
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(_lines(text))).readline):
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
    lines = _lines(text)[first.start[0] - 1 : last.end[0]]
    lines[-1] = lines[-1][: last.end[1]]
    lines[0] = lines[0][first.start[1] :]
    joined = "\n".join(lines)
    return tokenize.TokenInfo(tokenize.STRING, joined, first.start, last.end, first.line)


def _brackets(line: str) -> Iterator[tuple[int, str]]:
    for kind, text, (_, column), _, _ in _tokens(line):
        if kind == tokenize.OP and text in _OPENING + _CLOSING + ",":
            yield column, text


def _openings(line: str) -> list[int]:
    return [at for at, text in _brackets(line) if text in _OPENING]


def _pairs(line: str) -> list[tuple[int, int]]:
    """Return the outermost pairs of brackets; one that is open at the end, or was before, counts not."""
    pairs, open_brackets = [], []
    for at, text in _brackets(line):
        if text in _OPENING:
            open_brackets.append(at)
        elif text in _CLOSING and open_brackets:
            opened = open_brackets.pop()
            if not open_brackets:
                pairs.append((opened, at))
    return pairs


def _at_commas(body: str) -> list[str]:
    """Return what commas part in the content of brackets."""
    depth, start, parts = 0, 0, []
    for at, text in _brackets(body):
        if text == ",":
            if not depth:
                parts.append(body[start:at].strip())
                start = at + 1
        else:
            depth += 1 if text in _OPENING else -1
    last = body[start:].strip()
    return [*parts, last] if last else parts


def _same_meaning(one: str, other: str) -> bool:
    return _meaning(one) == _meaning(other) is not None


def _meaning(statement: str) -> str | None:
    body = "\n    pass" if statement.rstrip().endswith(":") else ""
    for prefix in ("", "async def _():\n"):
        text = f"{statement}{body}"
        if prefix:
            text = prefix + textwrap.indent(text, "    ")
        try:
            return ast.dump(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None
