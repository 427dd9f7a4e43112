"""Both forms of the support module, and what stock streaming reads."""

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest
import shared_memory

# The module as ``--vendor`` copies it, under the name that it has in repositories.
COPIED = "mds_support"
FORMS = {"installed": "petastorm_bridge.native", "copied": COPIED}


@pytest.fixture(scope="session", autouse=True)
def copies(tmp_path_factory):
    """The folder with the copy; on the module search path, also of processes that tests start."""
    pytest.importorskip("streaming", reason="needs the extra [streaming]")
    from petastorm_bridge import mds_support as support

    folder = tmp_path_factory.mktemp("copies")
    shutil.copy(Path(support.__file__), folder / f"{COPIED}.py")
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    yield folder
    patch.undo()
    sys.modules.pop(COPIED, None)


@pytest.fixture(autouse=True)
def memory_goes_with_the_test(streaming):
    """Some hundred tests of a process open datasets."""
    with shared_memory.goes_afterwards():
        yield


@pytest.fixture(scope="module")
def streaming():
    return pytest.importorskip("streaming", reason="needs the extra [streaming]")


@pytest.fixture(scope="module", params=list(FORMS))
def native(request, copies):
    """The module that the package offers, and the one that goes into repositories."""
    return importlib.import_module(FORMS[request.param])


@pytest.fixture(scope="module")
def write_mds(native):
    return native.write_mds


@pytest.fixture(scope="module")
def installed(copies):
    """The package's own module, where the form makes no difference."""
    return importlib.import_module(FORMS["installed"])


@pytest.fixture(scope="module")
def copied(copies):
    """The file that goes into repositories, for what both forms have the same code for: all but writing and deleting."""
    return importlib.import_module(COPIED)


@pytest.fixture(scope="module")
def both_writers(copies):
    return {form: importlib.import_module(module).write_mds for form, module in FORMS.items()}


@pytest.fixture(scope="module")
def loader(streaming):
    """A loader of streaming's own on a directory, as rewritten code has it."""

    def make(directory, batch_size=4, collate_fn=None, num_workers=0, drop_last=False, **arguments):
        dataset = streaming.StreamingDataset(
            remote=directory.remote, local=directory.local, batch_size=batch_size, **arguments
        )
        return streaming.StreamingDataLoader(
            dataset,
            batch_size=batch_size,
            collate_fn=collate_fn,
            num_workers=num_workers,
            drop_last=drop_last,
        )

    return make
