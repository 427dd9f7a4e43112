"""Hooks of MkDocs: the site of the guide has the programs of ``examples/`` beside its pages.

The guide's files link to ``../examples/``, which is right where they are read as plain Markdown. The changelog and the
page for contributors come from the repository's top, where readers of the sources look for them. Cells of tables learn
the heading of their column: on a narrow screen ``site.css`` makes each row of a wide table a card, in which
every cell says what it is. If ``pyproject.toml`` has the repository's address, pages link to it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\(\.\./examples/([\w./]+)\)")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADING = re.compile(r"<th(?: [^>]*)?>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<td(?=[ >])")
_TAG = re.compile(r"<[^>]+>")
# A link to a file of the repository.
_OUTWARD = re.compile(r"\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)")
_SHORT_CODE = re.compile(r"<code>([^<\s]{1,20})</code>")
_COMMAND = re.compile(r"<code>(?=[^<]* )[^<]*--[^<]*</code>")
_OPTION = re.compile(r"(?<=[ >])--[\w-]+")
_FROM_THE_TOP = ("CHANGELOG.md", "CONTRIBUTING.md")
# Blocks with lines of their own, tags, and texts between them, in which long names are found, and the joints of these.
_PIECE = re.compile(r"<(pre|script|style|svg)\b.*?</\1>|<[^>]*>|[^<]+", re.DOTALL)
_LONG_NAME = re.compile(r"[\w./=(\[\"-]{21,}")
_JOINT = re.compile(r"(?<=[._/=(\[])(?=[\w\"])")
# A table of three columns becomes cards, unless three of them are figures, which are narrow. One of five always does,
# and one with names that are too long for half of a phone.
_COLUMNS = 3
_LONG_CELL = re.compile(r"<td[^>]*>(?:(?!</td>).)*<code[^>]*>[^<\s]{20,}", re.DOTALL)
_FIGURES = 3
_MANY = 5


def on_files(files: Files, config: Any) -> Files:
    """Add each program that pages may link to, as text that a browser shows."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = f"{path.relative_to(ROOT).as_posix()}.txt"
        files.append(File.generated(config, name, content=text))
    for name in _FROM_THE_TOP:
        text = _OUTWARD.sub(_inward, (ROOT / name).read_text(encoding="utf-8"))
        files.append(File.generated(config, name, content=text))
    return files


def on_config(config: Any) -> Any:
    """Link to the repository and to each page's source, if the package has an address."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    source = re.search(r'^Source = "(.+)"$', project, re.MULTILINE)
    if source:
        config.repo_url = source[1]
        config.edit_uri = "edit/main/migration_guide/"
    return config


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to these copies; let a search find the guide before the pages that list everything."""
    if page.file.src_uri.startswith(("api", *_FROM_THE_TOP)):
        page.meta["search"] = {"boost": 0.3}
    return _LINK.sub(r"](examples/\1.txt)", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Give the cells of a page's tables the headings of their columns, and keep short names and options in one line."""
    html = _TABLE.sub(lambda found: _with_headings(found[0]), html)
    html = _COMMAND.sub(
        lambda found: _OPTION.sub(r'<span class="short">\g<0></span>', found[0]), html
    )
    return _SHORT_CODE.sub(r'<code class="short">\1</code>', html)


def on_post_page(output: str, **_: Any) -> str:
    """Let long names be broken at their joints, and not within a word. The search has read the page before."""
    return _PIECE.sub(
        lambda piece: (
            piece[0]
            if piece[0].startswith("<")
            else _LONG_NAME.sub(lambda name: _JOINT.sub("<wbr>", name[0]), piece[0])
        ),
        output,
    )


def _inward(link: re.Match[str]) -> str:
    """A link of a file at the repository's top, as it is in the site; only its text if it leads elsewhere."""
    label, target = link.groups()
    name = target.partition("#")[0]
    if name.startswith("migration_guide/"):
        return f"[{label}]({target.removeprefix('migration_guide/')})"
    return f"[{label}]({target})" if name in {"", *_FROM_THE_TOP} else label


def _with_headings(table: str) -> str:
    """The HTML of a table whose cells have ``data-heading``, and which has ``data-cards`` if it is wide."""
    opening = table.partition("</thead>")[0]
    headings = [
        _TAG.sub("", text).strip().replace('"', "&quot;") for text in _HEADING.findall(table)
    ]
    has_figures = len(headings) < _MANY and opening.count("text-align: right") >= _FIGURES
    is_wide = len(headings) >= _COLUMNS and not has_figures
    if is_wide or _LONG_CELL.search(table):
        table = table.replace("<table>", "<table data-cards>", 1)

    def row(found: re.Match[str]) -> str:
        names = iter(headings)
        return _CELL.sub(lambda _: f'<td data-heading="{next(names, "")}"', found[0])

    return _ROW.sub(row, table)
