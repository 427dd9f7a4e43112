"""The mount and the store that the tests have too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from far_mount import FarMount, far_mount, no_mount_because
from far_store import FarStore, far_store, no_store_because

__all__ = [
    "FarMount",
    "FarStore",
    "far_mount",
    "far_store",
    "no_mount_because",
    "no_store_because",
]
