"""The oracle of this folder can be imported; datasets of its tests end before their process."""

import gc
import sys
from pathlib import Path

import pytest

# Tests are no package; the helpers of this folder are found by its path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def remembered_datasets():
    import forgetting

    forgetting.begin()
    yield
    forgetting.forget()


@pytest.fixture(autouse=True, scope="module")
def settled_objects():
    """What was there before a file's tests is not looked through after each of them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forgotten_datasets(remembered_datasets):
    """Streaming keeps datasets until the interpreter exits; tests make thousands."""
    import forgetting

    yield
    forgetting.forget()
