"""Comments that silence rules: ``# petastorm-bridge: ignore``, with codes or without, and ``# noqa: PM102``."""

from __future__ import annotations

import re

_IGNORE = re.compile(
    r"#\s*(?:petastorm-bridge:\s*ignore(?:\[(?P<own>[\w, ]*)\])?|noqa:\s*(?P<noqa>PM\d[\w, ]*))",
    re.IGNORECASE,
)


def is_ignored(text: str, offset: int, code: str) -> bool:
    """Say whether a comment on the line of a character silences a rule there."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    match = _IGNORE.search(text[start : len(text) if end < 0 else end])
    if match is None:
        return False
    codes = match["own"] or match["noqa"]
    return codes is None or code in re.findall(r"PM\d+", codes.upper())
