"""Build hook: the README as a package page shows it, where links to files of the repository lead nowhere.

With an address of the repository in ``[project.urls]`` (``Source``) they become absolute; without one, their
text stays and pictures go. The README itself keeps relative links, which work in every checkout and fork.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["CustomMetadataHook", "package_readme"]

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def package_readme(text: str, source: str) -> str:
    """Return a README for a package page.

    Args:
        text: The README, as Markdown.
        source: Address of the repository, as code hosts have it; empty if there is none.
    """

    def absolute(match: re.Match[str]) -> str:
        picture, label, path = match.groups()
        if source:
            kind = "raw" if picture else "blob"
            return f"{picture}[{label}]({source.rstrip('/')}/{kind}/HEAD/{path})"
        return "" if picture else label

    return _LINK.sub(absolute, text)


class CustomMetadataHook(MetadataHookInterface):
    """Sets ``readme``; hatchling finds the class by its name."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Put the page's text into the metadata."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": package_readme(text, source),
        }
