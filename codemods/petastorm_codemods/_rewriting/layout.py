"""New calls and imports fit into the lines of their file; everything else keeps the user's layout.

What is written stands on one line if it fits, else what is in its brackets gets one line for each argument, with a
comma behind the last one. More is the business of the user's own formatter.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import tokenize
from collections import deque
from collections.abc import Iterator, Sequence

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Edit
from petastorm_codemods._text.edits import apply_edits
from petastorm_codemods._text.tokens import line_starts, lines_of, next_line, tokens_of

from .brackets import Brackets, Part, taken_apart

# A file whose repository has no formatter is as wide as its own lines, between the usual limits of two.
_NARROWEST, _WIDEST = 88, 100


def laid_out(analysis: Analysis, edits: Sequence[Edit], width: int | None = None) -> list[Edit]:
    """Return edits with the same effect but for line breaks and indentation.

    Args:
        analysis: Of the source before the edits.
        edits: They do not overlap.
        width: Characters in a line of the file; None to go by its own lines.
    """
    return list(_Layout(analysis, width).edits(edits)) if edits else []


class _Layout:
    """How the lines of a file are laid out.

    Args:
        analysis: Of the file.
        width: Characters in a line; None to go by its own lines.
    """

    def __init__(self, analysis: Analysis, width: int | None) -> None:
        self._analysis = analysis
        self._text = analysis.source.text
        lines = [line for line in analysis.source.masked.splitlines() if line.strip()]
        code = [line for line in lines if not line.lstrip().startswith("#")]
        longest = max(map(len, code), default=0)
        self._width = width or min(max(longest, _NARROWEST), _WIDEST)
        # Lines that go on from others tell it only where there are no blocks.
        indents = filter(None, (line[: len(line) - len(line.lstrip())] for line in code))
        unit = min(indents, key=len, default="    ")[:4]
        self._unit = analysis.module.default_indent if analysis.nodes(cst.IndentedBlock) else unit

    def edits(self, edits: Sequence[Edit]) -> Iterator[Edit]:
        """Yield edits again, those as one that share lines which are laid out anew."""
        # Insertions at one place keep their order.
        waiting = deque(sorted(edits, key=lambda edit: (edit.start, edit.end)))
        while waiting:
            first = waiting.popleft()
            if self._is_whole_lines(first):
                yield (
                    dataclasses.replace(first, text=self.laid(first.text)) if first.lines else first
                )
                continue
            group, start = [first], self._analysis.line_start(first.start)
            end = self._take(waiting, group, self._line_end(first.end))
            if self._is_needed(group, start, end):
                end = self._take(waiting, group, self._statement_end(start, end))
                laid = self.laid(_changed(self._text, group, start, end))
                yield Edit(start, end, laid)
            else:
                yield from group

    def _is_whole_lines(self, edit: Edit) -> bool:
        """Say whether an edit replaces lines by lines, or puts some in between two."""
        whole = not edit.text or edit.text.endswith(("\n", "\r"))
        starts = (edit.start, edit.end) if edit.start < edit.end else ()
        return edit.lines or (whole and all(at == self._analysis.line_start(at) for at in starts))

    def _take(self, waiting: deque[Edit], group: list[Edit], end: int) -> int:
        """Take the edits that begin before a line's end, and return the end of the last one's line."""
        while waiting and waiting[0].start <= end and not self._is_whole_lines(waiting[0]):
            group.append(waiting.popleft())
            end = max(end, self._line_end(group[-1].end))
        return end

    def _line_end(self, offset: int) -> int:
        """Return where a line ends, without its line break."""
        line = self._text[offset : next_line(self._text, offset)]
        return offset + len(line.rstrip("\r\n"))

    def _statement_end(self, start: int, end: int) -> int:
        """Return where the statement ends that some lines are of, if they leave a bracket open."""
        if not _open_brackets(self._text[start:end]):
            return end
        ends = self._ends_of_statements
        return ends[bisect.bisect_left(ends, end)]

    @functools.cached_property
    def _ends_of_statements(self) -> list[int]:
        text, ends = self._analysis.source.masked, [0]
        for line in _logical_lines(text):
            for _ in lines_of(line):
                ends[-1] = next_line(text, ends[-1])
            ends.append(ends[-1])
        return ends

    def _is_needed(self, edits: Sequence[Edit], start: int, end: int) -> bool:
        """Say whether edits make lines too long, write calls over several, or move what others are aligned with."""
        before, after = self._text[start:end], _changed(self._text, edits, start, end)
        if self._analysis.source.masked[start:end] != before:
            return False  # a magic of a notebook is no Python, and one line
        widest = max(self._width, *map(len, lines_of(before)))
        if max(map(len, lines_of(after))) > widest:
            return True
        if any(edit.written and "\n" in edit.text for edit in edits):
            return True
        if not any(before[: edit.end - start].strip() for edit in edits):
            return False  # nothing on the lines is moved
        column = next(iter(_open_brackets(before)), len(before))
        moved = [e for e in edits if e.end < start + column and before[: e.end - start].strip()]
        shift = sum(len(edit.text) - (edit.end - edit.start) for edit in moved)
        return shift != 0 and bool(before[column:].partition("#")[0].strip())

    def laid(self, text: str) -> str:
        """Return lines of code with those broken that are too long or have line breaks in brackets."""
        result: list[str] = []
        for line in _logical_lines(text):
            code = line.lstrip(" \t")
            indent = line[: len(line) - len(code)]
            if code.startswith("#") or ("\n" not in line and len(line) <= self._width):
                result.append(line)
                continue
            whole = _with_brackets(taken_apart(code))
            lines = self._lines(whole.words, indent)
            result += [*lines[:-1], lines[-1] + whole.behind]
        return self._analysis.source.newline.join("\n".join(result).split("\n"))

    def _lines(self, words: Sequence[str | Brackets], indent: str) -> list[str]:
        """Return the lines of what stands in brackets, or of a whole line of code."""
        pairs = [at for at, word in enumerate(words) if isinstance(word, Brackets) and word.splits]
        commented = [at for at in pairs if _is_commented(words[at])]
        whole = indent + _on_one_line(words)
        if not commented and (not pairs or "\n" in whole or len(whole) <= self._width):
            return [whole]
        at = self._best(words, commented or pairs, indent)
        pair = words[at]
        assert isinstance(pair, Brackets)
        lines = self._lines([*words[:at], pair.opening], indent)
        comma = [","] if len(pair.filled) > 1 or pair.ends_with_comma else []
        inner = indent + self._unit
        for part in pair.parts:
            lines += [inner + comment for comment in part.above]
            lines += self._part(part.words, comma, inner) if part.words else []
            lines[-1] += part.behind
        return [*lines, *self._lines([pair.closing, *words[at + 1 :]], indent)]

    def _part(self, words: Sequence[str | Brackets], comma: list[str], indent: str) -> list[str]:
        """Return the lines of one of the things in brackets.

        A long choice has parentheses of its own, and each loop of a long comprehension a line.
        """
        texts = [word.strip() if isinstance(word, str) else "" for word in words]
        chooses = texts.count("if") == texts.count("else") == 1 and not {"for", "lambda"} & {*texts}
        fits = len(indent + _on_one_line([*words, *comma])) <= self._width
        if not fits and "for" in texts and not {"async", "else", "lambda"} & {*texts}:
            starts = [at for at, text in enumerate(texts) if text == "for"]
            starts += [at for at, text in enumerate(texts) if text == "if" and at > starts[0]]
            cuts = itertools.pairwise([0, *sorted(starts), len(words)])
            return [line for first, last in cuts for line in self._lines(words[first:last], indent)]
        if not chooses or fits:
            return self._lines([*words, *comma], indent)
        start = 2 if texts[1] == "=" else 0
        ends = [start, texts.index("if"), texts.index("else"), len(words)]
        lines = [f"{indent}{_on_one_line(words[:start])}("]
        for first, last in itertools.pairwise(ends):
            lines += self._lines(words[first:last], indent + self._unit)
        return [*lines, "".join([indent, ")", *comma])]

    def _best(self, words: Sequence[str | Brackets], pairs: Sequence[int], indent: str) -> int:
        """Return which brackets are broken: the last ones up to which the line fits."""
        fitting = [at for at in pairs if len(indent + _on_one_line(words[:at])) < self._width]
        return (fitting or pairs)[-1]


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines of code as Python counts them, those that go on in brackets as one; comments are lines."""
    lines = lines_of(text)
    ends = [token.start[0] for token in tokens_of(text) if token.type == tokenize.NEWLINE]
    done = 0
    for end in [*ends, len(lines)]:
        while done < end and lines[done].lstrip()[:1] in {"", "#"}:
            yield lines[done]
            done += 1
        if done < end:
            yield "\n".join(lines[done:end])
            done = end


def _with_brackets(line: Part) -> Part:
    """Return an import of names, or a ``with`` of several items, with brackets around these."""
    words = [word if isinstance(word, str) else "" for word in line.words]
    if ";" in map(str.strip, words):
        return line  # more than the import
    if words[:1] == ["from"] and " import" in words and words[-1]:
        start, end = words.index(" import") + 1, len(words)
    elif words[:1] == ["with"] and "," in words and words[-1] == ":":
        start, end = 1, len(words) - 1
    else:
        return line
    parts = [Part()]
    for word in line.words[start:end]:
        if word == ",":
            parts.append(Part())
        else:
            parts[-1].words.append(word if parts[-1].words or word not in words else word.lstrip())
    line.words[start:end] = [Brackets(" (", ")", [*parts, Part()], called=False)]
    return line


def _changed(text: str, edits: Sequence[Edit], start: int, end: int) -> str:
    """Return a part of a text after some edits."""
    shifted = [
        dataclasses.replace(each, start=each.start - start, end=each.end - start) for each in edits
    ]
    return apply_edits(text[start:end], shifted)


def _on_one_line(words: Sequence[str | Brackets]) -> str:
    """Return words on one line, without their comments."""
    texts: list[str] = []
    for word in words:
        if isinstance(word, str):
            texts.append(word)
        else:
            inside = ", ".join(_on_one_line(part.words) for part in word.filled)
            alone = len(word.filled) == 1 and word.ends_with_comma and not word.called
            texts += [word.opening, inside, "," if alone else "", word.closing]
    return "".join(texts).lstrip(" ")


def _is_commented(word: str | Brackets) -> bool:
    return isinstance(word, Brackets) and word.commented


def _open_brackets(lines: str) -> list[int]:
    """Return where the brackets end, in characters, that some lines leave open."""
    ends: list[int] = []
    starts = line_starts(lines)
    for token in tokens_of(lines):
        if token.string in {"(", "[", "{"}:
            ends.append(starts[token.end[0] - 1] + token.end[1])
        elif token.string in {")", "]", "}"} and ends:
            ends.pop()
    return ends
