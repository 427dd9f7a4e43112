"""Converting into a directory that somebody else has prepared: nothing that a link leads to is touched."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import read_table

from petastorm_bridge._sources.parquet_files import CONVERSION_NAME
from petastorm_bridge.convert import convert_dataset
from petastorm_bridge.mds.dataset import open_dataset

pytestmark = pytest.mark.modern


@pytest.fixture
def store(tmp_path):
    (tmp_path / "store").mkdir()
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "store" / "0.parquet")
    return tmp_path / "store"


@pytest.fixture
def precious(tmp_path):
    """A directory of somebody's, and what is in it."""
    folder = tmp_path / "precious"
    folder.mkdir()
    for name in ("thesis.txt", "plan.json", "lock", "part-00000.json", "shard.00000.00000.mds"):
        (folder / name).write_text("mine")
    return folder


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("target", ["precious", "nowhere", "precious/thesis.txt"])
@pytest.mark.parametrize("is_finished", [False, True])
def test_notes_that_are_a_link(store, precious, tmp_path, target, is_finished):
    before = contents(precious)
    made = tmp_path / "made"
    if is_finished:
        convert_dataset(store, made, workers=1)
    else:
        made.mkdir()
    (made / CONVERSION_NAME).symlink_to(tmp_path / target)
    with pytest.raises((FileExistsError, RuntimeError), match=r"is a link|damaged"):
        convert_dataset(store, made, workers=1)
    assert contents(precious) == before
    assert not (tmp_path / "nowhere").exists()
    assert (made / CONVERSION_NAME).is_symlink()


def test_a_lock_that_is_a_link(store, tmp_path):
    made = tmp_path / "made"
    (made / CONVERSION_NAME).mkdir(parents=True)
    (made / CONVERSION_NAME / "lock").symlink_to(tmp_path / "outside")
    with pytest.raises(FileExistsError, match="lock is a link"):
        convert_dataset(store, made, workers=1)
    assert not (tmp_path / "outside").exists()


def test_links_under_names_of_ours_are_replaced_or_removed_themselves(store, precious, tmp_path):
    before = contents(precious)
    made = tmp_path / "made"
    notes = made / CONVERSION_NAME
    notes.mkdir(parents=True)
    for folder, name in (
        (notes, "part-00000.json"),
        (notes, "part-00007.json"),
        (notes, "plan.json.0123456789abcdef0123456789abcdef.tmp"),
    ):
        (folder / name).symlink_to(precious / "thesis.txt")
    convert_dataset(store, made, workers=1)
    assert contents(precious) == before
    assert not notes.exists()
    assert read_table(open_dataset(str(made)))["x"].to_pylist() == [1, 2, 3]


@pytest.mark.slow
def test_what_is_not_ours_stays(store, tmp_path):
    """Files of the user's, put there while a conversion is unfinished, and directories of our names."""
    made = tmp_path / "made"
    convert_dataset(store, made, workers=1)
    notes = made / CONVERSION_NAME
    notes.mkdir()
    mine = ["mine.txt", "part-x.json", "part-00000.json.bak", "locks"]
    for name in mine:
        (notes / name).write_text("mine")
    (notes / "part-00001.json").mkdir()
    others = ["shard.notes.mds.txt", "shard.mds", "shard.00000.00000.mds.backup copy"]
    for name in others:
        (made / name).write_text("mine")
    (made / "shard.00009.00000.mds").mkdir()
    (made / "shard.00008.00000.mds").write_text("left by a run that was killed")
    done = convert_dataset(store, made, workers=1)
    assert done.was_finished
    assert {path.name for path in notes.iterdir()} == {*mine, "part-00001.json"}
    assert {*others, "shard.00009.00000.mds"} <= set(os.listdir(made))
    assert not (made / "shard.00008.00000.mds").exists()


def test_a_directory_in_the_table_that_a_file_is_of(store, tmp_path):
    os.rename(store / "0.parquet", store / "part-00000.parquet")
    with pytest.raises(ValueError, match="lies in the table that the file"):
        convert_dataset(store / "part-00000.parquet", store / "new", workers=1)
    os.rename(store / "part-00000.parquet", store / "alone.parquet")
    convert_dataset(store / "alone.parquet", store / "new", workers=1)
    assert pq.read_table(tmp_path / "store" / "alone.parquet")["x"].to_pylist() == [1, 2, 3]
