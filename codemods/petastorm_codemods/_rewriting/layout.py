"""New calls fit into the lines of their file; everything else keeps the user's layout.

A call of ours stands on one line if it fits, else each of its arguments does, with a comma behind the last one. More is
the business of the user's own formatter.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit, Piece, Pieces
from petastorm_codemods._text.edits import apply_edits
from petastorm_codemods._text.tokens import lines_of, next_line

# What stands in the text of calls of ours until it is known which of them fit on a line: characters that no text has.
# A call opens, has more arguments and closes; a comment follows that is above or behind one; a part of a choice begins.
OPEN, NEXT, CLOSE, ABOVE, BEHIND, PART = "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4\ufdd5"
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
    last = "," if len(names) == 1 else ""  # which calls do without
    return f"from {module} import ({OPEN}{NEXT.join(names)}{last}{CLOSE})"


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
    return [layout.laid(edit) for edit in dict.fromkeys(edits)]


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

    def laid(self, edit: Edit) -> Edit:
        """Return an edit with line breaks in calls of ours that need them."""
        if OPEN not in edit.text:
            return edit
        start, end = self._analysis.line_start(edit.start), next_line(self._text, edit.end)
        before = "" if edit.lines else self._changed(start, edit.start)
        behind = 0 if edit.lines else len(self._changed(edit.end, end).rstrip())
        before, text = ("\n".join(lines_of(each)) for each in (before, edit.text))
        whole = _MARK.split(before + text)
        (outside,) = _arguments(iter(whole))
        text = self._written(outside.words, "", behind)
        laid = self._analysis.source.newline.join(lines_of(_on_one_line(text)[len(before) :]))
        return dataclasses.replace(edit, text=laid)

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
    texts = (
        word if isinstance(word, str) else ", ".join(_flat(each.words) for each in word)
        for word in words
    )
    return _on_one_line("".join(texts))


def _on_one_line(text: str) -> str:
    """Return text with the parts of its choices on one line."""
    first, *parts = text.split(PART)
    return first + " ".join(parts)
