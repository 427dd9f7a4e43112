"""One shard for each of the processes that train together, with as many rows on every one."""

import collections
import json
import os
import subprocess
import sys
import textwrap
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastorm_bridge import make_batch_reader
from petastorm_bridge._reading import ranks
from petastorm_bridge._reading.plan import even_pieces, shard_pieces
from petastorm_bridge._reading.ranks import rank_and_world_size
from petastorm_bridge.errors import BridgeWarning, NoDataAvailableError
from petastorm_bridge.predicates import in_lambda, in_set

NAMES = ["RANK", "WORLD_SIZE", *(name for pair in ranks._LAUNCHERS for name in pair)]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ranks, "_warned", set())


@pytest.fixture
def world(monkeypatch):
    """``world(1, 3)`` makes this process rank 1 of 3."""

    def world(rank, size, names=("RANK", "WORLD_SIZE")):
        monkeypatch.setenv(names[0], str(rank))
        monkeypatch.setenv(names[1], str(size))

    return world


def rows_of(pieces):
    return [(piece.group, row) for piece in pieces for row in range(piece.start, piece.stop)]


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=8),
    st.integers(1, 6),
    st.booleans(),
    st.none() | st.integers(0, 3),
)
def test_every_shard_has_as_many_rows(counts, size, drop_last, seed):
    total = sum(counts)
    if total < size:
        return
    shards = [
        even_pieces(shard_pieces(counts, i, size, seed), total, size, drop_last=drop_last)
        for i in range(size)
    ]
    wanted = total // size if drop_last else -(-total // size)
    assert {len(rows_of(shard)) for shard in shards} == {wanted}
    read = collections.Counter(row for shard in shards for row in rows_of(shard))
    if drop_last:
        assert set(read.values()) <= {1}
        assert len(read) == wanted * size
    else:
        assert len(read) == total  # the union is the table
        assert sum(read.values()) - total == wanted * size - total
        for shard in shards:  # what is read twice is read twice by one rank
            assert len(rows_of(shard)) - len(set(rows_of(shard))) <= 1


def test_shards_without_rows_are_refused():
    with pytest.raises(NoDataAvailableError, match="Asked for 3 shards of 2 rows"):
        even_pieces([], 2, 3, drop_last=False)


def ids(url, **options):
    with make_batch_reader(url, shuffle_row_groups=False, **options) as reader:
        return [int(i) for batch in reader for i in batch.id]


@pytest.mark.parametrize("names", [("RANK", "WORLD_SIZE"), *ranks._LAUNCHERS])
def test_the_rank_comes_from_the_environment(world, numbered, names):
    url = numbered(7, [4, 3])
    parts = []
    for rank in range(2):
        world(rank, 2, names)
        parts.append(ids(url, shard_by_rank=True))
    assert [len(part) for part in parts] == [4, 4]
    assert set(parts[0]) | set(parts[1]) == set(range(7))
    world(0, 2, names)
    assert len(ids(url, shard_by_rank=True, drop_last=True)) == 3


def test_a_process_that_trains_alone_reads_everything(numbered):
    assert rank_and_world_size() == (0, 1)
    assert ids(numbered(7, [4, 3]), shard_by_rank=True) == list(range(7))


def test_epochs_are_even_as_well(world, numbered):
    world(1, 2)
    assert len(ids(numbered(7, [4, 3]), shard_by_rank=True, num_epochs=3)) == 12


def test_len_is_that_of_every_rank(world, numbered):
    from petastorm_bridge.pytorch import DataLoader

    url = numbered(1001, [500, 501])
    for rank in range(2):
        world(rank, 2)
        with DataLoader(make_batch_reader(url, shard_by_rank=True), batch_size=50) as loader:
            assert len(loader) == 11
            assert sum(1 for _ in loader) == 11


@pytest.mark.parametrize(
    "environment",
    [{"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "x", "WORLD_SIZE": "2"}],
    ids=["beyond", "no number"],
)
def test_a_rank_that_cannot_be_is_refused(monkeypatch, numbered, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="RANK"):
        make_batch_reader(numbered(7), shard_by_rank=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"shard_by_rank": True, "cur_shard": 0, "shard_count": 2}, "Pass one or the other"),
        (
            {"shard_by_rank": True, "predicate": in_lambda(["id"], lambda i: i > 2)},
            "Filter the DataFrame",
        ),
        ({"shard_by_rank": True, "filters": [("id", ">", 2)]}, "Filter the DataFrame"),
    ],
)
def test_what_does_not_go_together_is_refused(world, numbered, options, text):
    world(0, 2)
    with pytest.raises(ValueError, match=text):
        make_batch_reader(numbered(7), **options)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_half_a_rank_is_refused(monkeypatch, numbered, name):
    monkeypatch.setenv(name, "1")
    with pytest.raises(ValueError, match=f"only {name} is set"):
        make_batch_reader(numbered(7), shard_by_rank=True)


def test_dropping_goes_with_ranks_only(numbered):
    with pytest.raises(TypeError, match="goes with shard_by_rank=True"):
        make_batch_reader(numbered(7), drop_last=True)


def test_partitions_are_chosen_before_rows_are_counted(world, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({"id": range(10), "part": ["a"] * 7 + ["b"] * 3})
    parquet.write_to_dataset(table, str(tmp_path / "t"), partition_cols=["part"])
    read = []
    for rank in range(2):
        world(rank, 2)
        url = f"file://{tmp_path}/t"
        read.append(ids(url, shard_by_rank=True, predicate=in_set({"a"}, "part")))
    assert [len(part) for part in read] == [4, 4]
    assert set(read[0]) | set(read[1]) == set(range(7))


@pytest.mark.difference("rank-reads-everything")
def test_ranks_that_read_everything_are_told_so_once(world, numbered):
    url = numbered(7)
    world(1, 2)
    with pytest.warns(BridgeWarning, match="rank 1 of 2 and no shard was asked for") as caught:
        assert ids(url) == list(range(7))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids(url)


def test_ranks_that_mean_it_are_not_told(world, numbered):
    url = numbered(7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids(url)
        world(0, 1)
        ids(url)
        world(1, 2)
        assert ids(url, cur_shard=0, shard_count=1) == list(range(7))
        ids(url, shard_by_rank=True)


TRAINING = """
    import json, sys, torch
    from torch.nn.parallel import DistributedDataParallel
    from petastorm_bridge import make_batch_reader
    from petastorm_bridge.pytorch import DataLoader

    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    ids = []
    with DataLoader(make_batch_reader(sys.argv[1], shard_by_rank=True), batch_size=50) as loader:
        for batch in loader:
            model(batch["x"][:, None]).sum().backward()
            ids += batch["id"].tolist()
    with open(f"{sys.argv[2]}/{torch.distributed.get_rank()}.json", "w") as file:
        json.dump(ids, file)
    torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_uneven_rows_train_on_two_ranks(numbered, tmp_path):
    """501 and 500 rows in batches of 50: without even shards the last step waits for ever."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    path = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    done = subprocess.run(
        [*command, str(script), numbered(1001, [400, 601]), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    read = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [len(part) for part in read] == [501, 501]
    assert set(read[0]) | set(read[1]) == set(range(1001))
