"""What the original gave, stored beside the scenarios: most runs need not ask it again.

What the original does to a scenario depends on the scenario, on the harness around it and on the
versions of the engines, and on nothing of this project. So its outcome is stored with a digest of
these. A stored outcome is good while both digests hold; otherwise the original is run. With the
original at hand a share of the scenarios, always the same, is run on it nevertheless, and must give
what is stored.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from parity_harness import HAS_ORIGINAL
from parity_harness.comparison import as_compared, differences
from parity_harness.judge import expectation, report
from parity_harness.outcome import Outcome
from parity_harness.stored_form import NotStorableError, from_json, to_json

LIVE = Path(__file__).resolve().parent.parent
OUTCOMES = LIVE / "outcomes"
# What decides, beside a scenario's own module, what the original is asked and how it is told.
HARNESS = ("columns", "frames", "frames_options", "original", "outcome", "session")
PACKAGES = ("petastorm", "pyarrow", "pandas", "pyspark", "numpy", "torch", "tensorflow-cpu")
# Of so many scenarios one is run on the original as well.
ONE_OF = 20
# The outcomes of loaders that never end are larger; they are asked for every time.
LARGEST = 40_000
# In these the original never ends.
NOT_STORED = {"batch_size=0 batched", "batch_size=-1 batched"}
# "live" in it: ask the original about every scenario.
VARIABLE = "PETASTORM_BRIDGE_PARITY"


class NotStoredError(Exception):
    """The original is not installed, and what it gives is not stored."""


def sources_digest(module: str) -> str:
    """Digest of the scenarios of a module and of what runs them."""
    scenarios = LIVE / "parity_scenarios"
    paths = [scenarios / "__init__.py", scenarios / f"{module}.py", LIVE / f"test_{module}.py"]
    paths += [LIVE / "parity_harness" / f"{name}.py" for name in HARNESS]
    return _digest([path for path in paths if path.is_file()])


@cache
def versions() -> dict[str, str]:
    """The versions on which the original's behaviour depends, of this environment."""
    found = {name: importlib.metadata.version(name).split("+")[0] for name in PACKAGES}
    return {"python": ".".join(platform.python_version_tuple()[:2]), **found}


def in_share(name: str) -> bool:
    """Whether a scenario belongs to those that are run on the original every time."""
    number = hashlib.sha256(name.encode()).digest()[:8]
    return int.from_bytes(number, "big") % ONE_OF == 0


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


class StoredOutcomes:
    """The original's outcomes of one module of scenarios.

    Attributes:
        why_live: Why none of them can be taken; empty if they can.
    """

    def __init__(self, module: str, *, recording: bool = False) -> None:
        self.module = module
        self.recording = recording
        self._path = OUTCOMES / f"{module}.json"
        self._sources = sources_digest(module)
        found = json.loads(self._path.read_text("utf-8")) if self._path.is_file() else {}
        self._outcomes: dict[str, Any] = found.get("outcomes", {})
        self._bases: dict[str, list[str]] = found.get("bases", {})
        self.why_live = self._reason(found)
        if recording and self.why_live:
            self._outcomes, self._bases = {}, {}

    def _reason(self, found: dict[str, Any]) -> str:
        if not found:
            return "nothing is stored"
        if found["sources"] != self._sources:
            return "what is stored is of other sources of the scenarios or the harness"
        if HAS_ORIGINAL and found["versions"] != versions():
            return f"what is stored is of other versions: {found['versions']}"
        return ""

    def __len__(self) -> int:
        return 0 if self.why_live else len(self._outcomes)

    def original(self, name: str, run: Callable[[], Outcome], *, order: bool = True) -> Outcome:
        """Give what the original gives: what is stored, or what it gives now.

        Args:
            name: Name of the scenario.
            run: Runs it on the original.
            order: Whether its rows come in one order.

        Raises:
            AssertionError: The original was run, and gave something else than what is stored.
            NotStoredError: It would have to be run, and is not installed.
        """
        known = None
        if not self.why_live and name in self._outcomes:
            known = from_json(self._outcomes[name], self._bases)
        if not HAS_ORIGINAL:
            if known is None:
                raise NotStoredError(self.why_live or "its outcome is not stored")
            return known
        if self.recording:
            found = run()
            self._store(name, found)
            return found
        live = os.environ.get(VARIABLE) == "live" or in_share(name)
        if known is not None and not live:
            return known
        found = run()
        # Where the packages are meant to differ, the original may give this or that; what it gives
        # is judged by the relation that is written down.
        if known is not None and expectation(name) is None:
            wrong = differences(as_compared(known, order=order), as_compared(found, order=order))
            assert not wrong, (
                f"the original gives (below: bridge) something else than what is stored "
                f"(below: petastorm); make parity-record stores it anew\n{report(name, wrong)}"
            )
        return found

    def _store(self, name: str, outcome: Outcome) -> None:
        self._outcomes.pop(name, None)
        with suppress(NotStorableError):
            form = to_json(outcome, self._bases)
            if len(_one_line(form)) <= LARGEST:
                self._outcomes[name] = form

    def save(self) -> None:
        """Write what was recorded."""
        head = {"sources": self._sources, "versions": versions()}
        parts = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        for title, table in (("bases", self._bases), ("outcomes", self._outcomes)):
            rows = (f"  {json.dumps(key)}: {_one_line(table[key])}" for key in sorted(table))
            parts.append(f" {json.dumps(title)}: {{\n" + ",\n".join(rows) + "\n }")
        OUTCOMES.mkdir(exist_ok=True)
        self._path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def _one_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
