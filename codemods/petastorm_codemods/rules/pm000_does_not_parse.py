"""A file that cannot be decoded or parsed is left alone, and so is a cell of a notebook.

The other cells and files are rewritten. Cells count if they hold the word Petastorm, or a name of the
converter's API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import Rule
from petastorm_codemods._text.tokens import next_line

_CODE = "PM000"
# What makes a cell that is left alone worth a word.
_TELLING = re.compile(
    r"petastorm|make_(?:spark_converter|torch_dataloader|tf_dataset)|SparkDatasetConverter",
    re.IGNORECASE,
)
_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)


@Rule(
    _CODE,
    "does-not-parse",
    "a file or cell does not parse",
    safety=Safety.MANUAL,
    destinations=list(Destination),
    before="converter = FILL IN",
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each such cell that is in another language, or does not parse."""
    source = analysis.source
    for start, end, language in source.foreign:
        if language and _TELLING.search(source.text, start, end):
            message = f"cell left alone, it is in {language.lstrip('%')}"
            if language == "%python":
                message = "cell left alone, it is Python in comments: take '# MAGIC' away"
            elif language.startswith("%%"):
                message = f"cell left alone, it is what {language} is given"
            yield _left_alone(start, message)
    for cell in source.cells:
        if cell.problem and _TELLING.search(cell.text):
            placed = _LINE.match(cell.problem)
            problem, offset = placed[2] if placed else cell.problem, cell.start
            for _ in range(int(placed[1]) - 1 if placed else 0):
                offset = next_line(source.text, offset)
            yield _left_alone(offset, f"cell left alone, it does not parse: {problem}")


def _left_alone(offset: int, message: str) -> Finding:
    return Finding(_CODE, offset, message, Safety.MANUAL, marker=False)
