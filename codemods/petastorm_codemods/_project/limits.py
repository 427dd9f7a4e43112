"""What our own distribution needs, read from its metadata, and whether other limits contradict it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from importlib import metadata

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

DISTRIBUTION = "petastorm-bridge"
# Minor releases that a limit on Python is tried with; there will hardly be more of them.
_MINORS = 40


@functools.cache
def _requirements() -> tuple[Requirement, ...]:
    """Return what the distribution requires; nothing where it is not installed, as in a checkout."""
    try:
        return tuple(map(Requirement, metadata.requires(DISTRIBUTION) or ()))
    except metadata.PackageNotFoundError:
        return ()


@functools.cache
def python_limit() -> SpecifierSet:
    """Return the Pythons that the distribution runs on."""
    try:
        return SpecifierSet(metadata.metadata(DISTRIBUTION)["Requires-Python"] or "")
    except metadata.PackageNotFoundError:
        return SpecifierSet()


@functools.cache
def limits(extras: frozenset[str], alone: frozenset[str] = frozenset()) -> dict[str, SpecifierSet]:
    """Return the limits of what the distribution brings with some extras, by canonical name.

    Args:
        extras: The names of the extras; those that they bring themselves count as well.
        alone: Names of packages whose limits count whichever extra brings them: programs use them
            that ask for none.
    """
    found: dict[str, SpecifierSet] = {}
    asked = _with_inner(extras)
    for each in _requirements():
        name = canonicalize_name(each.name)
        if _is_brought(each, asked) or name in alone:
            found[name] = found.get(name, SpecifierSet()) & each.specifier
    return found


def bringer(name: str, package: str) -> str:
    """Return a requirement that brings the limit on a distribution; the package itself if it does.

    Args:
        name: Canonical name of the distribution.
        package: The requirement that is asked for.
    """
    if name in limits(frozenset(Requirement(package).extras)):
        return package
    extras = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ()
    bringing = (each for each in extras if each != "all" and name in limits(frozenset({each})))
    extra = next(bringing, "")
    return f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION


def _with_inner(extras: frozenset[str]) -> frozenset[str]:
    """Return extras together with those that they consist of, as `all` does."""
    found = extras
    for each in _requirements():
        if canonicalize_name(each.name) == DISTRIBUTION and _is_brought(each, extras):
            found |= each.extras
    return found if found == extras else _with_inner(found)


def _is_brought(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(_holds(marker, extra=extra) for extra in extras)


def contradict(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Say whether no version at all is within both limits.

    Limits change at the versions that they name, so that those and their neighbours tell.
    """
    both = one & other
    return not any(both.contains(version, prereleases=True) for version in _candidates(both))


def _candidates(limit: SpecifierSet) -> Iterator[Version]:
    yield from (Version("0"), Version("99999"))
    for each in limit:
        try:
            version = Version(each.version.removesuffix(".*"))
        except InvalidVersion:  # === compares texts
            continue
        yield version
        release = version.release
        yield from (_version(*release, 1), _version(*release[:-1], release[-1] + 1))
        for number, part in enumerate(release):
            if part:  # just below it: 1.24 follows 1.23.99999 and 0.99999
                yield _version(*release[:number], part - 1, 99999)


def _version(*parts: int) -> Version:
    return Version(".".join(map(str, parts)))


def parsed(text: str) -> SpecifierSet | None:
    """Return the limits that a text gives as PEP 440, conda or Poetry write them; None if none does."""
    parts = [part.strip() for part in text.strip().strip("()").split(",")]
    try:
        return SpecifierSet(",".join(map(_plain, filter(None, parts))))
    except InvalidSpecifier:
        return None


def _plain(part: str) -> str:
    if part == "*":
        return ""
    caret = re.fullmatch(r"\^\s*(\d+(?:\.\d+)*)", part)
    if caret:
        numbers = [int(number) for number in caret[1].split(".")]
        first = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        above = [*numbers[:first], numbers[first] + 1]
        return f">={caret[1]},<{'.'.join(map(str, above))}"
    tilde = re.fullmatch(r"~\s*(\d+(?:\.\d+)*)", part)
    if tilde:
        numbers = [int(number) for number in tilde[1].split(".")][:2]
        above = [*numbers[:-1], numbers[-1] + 1]
        return f">={tilde[1]},<{'.'.join(map(str, above))}"
    one = re.fullmatch(r"=?\s*(\d+(?:\.\d+)*)(\.\*)?", part)
    if one:  # conda's =1.2 is any 1.2; a bare 1.2 is Poetry's for exactly that
        return f"=={one[1]}{'.*' if part.startswith('=') or one[2] else ''}"
    return part


def supports_more(limit: SpecifierSet) -> bool:
    """Say whether a limit on Python lets releases in that the distribution does not run on."""
    return any(limit.contains(each) and not python_limit().contains(each) for each in _pythons())


def excludes_all(limit: SpecifierSet) -> bool:
    """Say whether a limit on Python keeps out every release that the distribution runs on."""
    return not any(limit.contains(each) and python_limit().contains(each) for each in _pythons())


def _pythons() -> Iterator[str]:
    yield from ("2.7", "2.7.18")
    for minor in range(_MINORS):
        yield from (f"3.{minor}", f"3.{minor}.99")


def never_applies(marker: str) -> bool:
    """Say whether an environment marker holds on no Python that the distribution runs on."""
    limit = python_limit()
    pythons = [f"3.{minor}" for minor in range(_MINORS) if limit.contains(f"3.{minor}")]
    found = Marker(marker)
    return not any(
        _holds(found, python_version=each, python_full_version=f"{each}.9") for each in pythons
    )


def _holds(marker: Marker, **environment: str) -> bool:
    return marker.evaluate({"extra": "", **environment})
