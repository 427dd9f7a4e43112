"""Both forms of the writer, and what stock streaming reads."""

import importlib

import pytest

WRITERS = {
    "installed": "petastorm_bridge.native.writing",
    "vendored": "petastorm_bridge.native._vendored_writing",
}


@pytest.fixture(scope="module", autouse=True)
def streaming():
    return pytest.importorskip("streaming", reason="needs the extra [streaming]")


@pytest.fixture(scope="module", params=list(WRITERS))
def write_mds(request):
    """The writer of the package, and the one that goes into repositories."""
    return importlib.import_module(WRITERS[request.param]).write_mds


@pytest.fixture(scope="module")
def installed():
    """The writer of the package, where the form makes no difference."""
    return importlib.import_module(WRITERS["installed"]).write_mds


@pytest.fixture(scope="module")
def both_writers():
    return {form: importlib.import_module(module).write_mds for form, module in WRITERS.items()}


@pytest.fixture(scope="module")
def loader(streaming):
    """A loader of streaming's own on a directory."""

    def make(directory, batch_size=4, collate_fn=None, num_workers=0, **arguments):
        dataset = streaming.StreamingDataset(
            local=directory.path, batch_size=batch_size, **arguments
        )
        return streaming.StreamingDataLoader(
            dataset, batch_size=batch_size, collate_fn=collate_fn, num_workers=num_workers
        )

    return make
