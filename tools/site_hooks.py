"""Hooks of MkDocs: the site of the guide has the programs of ``examples/`` beside its pages.

The guide's files link to ``../examples/``, which is right where they are read as plain Markdown. Cells of tables learn
the heading of their column: on a narrow screen ``site.css`` makes each row of a wide table a card, in which
every cell says what it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\(\.\./examples/([\w./]+)\)")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADING = re.compile(r"<th(?: [^>]*)?>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td(?=[ >])")
_TAG = re.compile(r"<[^>]+>")
# A table of four columns becomes cards, unless three of them are figures, which are narrow.
_COLUMNS = 4
_FIGURES = 3


def on_files(files: Files, config: Any) -> Files:
    """Add each program that pages may link to, as text that a browser shows."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = f"{path.relative_to(ROOT).as_posix()}.txt"
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to these copies."""
    return _LINK.sub(r"](examples/\1.txt)", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Give the cells of a page's tables the headings of their columns."""
    return _TABLE.sub(lambda found: _with_headings(found[0]), html)


def _with_headings(table: str) -> str:
    """The HTML of a table whose cells have ``data-heading``, and which has ``data-cards`` if it is wide."""
    opening = table.partition("</thead>")[0]
    headings = [
        _TAG.sub("", text).strip().replace('"', "&quot;") for text in _HEADING.findall(table)
    ]
    if len(headings) >= _COLUMNS and opening.count("text-align: right") < _FIGURES:
        table = table.replace("<table>", "<table data-cards>", 1)

    def row(found: re.Match[str]) -> str:
        names = iter(headings)
        return _CELL.sub(lambda _: f'<td data-heading="{next(names, "")}"', found[0])

    return _ROW.sub(row, table)
