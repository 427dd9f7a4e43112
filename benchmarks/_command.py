"""What the programs that people start share: races by name, a terminal that is wide enough, and how figures are written."""

from __future__ import annotations

import math
from dataclasses import replace

import typer
from rich.console import Console

from benchmarks._settings import GROUPS, Far

__all__ = ["FAR_NUMBERS", "chosen_groups", "far_places", "figure", "wide_console"]

# What can be said of far places, and how it is read.
FAR_NUMBERS = {name: type(value) for name, value in vars(Far()).items() if name != "dtype"}

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


def far_places(text: str, places: Far) -> Far:
    """Return far places with some numbers replaced: ``name=number``, with commas between them.

    Raises:
        typer.BadParameter: There is no number of a name, or it is none above zero; or more shards than rows.
    """
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.partition("=")
        try:
            number = FAR_NUMBERS[name](value)
        except (KeyError, ValueError) as error:
            known = ", ".join(f"{each}={kind.__name__}" for each, kind in FAR_NUMBERS.items())
            raise typer.BadParameter(f"{part}: give some of {known}.") from error
        if not 0 < number < math.inf:
            raise typer.BadParameter(f"{part}: must be a number above 0.")
        places = replace(places, **{name: number})
    if places.shards > places.rows:
        raise typer.BadParameter(f"{places.shards} shards of {places.rows} rows: each needs one.")
    return places


def wide_console() -> Console:
    """Return a console on which no table is cut short."""
    return Console(width=max(_MIN_WIDTH, Console().width))


def figure(value: float, digits: int = 3) -> str:
    """So many significant digits, thousands separated."""
    whole = len(str(round(value)))
    if whole >= digits:
        return f"{round(value, digits - whole):,.0f}"
    return f"{value:.{digits}g}"
