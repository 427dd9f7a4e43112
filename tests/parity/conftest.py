"""Tables to record, and the ways to break them."""

import sys
from pathlib import Path

import pytest

# Tests are no package; the helpers of this folder are found by its path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def _libraries():
    """Import what recordings are made of before any clock runs."""
    import pyarrow.compute  # noqa: F401
