"""New calls fit into the lines of their file; everything else keeps the user's layout.

A call of ours stands on one line if it fits, else each of its arguments does, with a comma behind the last one. Lines
that are aligned with a bracket stay so, and a call of the user's that has become short enough for a line stands on one. More
is the business of the user's own formatter.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit, Piece, Pieces
from petastorm_codemods._text.edits import apply_edits, overlaps
from petastorm_codemods._text.tokens import line_starts, lines_of, next_line, tokens_of

# What stands in the text of calls of ours until it is known which of them fit on a line: characters that no text has.
# A call opens, has more arguments and closes; a comment follows that is above or behind one; a part of a choice begins.
OPEN, NEXT, CLOSE, ABOVE, BEHIND, PART = "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4\ufdd5"
_CLOSE_BELOW = re.compile(r"\s*?\n\s*(?=\))")
_MARK = re.compile(f"([{OPEN}{NEXT}{CLOSE}{ABOVE}{BEHIND}])")


def call_of(name: str, arguments: Sequence[tuple[str, Pieces]]) -> Pieces:
    """Return a call with arguments by their names, which are empty for positional ones."""
    return (f"{name}({OPEN}", *_listed(arguments), f"{CLOSE})")


def _listed(arguments: Sequence[tuple[str, Pieces]]) -> Iterator[Piece]:
    for number, (name, value) in enumerate(arguments):
        yield (NEXT if number else "") + (f"{name}=" if name else "")
        yield from value


def import_of(module: str, names: Sequence[str], width: int) -> str:
    """Return the statement that imports names, in brackets if it is longer than a width."""
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= width:
        return line
    return f"from {module} import ({OPEN}{NEXT.join(names)}{CLOSE})"


def laid_out(analysis: Analysis, edits: Sequence[Edit]) -> list[Edit]:
    """Return edits with the same effect, in which calls of ours have their line breaks.

    Args:
        analysis: Of the source before the edits.
        edits: They do not overlap.

    Raises:
        ValueError: The source has the characters that stand for these line breaks.
    """
    if not edits:
        return []
    if re.search(f"[{OPEN}-{PART}]", analysis.source.text):
        raise ValueError("has characters that Unicode reserves")
    layout = _Layout(analysis, sorted(edits, key=lambda edit: (edit.start, edit.end)))
    by_edit = {edit: layout.laid(edit) for edit in edits}
    laid = [*by_edit.values(), *layout.opened(), *layout.aligned(by_edit)]
    return [*laid, *layout.joined(laid)]


@dataclass(frozen=True)
class _Comprehension:
    """A comprehension on one line, perhaps without its brackets.

    Attributes:
        open: Where its opening bracket ends; that of a call around a generator.
        close: Where its closing bracket starts.
        clauses: Where what follows its result starts: each ``for`` and ``if``.
        stands_alone: Whether its brackets are on lines of their own.
    """

    open: int
    close: int
    clauses: tuple[int, ...]
    stands_alone: bool


class _Layout:
    """How the lines of a file are laid out.

    Args:
        analysis: Of the source before the edits.
        edits: In the order of the text.
    """

    def __init__(self, analysis: Analysis, edits: Sequence[Edit]) -> None:
        self._analysis = analysis
        self._text = analysis.source.text
        self._edits = edits
        self._starts = [edit.start for edit in edits]
        self._width = analysis.source.width
        # Lines that go on from others tell it only where there are no blocks.
        code = analysis.source.code_lines
        indents = filter(None, (line[: len(line) - len(line.lstrip())] for line in code))
        unit = min(indents, key=len, default="    ")[:4]
        self._unit = analysis.module.default_indent if analysis.nodes(cst.IndentedBlock) else unit
        self._opened: dict[_Comprehension, None] = {}

    def laid(self, edit: Edit) -> Edit:
        """Return an edit with line breaks in calls of ours that need them."""
        if OPEN not in edit.text:
            return edit
        start, end = self._analysis.line_start(edit.start), next_line(self._text, edit.end)
        before = "" if edit.lines else self._changed(start, edit.start)
        behind = 0 if edit.lines else len(self._changed(edit.end, end).rstrip())
        laid = self._laid(edit, before, behind)
        around = None if edit.lines else self._comprehension(edit)
        if around is None or "\n" not in laid.text:
            return laid
        # A formatter breaks the brackets of the comprehension first.
        self._opened[around] = None
        before = self._inner_indent(around) + self._changed(around.open, edit.start).lstrip()
        behind = len(self._changed(edit.end, around.clauses[0]).rstrip())
        return self._laid(edit, before, behind)

    def _laid(self, edit: Edit, before: str, behind: int) -> Edit:
        """Return an edit with line breaks in calls of ours.

        Args:
            edit: The edit.
            before: What comes before it on its line.
            behind: How many characters come behind it there.
        """
        before, text = ("\n".join(lines_of(each)) for each in (before, edit.text))
        whole = _MARK.split(before + text)
        (outside,) = _arguments(iter(whole))
        text = self._written(outside.words, "", behind)
        laid = self._analysis.source.newline.join(lines_of(_on_one_line(text)[len(before) :]))
        return dataclasses.replace(edit, text=laid)

    def _comprehension(self, edit: Edit) -> _Comprehension | None:
        """Return the outermost comprehension that an edit's result is of, if all of it is on one line."""
        here = self._comprehensions.get(self._analysis.line_start(edit.start), ())
        around = [each for each in here if each.open <= edit.start <= edit.end <= each.clauses[0]]
        return min(around, key=lambda each: each.open, default=None)

    @functools.cached_property
    def _comprehensions(self) -> dict[int, list[_Comprehension]]:
        """The comprehensions that are on one line, by where that starts."""
        found: dict[int, list[_Comprehension]] = {}
        for kind in (cst.DictComp, cst.GeneratorExp, cst.ListComp, cst.SetComp):
            for node in self._analysis.nodes(kind):
                start, end = self._analysis.span(node)
                bracket = not isinstance(node, cst.GeneratorExp) or bool(node.lpar)
                inside = self._text[start + bracket : end - bracket]
                if "\n" in inside.strip():
                    continue
                stands_alone = "\n" in inside[: len(inside) - len(inside.lstrip())]
                if stands_alone is not ("\n" in inside[len(inside.rstrip()) :]):
                    continue
                clauses = tuple(self._clauses(node.for_in))
                comprehension = _Comprehension(
                    start + bracket, end - bracket, clauses, stands_alone
                )
                line = self._analysis.line_start(clauses[0])
                found.setdefault(line, []).append(comprehension)
        return found

    def _clauses(self, clause: cst.CompFor | None) -> Iterator[int]:
        """Yield where the clauses of a comprehension start."""
        while clause is not None:
            yield from map(self._analysis.start, (clause, *clause.ifs))
            clause = clause.inner_for_in

    def opened(self) -> Iterator[Edit]:
        """Yield the edits that put the parts of comprehensions on lines of their own, in which a call has several."""
        newline = self._analysis.source.newline
        for each in self._opened:
            inner = newline + self._inner_indent(each)
            for start in each.clauses:
                clause = self._text[start : each.close].lstrip()
                yield Edit(start, self._text.index(clause, start), inner)
            if not each.stands_alone:
                yield Edit(each.open, each.open, inner)
                yield Edit(each.close, each.close, newline + self._indent(each.open))

    def _inner_indent(self, around: _Comprehension) -> str:
        """Return the whitespace that the lines in a comprehension's brackets begin with after the edits."""
        if around.stands_alone:
            return self._indent(around.clauses[0])
        return self._indent(around.open) + self._unit

    def _indent(self, place: int) -> str:
        """Return the whitespace that the line of a place begins with after the edits."""
        line = self._changed(self._analysis.line_start(place), place)
        return line[: len(line) - len(line.lstrip())]

    def _changed(self, start: int, end: int) -> str:
        """Return a part of a line after the edits in it, those of whole lines apart."""
        first, last = bisect.bisect_left(self._starts, start), bisect.bisect(self._starts, end)
        inside = [
            edit
            for edit in self._edits[first:last]
            if edit.end <= end and not edit.lines and OPEN not in edit.text
        ]
        return apply_edits(self._text, inside, start, end)

    def _written(self, words: Sequence[_Word], text: str, behind: int) -> str:
        """Return a text with words behind it, and line breaks in those calls that need them.

        Args:
            words: Parts of code and the arguments of calls.
            text: What comes before, on this line and others.
            behind: How many characters come behind the last word on its line.
        """
        for number, word in enumerate(words):
            if isinstance(word, str):
                text += word
            else:
                rest, newline, _ = _flat(words[number + 1 :]).partition("\n")
                text += self._call(word, text, len(rest) + (0 if newline else behind))
        return text

    def _call(self, arguments: Sequence[_Argument], text: str, behind: int) -> str:
        """Return what stands in the brackets of a call; see `_written`."""
        line = text.rpartition("\n")[2]
        flat = _flat([arguments])
        commented = any(each.commented() for each in arguments)
        fits = len(line) + len(flat) + behind <= self._width
        if fits and not commented and "\n" not in flat:
            return flat
        indent = line[: len(line) - len(line.lstrip())]
        inner = indent + self._unit
        comma = "," if len(arguments) > 1 else ""
        lines = [""]
        for each in arguments:
            lines += [inner + comment for comment in each.above]
            argument = self._written(each.words, inner, len(comma))
            lines += self._parts(argument, inner) if PART in argument else [argument]
            lines[-1] += comma + each.behind
        return "\n".join([*lines, indent])

    def _parts(self, argument: str, indent: str) -> list[str]:
        """Return the lines of a choice: one if it fits, else in parentheses one or one for each part."""
        flat = _on_one_line(argument)
        if len(flat) + 1 <= self._width:
            return [flat]
        first, *parts = argument.split(PART)
        inner = indent + self._unit
        whole = inner + " ".join(parts)
        lines = [whole] if len(whole) <= self._width else [inner + part for part in parts]
        return [f"{first}(", *lines, f"{indent})"]

    def aligned(self, laid: Mapping[Edit, Edit]) -> Iterator[Edit]:
        """Yield the edits that keep lines below what they are aligned with, behind a bracket that moves.

        Args:
            laid: All edits with their line breaks, by those without.
        """
        shifts: dict[int, int] = {}
        for start in sorted({self._analysis.line_start(edit.start) for edit in self._edits}):
            end = next_line(self._text, start)
            first, last = (bisect.bisect_left(self._starts, place) for place in (start, end))
            # What stands on lines of its own above moves nothing.
            edits = [
                laid[e]
                for e in self._edits[first:last]
                if e.end > start or not e.text[-1:].isspace()
            ]
            if any(edit.lines or edit.end > end or "\n" in edit.text for edit in edits):
                continue
            line = self._text[start:end].rstrip()
            bracket = _last_open_bracket(line)
            if not line[bracket:].partition("#")[0].strip():
                continue
            moved = [e for e in edits if self._text[start : e.end].strip()]
            before = [edit for edit in moved if edit.end <= start + bracket]
            shift = sum(len(e.text) - (e.end - e.start) for e in before)
            while shift and end < len(self._text):
                below = self._text[end : next_line(self._text, end)]
                place = end + len(below) - len(below.lstrip(" "))
                if place - end < bracket:
                    break
                shifts[place] = shifts.get(place, 0) + shift
                end = next_line(self._text, end)
        for place, shift in shifts.items():
            yield Edit(place + min(shift, 0), place, " " * max(shift, 0))

    def joined(self, edits: Sequence[Edit]) -> Iterator[Edit]:
        """Yield the edits that put a call on one line that was broken at its brackets only, as it was too long.

        Args:
            edits: All others.
        """
        edits = sorted(edits, key=lambda edit: (edit.start, edit.end))
        starts = [edit.start for edit in edits]
        for node in self._analysis.nodes(cst.Call):
            is_broken = isinstance(node.whitespace_before_args, cst.ParenthesizedWhitespace)
            if not node.args or not is_broken:
                continue
            first, last = self._analysis.start(node.args[0]), self._analysis.span(node.args[-1])[1]
            opened = self._text.rfind("(", 0, first) + 1
            close = _CLOSE_BELOW.match(self._text, last)
            is_plain = self._text[opened:first].isspace() and "\n" not in self._text[first:last]
            if close is None or not is_plain:
                continue
            breaks = [Edit(opened, first, ""), Edit(last, close.end(), "")]
            start, end = self._analysis.line_start(opened), next_line(self._text, close.end())
            number = bisect.bisect_left(starts, start)
            here = edits[number : bisect.bisect_left(starts, end)]
            is_whole = number == 0 or edits[number - 1].end <= start
            if here and is_whole and self._makes_room(here, breaks, start, end):
                yield from breaks

    def _makes_room(
        self, edits: Sequence[Edit], breaks: Sequence[Edit], start: int, end: int
    ) -> bool:
        """Say whether some lines fit on one after edits and without breaks, and did not before the edits."""
        if any(edit.end > end or "\n" in edit.text for edit in edits):
            return False
        if overlaps([*breaks, *edits]):
            return False
        before = apply_edits(self._text, breaks, start, end).rstrip()
        after = apply_edits(self._text, [*breaks, *edits], start, end).rstrip()
        return len(after) <= self._width < len(before)


# A part of code, or the arguments of a call.
_Word = str | Sequence["_Argument"]


@dataclass
class _Argument:
    """An argument of a call of ours.

    Attributes:
        words: Its text, and the arguments of calls of ours in it.
        above: Comments on lines of their own.
        behind: The comments behind it on its line.
    """

    words: list[_Word] = field(default_factory=list)
    above: list[str] = field(default_factory=list)
    behind: str = ""

    def commented(self) -> bool:
        """Say whether there are comments in it."""
        inner = (each for word in self.words if not isinstance(word, str) for each in word)
        return bool(self.above or self.behind) or any(each.commented() for each in inner)


def _arguments(words: Iterator[str]) -> list[_Argument]:
    """Return the arguments of a call, up to its end."""
    arguments = [_Argument()]
    for word in words:
        if word == CLOSE:
            break
        if word == NEXT:
            arguments.append(_Argument())
        elif word == OPEN:
            arguments[-1].words.append(_arguments(words))
        elif word == ABOVE:
            arguments[-1].above.append(next(words))
        elif word == BEHIND:
            arguments[-1].behind += f"  {next(words)}"
        else:
            arguments[-1].words.append(word)
    return arguments


def _flat(words: Sequence[_Word]) -> str:
    """Return words on one line."""
    texts = (
        word if isinstance(word, str) else ", ".join(_flat(each.words) for each in word)
        for word in words
    )
    return _on_one_line("".join(texts))


def _on_one_line(text: str) -> str:
    """Return text with the parts of its choices on one line."""
    first, *parts = text.split(PART)
    return first + " ".join(parts)


def _last_open_bracket(line: str) -> int:
    """Return where the last bracket ends that a line leaves open; its end if there is none."""
    places: list[int] = []
    starts = line_starts(line)
    for token in tokens_of(line):
        if token.string in {"(", "[", "{"}:
            places.append(starts[token.end[0] - 1] + token.end[1])
        elif token.string in {")", "]", "}"} and places:
            places.pop()
    return places[-1] if places else len(line)
