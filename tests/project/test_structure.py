"""The house as its imports draw it: nothing goes in a circle, and no room needs one that lies above it."""

import graphlib
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import rooms  # noqa: E402 - of that folder

# The rooms of each folder that has folders in it, from the lowest to the highest. A room is a folder or a
# module; it imports lower rooms only. The one way from the sources of rows to a batch, a verdict or a diff
# can be read off here.
ROOMS = {
    "petastorm_bridge": """
        mds mds_support fs_utils _workers _tables errors cache
        _blocks unischema codecs transform predicates selectors ngram
        _sources streaming reader weighted_sampling_reader
        pytorch tf_utils
        utils etl spark_utils tools generator test_util
        spark
        convert
        __init__
        native
        parity
        cli __main__
    """,
    "petastorm_bridge._sources": """
        _far __init__
        source parquet_schema parquet_files far_parquet parquet_reading
        files_source table_formats live_table delta iceberg
        mds parquet table far_mds open
    """,
    "petastorm_bridge.reader": """
        _typing _ranks _selection _sharding
        _plan _job
        _pool
        _arguments _passes _reader
        _rows
        __init__
    """,
    "petastorm_bridge.spark": """
        _session
        _directory _writing
        spark_dataset_converter
        __init__
    """,
    "petastorm_bridge.parity": """
        recorder _recordings
        _result _comparing _reports
        __init__
        _running pytest_plugin
    """,
    "petastorm_codemods": """
        __init__ _model _options _text
        _petastorm _meaning _project _rewriting
        _registry rules
        _settings _plan _engine _processes _run
        _reports _doctor _terminal _cli
    """,
}
# Rules register themselves: the registry loads whatever modules lie in their folder, and knows none of them.
LOADED = ("petastorm_codemods._registry", "petastorm_codemods.rules")
MODULES = rooms.modules()
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@pytest.fixture(scope="module")
def graph():
    graph = rooms.imports(MODULES)
    graph[LOADED[0]].discard(LOADED[1])
    return graph


def room(folder, name):
    """The room of a folder that a module is in, or is; None if it is in none."""
    if name == folder:
        return "__init__"
    return name[len(folder) + 1 :].split(".")[0] if name.startswith(f"{folder}.") else None


def test_imports_are_read(graph):
    """Relative and absolute ones, in functions and under TYPE_CHECKING."""
    assert "petastorm_bridge.mds.errors" in graph["petastorm_bridge.mds.shard"]
    assert "petastorm_bridge.reader" in graph["petastorm_bridge"]
    assert "petastorm_codemods._model" in graph["petastorm_codemods._meaning.analysis"]
    assert "petastorm_codemods._meaning.analysis" in graph["petastorm_codemods._registry"]
    assert sum(map(len, graph.values())) > len(MODULES) > 150


def test_no_import_goes_in_a_circle(graph):
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imported by ".join(error.args[1]))


def test_every_folder_with_folders_has_an_order_of_all_its_rooms():
    with_folders = {name.rpartition(".")[0] for name in PACKAGES} - {""}
    assert with_folders == set(ROOMS)
    for folder, order in ROOMS.items():
        there = {room(folder, name) for name in MODULES} - {None}
        assert sorted(order.split()) == sorted(there), folder


@pytest.mark.parametrize("folder", ROOMS)
def test_no_room_imports_a_higher_one(graph, folder):
    order = ROOMS[folder].split()
    up = []
    for name, imported in graph.items():
        for other in imported:
            here, there = room(folder, name), room(folder, other)
            if None not in {here, there} and order.index(here) < order.index(there):
                up.append(f"{here} needs {there}: {name} imports {other}")
    assert not up, "\n".join(sorted(up))


def test_the_test_sees_a_circle_and_an_arrow_up(graph):
    """Of a module that every other room stands on."""
    low, high = "petastorm_codemods._model", "petastorm_codemods._cli"
    climbing = graph | {low: {high}}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(climbing).prepare()
    with pytest.raises(AssertionError, match="_model needs _cli"):
        test_no_room_imports_a_higher_one(climbing, "petastorm_codemods")
