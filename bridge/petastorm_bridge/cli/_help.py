"""What all commands show alike in ``--help``."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand


class HelpfulCommand(TyperCommand):
    """A command whose help names its arguments without their types, which are Python's words."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's arguments and options."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if param.param_type_name == "argument":
                param.display_type_rich = _nothing
        return params


def _nothing(ctx: Any) -> str:
    del ctx
    return ""
