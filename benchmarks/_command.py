"""What the programs that people start share: races by name, and a terminal that is wide enough."""

from __future__ import annotations

import typer
from rich.console import Console

from benchmarks._settings import GROUPS

__all__ = ["chosen_groups", "wide_console"]

_MIN_WIDTH = 132


def chosen_groups(only: str) -> list[str]:
    """Return the races of a list with commas, all of them for an empty one.

    Raises:
        typer.BadParameter: There is none of a name.
    """
    groups = [name.strip() for name in only.split(",")] if only else list(GROUPS)
    if unknown := sorted(set(groups) - set(GROUPS)):
        raise typer.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(GROUPS)}.")
    return groups


def wide_console() -> Console:
    """Return a console on which no table is cut short."""
    return Console(width=max(_MIN_WIDTH, Console().width))
