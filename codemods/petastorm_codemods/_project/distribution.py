"""What petastorm-bridge is and needs, by its own metadata: what is written into lists of dependencies, and its limits."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from email.message import Message
from importlib import metadata

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

DISTRIBUTION = "petastorm-bridge"
STREAMING = "mosaicml-streaming"
# Petastorm's extras that are the bridge's: https://github.com/uber/petastorm/blob/v0.13.1/setup.py
_EXTRAS = {"tf": "tensorflow", "tf_gpu": "tensorflow", "torch": "streaming"}


def bridge(text: str = "", extras: frozenset[str] = frozenset()) -> Requirement:
    """Return the requirement on petastorm-bridge that is written into files.

    Args:
        text: What ``--requirement`` says; empty for the version that runs.
        extras: Extras that are asked for besides.

    Raises:
        ValueError: The text is no requirement on petastorm-bridge, or has a marker.
    """
    try:
        wanted = Requirement(text or _running())
    except InvalidRequirement as error:
        raise ValueError(_wrong(text)) from error
    if canonicalize_name(wanted.name) != DISTRIBUTION or wanted.marker:
        raise ValueError(_wrong(text))
    wanted.extras |= extras
    return wanted


def _wrong(text: str) -> str:
    return (
        f"--requirement takes a requirement on {DISTRIBUTION} without a marker, such as "
        f"'{DISTRIBUTION} @ file:///Volumes/path/to/{DISTRIBUTION.replace('-', '_')}-0.1.0-py3-none-any.whl', not {text!r}"
    )


@functools.cache
def own_metadata() -> metadata.PackageMetadata | Message:
    """Return the distribution's metadata; empty in a checkout that is not installed."""
    try:
        return metadata.metadata(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return Message()


def _running() -> str:
    version = own_metadata()["Version"]
    return f"{DISTRIBUTION}=={version}" if version else DISTRIBUTION


@functools.cache
def needs() -> tuple[Requirement, ...]:
    """Return what the distribution requires."""
    return tuple(map(Requirement, own_metadata().get_all("Requires-Dist", [])))


def extra_names() -> list[str]:
    """Return the names of the distribution's extras, but for the one that joins all others."""
    return [name for name in own_metadata().get_all("Provides-Extra", []) if name != "all"]


@functools.cache
def python_limit() -> SpecifierSet:
    """Return the Pythons that the distribution runs on."""
    return SpecifierSet(own_metadata()["Requires-Python"] or "")


@functools.cache
def limits(extras: frozenset[str], used: frozenset[str] = frozenset()) -> dict[str, SpecifierSet]:
    """Return the limits of what the distribution brings with some extras, by canonical name.

    Args:
        extras: The names of the extras; those that they bring themselves count as well.
        used: Names of packages whose limits count whichever extra brings them: programs use them that ask for none.
    """
    inner = frozenset().union(
        *(
            need.extras
            for need in needs()
            if canonicalize_name(need.name) == DISTRIBUTION and _is_brought(need, extras)
        )
    )
    if not inner <= extras:
        return limits(extras | inner, used)
    brought: dict[str, SpecifierSet] = {}
    for need in needs():
        name = canonicalize_name(need.name)
        if _is_brought(need, extras) or name in used:
            brought[name] = brought.get(name, SpecifierSet()) & need.specifier
    return brought


def _is_brought(need: Requirement, extras: frozenset[str]) -> bool:
    marker = need.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def bringer(name: str, package: Requirement) -> str:
    """Return what brings the limit on a distribution: the bridge as it is required, or one of its extras."""
    if name in limits(frozenset(package.extras)):
        return str(package)
    bringing = (extra for extra in sorted(extra_names()) if name in limits(frozenset({extra})))
    extra = next(bringing, "")
    return f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION


def vendored() -> Requirement:
    """Return what code with the support module in its repository requires."""
    return Requirement(f"{STREAMING}{limits(frozenset({'streaming'})).get(STREAMING, '')}")


def with_streaming(text: str) -> Requirement:
    """Return a requirement on the bridge with the extra that brings streaming."""
    requirement = Requirement(text)
    requirement.extras.add("streaming")
    return requirement


def brings_streaming(extras: Collection[str]) -> bool:
    """Say whether the bridge with some extras brings streaming."""
    return not {"streaming", "all"}.isdisjoint(extras)


def extras_for(asked: Collection[str]) -> frozenset[str]:
    """Return the bridge's extras for some of Petastorm's."""
    return frozenset(_EXTRAS[extra] for extra in asked if extra in _EXTRAS)


def contradict(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Say whether no version is within both limits: none that they name, nor just behind it, nor a late one."""
    both = one & other
    named = [Version("0"), Version("99999")]
    for limit in both:
        try:
            version = Version(limit.version.removesuffix(".*"))
        except InvalidVersion:  # === compares texts
            continue
        named += [version, Version(f"{version.base_version}.1")]
    return not any(both.contains(version, prereleases=True) for version in named)


def specifiers(text: str) -> SpecifierSet | None:
    """Return the limits that a text gives in the form of PEP 440, or of conda's ``=1.2``; None if it gives none."""
    try:
        return SpecifierSet(re.sub(r"^\s*=\s*(\d+(?:\.\d+)*)(?:\.\*)?\s*$", r"==\1.*", text))
    except InvalidSpecifier:
        return None


def pythons() -> list[str]:
    """Return Pythons to try limits with, older ones than ours and later ones."""
    return ["2.7", *(f"3.{minor}" for minor in range(40))]


def never_applies(marker: Marker | None) -> bool:
    """Say whether an environment marker holds on older Pythons, and on none that the distribution runs on."""
    if marker is None:
        return False
    held = [
        each
        for each in pythons()
        if marker.evaluate(
            {"extra": "", "python_version": each, "python_full_version": f"{each}.9"}
        )
    ]
    return bool(held) and not any(map(python_limit().contains, held))
