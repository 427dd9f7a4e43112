"""Cells of notebooks that are left alone as a whole, although they have telling words in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from petastorm_codemods._model import Safety, Site, State
from petastorm_codemods._text.sources import Source

CODE = "PM000"

# What makes a cell that is left alone worth a word.
_TELLING = re.compile(
    r"petastorm|make_(?:spark_converter|torch_dataloader|tf_dataset)|SparkDatasetConverter",
    re.IGNORECASE,
)
_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)


def left_cells(source: Source) -> Iterator[Site]:
    """Yield a site for each such cell: in another language, or not to be parsed."""
    for start, end, language in source.foreign:
        if language and _TELLING.search(source.text, start, end):
            message = f"cell left alone, it is in {language.lstrip('%')}"
            if language.startswith("%%"):
                message = f"cell left alone, it is what {language} is given"
            yield _site(source, start, 0, message)
    for cell in source.cells:
        if cell.problem and _TELLING.search(cell.text):
            placed = _LINE.match(cell.problem)
            below = int(placed[1]) - 1 if placed else 0
            problem = placed[2] if placed else cell.problem
            yield _site(source, cell.start, below, f"cell left alone, it does not parse: {problem}")


def _site(source: Source, start: int, below: int, message: str) -> Site:
    """Return a site some lines below the start of a cell."""
    number, line, column = source.locate(start)
    return Site(CODE, line + below, column, number, message, Safety.MANUAL, State.MANUAL)
