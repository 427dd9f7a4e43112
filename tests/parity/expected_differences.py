"""Where the bridge is meant to differ from the original, scenario by scenario.

An entry must be true: a scenario that it names has to differ, in the way that its relation says.
An entry that names no scenario fails the suite as well.
"""

from __future__ import annotations

from parity_harness.judge import Expected

EXPECTED: tuple[Expected, ...] = ()
