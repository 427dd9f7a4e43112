"""The formats of ``--report``."""

from __future__ import annotations

from .report import to_json, to_markdown
from .sarif import to_sarif
from .services import to_github, to_gitlab

FORMATS = {
    "json": to_json,
    "sarif": to_sarif,
    "markdown": to_markdown,
    "github": to_github,
    "gitlab": to_gitlab,
}
