"""Both forms of the support module, and what stock streaming reads."""

import atexit
import contextlib
import gc
import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

# The module as ``--vendor`` copies it, under the name that it has in repositories.
COPIED = "mds_support"
FORMS = {"installed": "petastorm_bridge.native", "copied": COPIED}


@pytest.fixture(scope="session", autouse=True)
def copies(tmp_path_factory):
    """The folder with the copy; on the module search path, also of processes that tests start."""
    pytest.importorskip("streaming", reason="needs the extra [streaming]")
    from petastorm_bridge.native import support

    folder = tmp_path_factory.mktemp("copies")
    shutil.copy(Path(support.__file__), folder / f"{COPIED}.py")
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    yield folder
    patch.undo()
    sys.modules.pop(COPIED, None)


@pytest.fixture(autouse=True)
def memory_goes_with_the_test(streaming, monkeypatch):
    """Streaming keeps the shared memory of every dataset until the process ends, a dozen descriptors each.

    Later ones open, and keep, what earlier ones have that were never iterated over: hundreds of tests in one
    process would use up its descriptors.
    """
    from streaming.base.shared import SharedMemory

    made = []
    initialise = SharedMemory.__init__

    def recorded(self, *arguments, **options):
        initialise(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(SharedMemory, "__init__", recorded)
    yield
    gc.collect()  # arrays on the memory of datasets that the test has dropped
    for shared in made:
        atexit.unregister(shared.cleanup)
        with contextlib.suppress(BufferError):  # a dataset of the whole module is on it
            shared.cleanup()


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
