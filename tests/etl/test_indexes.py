"""Indexes of row groups are built and read without Spark."""

import shutil

import numpy as np
import pytest
from stored import write_stored

import petastorm_bridge
import petastorm_bridge.selectors
from petastorm_bridge.errors import BridgeWarning, PetastormMetadataError
from petastorm_bridge.etl.rowgroup_indexers import SingleFieldIndexer
from petastorm_bridge.etl.rowgroup_indexing import build_rowgroup_index
from petastorm_bridge.reader._rows.store import store_at
from petastorm_bridge.unischema import Unischema, UnischemaField

try:
    import petastorm
    import petastorm.selectors
except ImportError:  # today's versions
    petastorm = None

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
ID = UnischemaField("id", np.int64, (), None, False)
SCHEMA = Unischema("S", [ID])


def stored(path, numbers, **options):
    return write_stored(
        path, SCHEMA, [{"id": np.int64(i)} for i in numbers], row_group_rows=10, **options
    )


def selected(url, index, value, package=petastorm_bridge):
    selector = package.selectors.SingleIndexSelector(index, [value])
    with package.make_reader(
        url, rowgroup_selector=selector, shuffle_row_groups=False, reader_pool_type="dummy"
    ) as reader:
        return [int(row.id) for row in reader]


def test_files_added_after_an_index_was_built_need_another_one(tmp_path):
    """The index numbers the row groups of all files, and a file may come before others."""
    url = stored(tmp_path / "t", range(40), files=2)
    build_rowgroup_index(url, None, [SingleFieldIndexer("by id", "id")])
    assert selected(url, "by id", 25) == list(range(20, 30))
    stored(tmp_path / "more", range(100, 110), files=1)
    shutil.copy(tmp_path / "more" / "part-00000.parquet", tmp_path / "t" / "added.parquet")
    with pytest.raises(PetastormMetadataError, match="build_rowgroup_index again"):
        selected(url, "by id", 25)
    build_rowgroup_index(url, None, [SingleFieldIndexer("by id", "id")])
    for package in filter(None, (petastorm_bridge, petastorm)):
        assert selected(url, "by id", 25, package) == list(range(20, 30))
        assert selected(url, "by id", 105, package) == list(range(100, 110))


@pytest.mark.parametrize("damage", [b"{", b"[1]", b"[" * 100_000])
def test_damaged_numbers_of_row_groups_select_nothing(tmp_path, damage):
    url = stored(tmp_path / "t", range(20))
    build_rowgroup_index(url, None, [SingleFieldIndexer("by id", "id")])
    store_at(url).note(b"dataset-toolkit.num_row_groups_per_file.v1", damage)
    with pytest.raises(PetastormMetadataError, match="build_rowgroup_index again"):
        selected(url, "by id", 5)


@pytest.mark.difference("partitions-of-booleans")
def test_a_boolean_partition_is_indexed_by_its_values(tmp_path):
    schema = Unischema("S", [ID, UnischemaField("flag", np.bool_, (), None, False)])
    rows = [{"id": np.int64(i), "flag": np.bool_(i % 2)} for i in range(4)]
    url = write_stored(tmp_path / "t", schema, rows, files=1, partition="flag")
    build_rowgroup_index(url, None, [SingleFieldIndexer("by flag", "flag")])
    assert selected(url, "by flag", True) == [1, 3]
    assert selected(url, "by flag", False) == [0, 2]


class OwnIndexer(SingleFieldIndexer):
    """Of a program."""


def test_an_indexer_of_ones_own_is_warned_of(tmp_path):
    url = stored(tmp_path / "t", range(3))
    with pytest.warns(BridgeWarning, match="'mine' is of a class of your own, OwnIndexer"):
        build_rowgroup_index(url, None, [OwnIndexer("mine", "id")])


def test_a_column_that_is_not_there_is_named(tmp_path):
    url = stored(tmp_path / "t", range(3))
    with pytest.raises(ValueError, match="no columns nope to index"):
        build_rowgroup_index(url, None, [SingleFieldIndexer("x", "nope")])
