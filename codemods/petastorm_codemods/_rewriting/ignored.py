"""Comments that silence rules: ``# petastorm-bridge: ignore``, with codes or without, and ``# noqa: PM102``."""

from __future__ import annotations

import re

_IGNORE = re.compile(
    r"#\s*(?:petastorm-bridge:\s*ignore(?:\[(?P<own>[\w, ]*)\])?|noqa:\s*(?P<noqa>[A-Z][\w, ]*))",
    re.IGNORECASE,
)


def is_ignored(text: str, offset: int, code: str) -> bool:
    """Say whether a comment on the line of a character silences a rule there."""
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    silenced = (
        match["own"] or match["noqa"]
        for match in _IGNORE.finditer(text[start : len(text) if end < 0 else end])
    )
    return any(codes is None or code in re.findall(r"PM\d+", codes.upper()) for codes in silenced)
