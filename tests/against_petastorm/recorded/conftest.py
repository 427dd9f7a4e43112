"""The scenarios of this folder are found by its path: tests are no package."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the original warn about its own age."""
    for item in items:
        if HERE in item.path.parents and "original" in item.name:
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session", autouse=True)
def _engines():
    """Import the engines where no clock runs."""
    import torch  # noqa: F401
