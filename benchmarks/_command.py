"""What the programs that people start share: races by name, a terminal that is wide enough, and how figures are written."""

from __future__ import annotations

import typer
from rich.console import Console

from benchmarks._settings import GROUPS

__all__ = ["chosen_groups", "figure", "wide_console"]

_MIN_WIDTH = 132


def chosen_groups(only: str) -> list[str]:
    """Return the races of a list with commas, all of them for an empty one.

    The beginning of names, such as ``far`` of ``far-mount``, stands for all that begin so.

    Raises:
        typer.BadParameter: There is none of a name.
    """
    groups: list[str] = []
    for name in map(str.strip, only.split(",")) if only else GROUPS:
        meant = [group for group in GROUPS if name == group]
        meant = meant or [group for group in GROUPS if group.startswith(f"{name}-")]
        if not meant:
            raise typer.BadParameter(f"{name}: choose from {', '.join(GROUPS)}.")
        groups += meant
    return groups


def wide_console() -> Console:
    """Return a console on which no table is cut short."""
    return Console(width=max(_MIN_WIDTH, Console().width))


def figure(value: float, digits: int = 3) -> str:
    """So many significant digits, thousands separated."""
    whole = len(str(round(value)))
    if whole >= digits:
        return f"{round(value, digits - whole):,.0f}"
    return f"{value:.{digits}g}"
