"""The oracle of this folder can be imported; streaming's lock files go where they are deleted."""

import sys
import tempfile
from pathlib import Path

import pytest

# Tests are no package; the helpers of this folder are found by its path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def folder_for_locks(tmp_path_factory):
    """Streaming leaves two files for every dataset, and looks at all of them for every further one."""
    before = tempfile.gettempdir()
    tempfile.tempdir = str(tmp_path_factory.mktemp("locks"))
    yield
    tempfile.tempdir = before


@pytest.fixture(autouse=True, scope="session")
def remembered_datasets(folder_for_locks):
    import forgetting

    forgetting.begin()
    yield
    forgetting.forget()


@pytest.fixture(autouse=True)
def forgotten_datasets(remembered_datasets):
    """Streaming keeps datasets until the interpreter exits; tests make thousands."""
    import forgetting

    yield
    forgetting.forget()
