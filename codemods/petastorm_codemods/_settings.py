"""What a run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._meaning.other_files import Project
from ._model import Destination, Target
from ._options import OF_STREAMING, Options, conversions
from ._project.distribution import bridge
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
    shadow: str = ""


def rules_for(settings: Settings) -> tuple[Rule, ...]:
    """Return the rules of a run.

    Raises:
        ValueError: A selection matches no rule.
    """
    return tuple(selected(settings.destination, settings.select, settings.ignore))


def settings_for(options: Options) -> Settings:
    """Return what the options say of the rewriting itself.

    Raises:
        ValueError: Two of them exclude each other, or one says nothing that can be understood.
    """
    if options.fast and options.vendor:
        raise ValueError(
            "--fast reads with a dataset of petastorm_bridge, which --vendor does without; choose one"
        )
    for option in OF_STREAMING:
        if options.to is Destination.BRIDGE and getattr(options, option):
            raise ValueError(
                f"--{option} is for --to streaming; --to bridge changes no call sites. Choose one"
            )
    if options.requirement == "":
        raise ValueError("--requirement is empty. Say what to require, or leave it out")
    requirement = options.requirement or ""
    bridge(requirement)  # refuses what is no requirement on petastorm-bridge
    return Settings(
        destination=options.to or Destination.STREAMING,
        select=options.select,
        ignore=options.ignore,
        unsafe=options.unsafe,
        target=Target(
            fast=options.fast, bridge=requirement, converted=conversions(options.converted)
        ),
        vendor=options.vendor,
        lift_pyarrow=options.lift_pyarrow,
    )
