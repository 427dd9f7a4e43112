"""What a run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._meaning.other_files import Project
from ._model import Destination, Target
from ._registry import Rule, selected


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do.

    Attributes:
        destination: Where call sites are taken.
        select: Codes or prefixes of codes; empty for all.
        ignore: Codes or prefixes of codes.
        unsafe: Whether behaviour-changing rewrites are made.
        target: What code that is rewritten for streaming imports.
        vendor: Whether the support module becomes a file of the repository.
        lift_pyarrow: Whether limits on pyarrow that contradict the bridge's are raised.
        project: What is known of the other files.
        width: Characters in a line, as the repository's formatter is told; None if it is not.
        shadow: The module of the user's that is imported in place of streaming, which keeps a file on the
            bridge; empty if there is none.
    """

    destination: Destination = Destination.STREAMING
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    unsafe: bool = False
    target: Target = field(default_factory=Target)
    vendor: bool = False
    lift_pyarrow: bool = False
    project: Project = field(default_factory=Project)
    width: int | None = None
    shadow: str = ""


def rules_for(settings: Settings) -> tuple[Rule, ...]:
    """Return the rules of a run.

    Raises:
        ValueError: A selection matches no rule.
    """
    return tuple(selected(settings.destination, settings.select, settings.ignore))
