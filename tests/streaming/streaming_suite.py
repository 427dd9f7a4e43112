"""Streaming's own tests of StreamingDataset, all in one process, with MappedStreamingDataset in its place.

The tests lie in the source distribution of streaming, and are read from there; no line of them is kept here::

    pip download --no-deps --no-binary :all: mosaicml-streaming==0.13.0
    tar xf mosaicml_streaming-0.13.0.tar.gz
    python tests/streaming/streaming_suite.py mosaicml_streaming-0.13.0

The exit code is 0 if all pass but the listed exceptions, and these fail. ``--stock`` runs the tests as they
are; arguments behind it are pytest's. What killed programs of streaming's left in /dev/shm costs a descriptor for each
file, stock more than mapped: with hundreds of them there the tests end in "Too many open files".
"""

import argparse
import collections
import os
import resource
import shutil
import sys
import types
from pathlib import Path

import pytest
import streaming
import streaming.base

# Of the files that make a StreamingDataset those that need no store, no launcher and no other helpers of theirs;
# today's pytest refuses to load test_mixing.
FILES = (
    "test_streaming", "test_reader", "test_stream", "test_shared", "test_eviction", "test_laziness",
    "test_hashing", "test_unsafe_types", "test_local", "test_array",
)  # fmt: skip
EXCEPTIONS = {
    "test_reader.py::test_invalid_index_json_exception": "an index that is no JSON is a DatasetError here",
    "test_reader.py::test_empty_shards_index_json_exception": "the same error says it in other words",
    "test_shared.py::test_state_dict_too_large": "what is no state is refused, in other words",
    "test_reader.py::test_accidental_shard_delete": "what is mapped needs no file: it is not fetched again",
}
# Depends on whether the shard is in use when the test deletes it.
SOMETIMES = {"test_reader.py::test_accidental_shard_delete"}
DESCRIPTORS = 1024  # as many as a process may have by default
_outcomes: dict[str, set[str]] = collections.defaultdict(set)


@pytest.fixture
def local_remote_dir(tmp_path):
    return str(tmp_path / "local"), str(tmp_path / "remote")


def convert_to_mds(out_root, dataset_name, num_samples=117, size_limit=1 << 8, offset=0, **options):
    """What streaming's tests, whose helpers are not in its distribution, expect of this one."""
    assert dataset_name == "sequencedataset"
    options.pop("keep_local", None)
    columns = {"id": "str", "sample": "int"}
    with streaming.MDSWriter(
        out=out_root, columns=columns, size_limit=size_limit, **options
    ) as writer:
        for number in range(offset, offset + num_samples):
            writer.write({"id": f"{number:06}", "sample": 3 * number})


def copy_all_files(source, destination):
    shutil.copytree(source, destination, dirs_exist_ok=True)


def pytest_configure(config):
    config.addinivalue_line("markers", "world_size(count): of streaming's own")


def pytest_runtest_logreport(report):
    path, _, test = report.nodeid.partition("::")
    name = f"{os.path.basename(path)}::{test}"
    if report.when == "call" or report.outcome != "passed":
        _outcomes[name].add(report.outcome)


def outcome_of(folder, arguments):
    """Run the tests; return what passed and failed, for each file, and what is not as listed."""
    sys.modules |= {name: types.ModuleType(name) for name in ("tests", "tests.common")}
    here = sys.modules["tests.common.utils"] = sys.modules[__name__]
    options = ["-q", "-W", "ignore", "--import-mode=importlib", "--timeout=300", "-c", os.devnull]
    plugins = [part for name in ("cacheprovider", "randomly") for part in ("-p", f"no:{name}")]
    paths = [str(folder / "tests" / f"{name}.py") for name in FILES]
    rootdir = f"--rootdir={folder / 'tests'}"
    pytest.main([*options, *plugins, rootdir, *arguments, *paths], plugins=[here])
    failed = {name for name, kinds in _outcomes.items() if "failed" in kinds}
    counts = collections.Counter(name.partition("::")[0] for name in _outcomes)
    for file, count in counts.items():
        passed = count - sum(name.startswith(f"{file}::") for name in failed)
        print(f"{file:<24} {passed:>4} of {count:>4}")
    return failed


def main():
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the unpacked source distribution of streaming")
    parser.add_argument("--stock", action="store_true", help="with streaming's own class")
    chosen, arguments = parser.parse_known_args()
    version = chosen.folder / "streaming" / "_version.py"
    if not version.is_file() or f"'{streaming.__version__}'" not in version.read_text("utf-8"):
        parser.error(
            f"{chosen.folder} is no source distribution of streaming {streaming.__version__}"
        )
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, most))
    if not chosen.stock:
        from petastorm_bridge.streaming import MappedStreamingDataset

        streaming.StreamingDataset = streaming.base.StreamingDataset = MappedStreamingDataset
    failed = outcome_of(chosen.folder.resolve(), arguments)
    expected = set() if chosen.stock else {*EXCEPTIONS} & {*_outcomes}
    for name in sorted(expected):
        print(f"{name}: {EXCEPTIONS[name]}")
    wrong = (failed ^ expected) - (SOMETIMES & expected)
    for name in sorted(wrong):
        print(f"{name}: {'fails' if name in failed else 'is listed, but passes'}")
    print(f"{len(_outcomes) - len(failed)} of {len(_outcomes)} tests of streaming's pass")
    sys.exit(bool(wrong) or not _outcomes)


if __name__ == "__main__":
    main()
