"""The scenarios of the option matrix: programs that run on both packages.

A scenario's name is the name of the measured behaviour it repeats (see `behaviours.txt`), with a
suffix in brackets where one behaviour needs several scenarios; other names are our own.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from parity_harness.session import Session

Program = Callable[[Session], object]


@dataclass(frozen=True)
class Scenario:
    """One program.

    Attributes:
        name: Unique among all scenarios.
        program: What to run.
        order: Whether rows are compared in order; otherwise as a multiset.
        seconds: When to call it a hang.
    """

    name: str
    program: Program
    order: bool = True
    seconds: float = 120

    def __str__(self) -> str:
        return self.name


class Scenarios:
    """A list of scenarios that is easy to fill."""

    def __init__(self) -> None:
        self._found: dict[str, Scenario] = {}

    def __iter__(self) -> Iterator[Scenario]:
        return iter(self._found.values())

    def add(self, name: str, program: Program, *, order: bool = True, seconds: float = 120) -> None:
        """Add one scenario."""
        if name in self._found:
            raise ValueError(f"two scenarios are called {name!r}")
        self._found[name] = Scenario(name, program, order, seconds)

    def load(
        self,
        name: str,
        source: str,
        loader: str = "torch",
        *,
        order: bool = True,
        seconds: float = 120,
        **options: object,
    ) -> None:
        """Add a scenario that loads a frame with these options."""
        self.add(
            name,
            lambda session: session.load(source, loader, **options),  # type: ignore[arg-type]
            order=order,
            seconds=seconds,
        )

    def define(
        self, name: str, *, order: bool = True, seconds: float = 120
    ) -> Callable[[Program], Program]:
        """Add the decorated function."""

        def register(program: Program) -> Program:
            self.add(name, program, order=order, seconds=seconds)
            return program

        return register


def all_names() -> Iterator[str]:
    """The names of all scenarios, of every column of the type matrix among them."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        loaded = importlib.import_module(module.name)
        for scenario in (*loaded.SCENARIOS, *getattr(loaded, "COLUMNS", ())):
            yield scenario.name
