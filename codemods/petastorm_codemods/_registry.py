"""Rules register themselves: a module ``rules/pm0xx_name.py`` is all that a new one needs."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from ._model import Destination, Finding, Safety
from ._project.distribution import own_metadata

if TYPE_CHECKING:
    from ._meaning.analysis import Analysis

Check = Callable[["Analysis"], Iterable[Finding]]

_RULES: dict[str, Rule] = {}
# What write_mds returns has no loaders of Petastorm's, and streaming's loaders do not read Petastorm's files.
_TOGETHER = frozenset({"PM101", "PM102", "PM103"})


def _guide() -> str:
    """Return where the guide is published, with a slash behind; empty as long as it is nowhere."""
    named = dict(url.split(", ", 1) for url in own_metadata().get_all("Project-URL", []))
    address: str = named.get("Documentation", "")
    return address.rstrip("/") + "/" if address else ""


# From [project.urls], so that the address stands in one place.
GUIDE = _guide()


@dataclass(frozen=True)
class Rule:
    """A rule and what the guide says about it; as a decorator, it registers its check.

    Attributes:
        code: Stable code, ``PM`` and three digits.
        name: Short name, kebab case.
        summary: One sentence for reports.
        safety: The safety of most of its findings; a finding may be more careful.
        destinations: The destinations that the rule works for.
        text: What changes, why, and the source of truth; empty for the docstring of the check's module.
        before: Example for the guide.
        after: What the example becomes; empty for manual rules.
        check: Yields the findings of one source.
    """

    code: str
    name: str
    summary: str
    _: KW_ONLY
    safety: Safety
    destinations: Collection[Destination]
    text: str = ""
    before: str = ""
    after: str = ""
    check: Check = lambda _: ()

    def __call__(self, check: Check) -> Check:
        """Register the rule with its check.

        Raises:
            ValueError: The code is taken.
        """
        if self.code in _RULES:
            raise ValueError(f"rule code {self.code} is used twice")
        text = inspect.cleandoc(self.text or sys.modules[check.__module__].__doc__ or "")
        _RULES[self.code] = dataclasses.replace(self, check=check, text=text)
        return check

    @property
    def link(self) -> str:
        """Where the guide explains the rule; empty as long as it is published nowhere."""
        return f"{GUIDE}rules.md#{self.code.lower()}" if GUIDE else ""

    @property
    def command(self) -> str:
        """The command that explains the rule."""
        return f"petastorm-bridge rule {self.code}"


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
        ValueError: A selection matches no rule at all, or parts rules that only work together.
    """
    wanted, unwanted = tuple(select), tuple(ignore)
    rules = all_rules()
    for prefix in (*wanted, *unwanted):
        if not prefix or not any(each.code.startswith(prefix) for each in rules):
            known = ", ".join(each.code for each in rules)
            raise ValueError(f"no rule has the code {prefix!r}; there are {known}")
    chosen = [
        each
        for each in rules
        if (not wanted or each.code.startswith(wanted))
        and not (unwanted and each.code.startswith(unwanted))
    ]
    codes = {each.code for each in chosen}
    if destination is Destination.STREAMING and codes & _TOGETHER and not codes >= _TOGETHER:
        together = ", ".join(sorted(_TOGETHER))
        raise ValueError(f"converters and their loaders move together: choose all of {together}")
    yield from (each for each in chosen if destination in each.destinations)
