"""What takes the place of a requirement on Petastorm, by what the files import that it is for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from petastorm_codemods._petastorm.offered import OLD

from . import limits as our_limits
from .evidence import Evidence
from .install_commands import BASE, with_extras
from .manifests import Entry

# What programs need of what the extras bring, and use without them.
_ALONE = frozenset({"pandas", "torch"})


@dataclass(frozen=True)
class Wanted:
    """What takes the place of a requirement on Petastorm in one file.

    Attributes:
        package: The requirement; empty if nothing imports what it is for.
        beside: What has to be listed besides.
        limits: Limits of what the bridge imports for them, by canonical name.
        joined: Whether Petastorm stays required.
        reason: Why the file is left, if it is.
    """

    package: str = ""
    beside: tuple[str, ...] = ()
    limits: Mapping[str, SpecifierSet] = field(default_factory=dict)
    joined: bool = False
    reason: str = ""


def wanted(
    evidence: Evidence, listed: Collection[str], asked: frozenset[str] = frozenset()
) -> Wanted:
    """Return what a file should list instead of Petastorm.

    Args:
        evidence: What the files import that it is for.
        listed: Canonical names that it lists, with the files beside it.
        asked: Extras of the bridge that those ask for, by its name or as Petastorm's.
    """
    if not evidence.new:
        reason = "no file here imports petastorm or what takes its place: left as it is"
        return Wanted(reason="" if evidence.old else reason)
    missing = {each for each in evidence.came_along if each not in listed}
    if not evidence.bridge:  # it is vendored
        return Wanted("mosaicml-streaming", tuple(sorted(missing)), joined=bool(evidence.old))
    extras = {"streaming"} & evidence.needs
    extras |= {"spark"} if "pyspark" in missing else set()
    if "pandas" in evidence.needs and "pandas" not in listed:
        missing.add("pandas")
    return Wanted(
        package=f"{BASE}[{','.join(sorted(extras))}]" if extras else BASE,
        beside=tuple(sorted(missing - set(our_limits.limits(frozenset(extras))))),
        limits=our_limits.limits(
            frozenset({*extras, *evidence.needs, *asked} - _ALONE), _ALONE & evidence.needs
        ),
        joined=bool(evidence.old),
    )


def asked_extras(found: Sequence[Entry]) -> frozenset[str]:
    """Return the extras of the bridge that requirements ask for once Petastorm's are rewritten."""
    asked = {extra for entry in found if entry.name == BASE for extra in entry.extras}
    for entry in found:
        if entry.name == OLD:
            package = with_extras(BASE, entry.extras - {"torch"})
            asked |= set(Requirement(package).extras)
    return frozenset(asked)
