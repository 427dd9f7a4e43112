"""Hooks of MkDocs: the site of the guide has the programs of ``examples/`` beside its pages.

The guide's files link to ``../examples/``, which is right where they are read as plain Markdown.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\(\.\./examples/([\w.]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add each program that pages may link to, as text that a browser shows."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        files.append(File.generated(config, f"examples/{path.name}.txt", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to these copies."""
    return _LINK.sub(r"](examples/\1.txt)", markdown)
