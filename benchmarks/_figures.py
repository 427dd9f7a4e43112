"""How figures are written, on the terminal, in the plot and in the guide."""

from __future__ import annotations

__all__ = ["figure"]


def figure(value: float, digits: int = 3) -> str:
    """So many significant digits, thousands separated."""
    whole = len(str(round(value)))
    if whole >= digits:
        return f"{round(value, digits - whole):,.0f}"
    return f"{value:.{digits}g}"
