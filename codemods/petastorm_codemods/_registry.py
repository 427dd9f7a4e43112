"""Rules register themselves: a module ``rules/pm0xx_name.py`` is all that a new one needs."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from ._model import Destination, Finding, Safety

if TYPE_CHECKING:
    from ._meaning.analysis import Analysis

Check = Callable[["Analysis"], Iterable[Finding]]

_RULES: dict[str, Rule] = {}


def _guide() -> str:
    """Return where the guide is published, with a slash behind; empty as long as it is nowhere."""
    try:
        urls = metadata.metadata("petastorm-bridge").get_all("Project-URL") or ()
    except metadata.PackageNotFoundError:
        return ""
    named = dict(url.split(", ", 1) for url in urls)
    address: str = named.get("Documentation", "")
    return address.rstrip("/") + "/" if address else ""


# From [project.urls], so that the address stands in one place.
GUIDE = _guide()


@dataclass(frozen=True)
class Rule:
    """A rule and what the guide says about it.

    Attributes:
        code: Stable code, ``PM`` and three digits.
        name: Short name, kebab case.
        summary: One sentence for reports.
        safety: The safety of most of its findings; a finding may be more careful.
        destinations: The destinations that the rule works for.
        check: Yields the findings of one source.
        text: Module docstring: what changes, why, and the source of truth.
        before: Example for the guide.
        after: What the example becomes; empty for manual rules.
    """

    code: str
    name: str
    summary: str
    safety: Safety
    destinations: frozenset[Destination]
    check: Check
    text: str
    before: str
    after: str

    @property
    def link(self) -> str:
        """Where the guide explains the rule; empty as long as it is published nowhere."""
        return f"{GUIDE}rules.md#{self.code.lower()}" if GUIDE else ""

    @property
    def command(self) -> str:
        """The command that explains the rule."""
        return f"petastorm-bridge rule {self.code}"


def rule(
    code: str,
    name: str,
    summary: str,
    *,
    safety: Safety,
    destinations: Iterable[Destination],
    text: str | None,
    before: str = "",
    after: str = "",
) -> Callable[[Check], Check]:
    """Return a decorator that registers a check as a rule; the arguments are those of `Rule`.

    Raises:
        ValueError: The code is taken.
    """

    def register(check: Check) -> Check:
        if code in _RULES:
            raise ValueError(f"rule code {code} is used twice")
        _RULES[code] = Rule(
            code=code,
            name=name,
            summary=summary,
            safety=safety,
            destinations=frozenset(destinations),
            check=check,
            text=inspect.cleandoc(text or ""),
            before=before,
            after=after,
        )
        return check

    return register


@functools.cache
def _load() -> None:
    from . import rules

    for module in pkgutil.iter_modules(rules.__path__):
        if module.name.startswith("pm"):
            importlib.import_module(f"{rules.__name__}.{module.name}")


def all_rules() -> tuple[Rule, ...]:
    """Return every rule in the order of the codes."""
    _load()
    return tuple(_RULES[code] for code in sorted(_RULES))


def selected(
    destination: Destination, select: Iterable[str] = (), ignore: Iterable[str] = ()
) -> Iterator[Rule]:
    """Yield the rules for a destination; selections are codes or prefixes of codes.

    Raises:
        ValueError: A selection matches no rule at all.
    """
    wanted, unwanted = tuple(select), tuple(ignore)
    rules = all_rules()
    for prefix in (*wanted, *unwanted):
        if not prefix or not any(each.code.startswith(prefix) for each in rules):
            known = ", ".join(each.code for each in rules)
            raise ValueError(f"no rule has the code {prefix!r}; there are {known}")
    for each in rules:
        chosen = not wanted or each.code.startswith(wanted)
        if (
            chosen
            and not (unwanted and each.code.startswith(unwanted))
            and destination in each.destinations
        ):
            yield each
