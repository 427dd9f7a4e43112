"""One shard for each of the processes that train together, with as many rows on every one."""

import collections
import json
import os
import sys
import textwrap
import warnings

import pytest
import warm
from hypothesis import given
from hypothesis import strategies as st

from petastorm_bridge import make_batch_reader
from petastorm_bridge.errors import BridgeWarning, NoDataAvailableError
from petastorm_bridge.predicates import in_lambda, in_set
from petastorm_bridge.reader import _ranks as ranks
from petastorm_bridge.reader._plan import Plan, Randomness
from petastorm_bridge.reader._ranks import rank_and_world_size
from petastorm_bridge.reader._sharding import odd_rows, shard_pieces

NAMES = ["RANK", "WORLD_SIZE", "TF_CONFIG", *(name for pair in ranks._LAUNCHERS for name in pair)]


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
    st.booleans(),
)
def test_every_shard_has_as_many_rows(counts, size, drop_last, seed, shuffled):
    """And over the epochs each row of a shard is once the one that is read twice, or not at all."""
    total = sum(counts)
    if total < size:
        return
    wanted = total // size if drop_last else -(-total // size)
    read, odd = collections.Counter(), collections.defaultdict(collections.Counter)
    for shard in range(size):
        pieces = shard_pieces(counts, shard, size, seed)
        every = set(rows_of(pieces))
        plan = Plan(
            pieces,
            shuffle_pieces=shuffled,
            shuffle_rows=shuffled,
            randomness=Randomness(seed),
            odd_rows=odd_rows(len(every), total, size, drop_last=drop_last),
        )
        assert plan.rows == wanted
        visits = list(plan.visits(len(every)))
        assert sum(visit.ends_epoch for visit in visits) == len(every)
        epoch = collections.Counter()
        for visit in visits:
            order = range(len(visit.piece)) if visit.order is None else visit.order
            epoch.update((visit.piece.group, visit.piece.start + row) for row in order)
            if visit.ends_epoch:
                assert epoch.total() == wanted
                odd[shard].update((every - set(epoch)) | {row for row, n in epoch.items() if n > 1})
                read.update(epoch)
                epoch = collections.Counter()
        assert set(odd[shard].values()) <= {1}
        assert set(odd[shard]) in (set(), every)
    assert len(read) == total or (drop_last and min(map(len, odd.values())) == 1)


def test_shards_without_rows_are_refused():
    with pytest.raises(NoDataAvailableError, match="Asked for 3 shards of 2 rows"):
        odd_rows(0, 2, 3, drop_last=False)


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


@pytest.mark.parametrize(
    ("kind", "index", "expected"),
    [("chief", 0, (0, 3)), ("worker", 1, (2, 3)), ("evaluator", 0, (0, 1)), ("ps", 1, (0, 1))],
)
def test_the_rank_comes_from_tensorflows_configuration(monkeypatch, kind, index, expected):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1", "e:1"]}
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert rank_and_world_size() == expected
    monkeypatch.setenv("TF_CONFIG", json.dumps({"task": {"type": kind, "index": 0}}))
    assert rank_and_world_size() == (0, 1)


@pytest.mark.parametrize("config", ["{", "[]", '{"task": {"index": "x"}}', '{"cluster": 3}'])
def test_a_configuration_that_is_none_is_refused(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="TF_CONFIG"):
        rank_and_world_size()


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


@pytest.mark.parametrize("drop_last", [False, True])
def test_three_ranks_go_on_in_the_middle_of_their_second_epoch(world, numbered, drop_last):
    """From states that each of them has saved, with as many steps left."""
    from petastorm_bridge.pytorch import DataLoader

    url = numbered(101, [60, 41])
    epochs, steps = collections.Counter(), set()
    for rank in range(3):
        world(rank, 3)
        options = {"seed": 4, "shuffle_rows": True, "shard_by_rank": True, "drop_last": drop_last}
        with DataLoader(make_batch_reader(url, **options), batch_size=7) as loader:
            first = sum(len(batch["id"]) for batch in loader)
            second = iter(loader)
            taken = [next(second)["id"].tolist() for _ in range(2)]
            state = json.loads(json.dumps(loader.state_dict()))
        with DataLoader(make_batch_reader(url, **options), batch_size=7) as loader:
            loader.load_state_dict(state)
            left = [batch["id"].tolist() for batch in loader]
        rows = [row for batch in taken + left for row in batch]
        assert len(rows) == first == (33 if drop_last else 34)
        epochs.update(rows)
        steps.add(len(left))
    assert steps == {3}
    assert len(epochs) == (99 if drop_last else 101)
    assert epochs.total() == (99 if drop_last else 102)


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"RANK": "x", "WORLD_SIZE": "2"},
        {"HOROVOD_RANK": "x", "HOROVOD_SIZE": "2"},
    ],
    ids=["beyond", "no number", "no number of Horovod's"],
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
        (
            {"cur_shard": 0, "shard_count": 2, "even_batches": True, "filters": [("id", ">", 2)]},
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


@pytest.mark.parametrize(
    "options",
    [
        {"drop_last": True},
        {"drop_last": True, "cur_shard": 0, "shard_count": 2},
        {"drop_last": True, "shard_by_rank": True, "even_batches": False},
        {"even_batches": True},
    ],
)
def test_evenness_goes_with_shards_only(numbered, options):
    with pytest.raises(TypeError, match="goes with shard_by_rank=True"):
        make_batch_reader(numbered(7), **options)


SIZES = [1, 2, 3, 49, 50, 51, 100]


@pytest.mark.parametrize("total", [99, 100, 101, 149, 151])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_even_shards_have_as_many_batches_and_say_what_they_did(numbered, total, count, drop_last):
    """With shards given by hand as well; whatever the size of the batches."""
    from petastorm_bridge.pytorch import DataLoader

    url = numbered(total, [40, total - 40])
    lengths, read = collections.defaultdict(set), collections.Counter()
    for shard in range(count):
        options = {"cur_shard": shard, "shard_count": count, "even_batches": True}
        with make_batch_reader(url, **options, drop_last=drop_last) as reader:
            for size in SIZES:
                lengths[size].add(len(DataLoader(reader, size)))
            (batches,) = [list(DataLoader(reader, 50))]
            assert len(batches) in lengths[50]
            read.update(row for batch in batches for row in batch["id"].tolist())
        for word, rows in (("repeated", reader.rows_repeated), ("dropped", reader.rows_dropped)):
            assert (f"{rows} rows {word}" in repr(reader)) == (rows > 0)
    assert all(len(found) == 1 for found in lengths.values())
    assert len(read) == total - reader.rows_dropped
    assert read.total() == total + reader.rows_repeated - reader.rows_dropped
    assert reader.rows_dropped == (total % count if drop_last else 0)
    assert reader.rows_repeated == (-total % count if not drop_last else 0)


def test_ranks_may_be_uneven(world, numbered):
    url, found = numbered(7, [4, 3]), []
    for rank in range(2):
        world(rank, 2)
        found.append(ids(url, shard_by_rank=True, even_batches=False))
    assert sorted(map(len, found)) == [3, 4]
    assert sorted(found[0] + found[1]) == list(range(7))


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
    from petastorm_bridge.pytorch import BatchedIterableDataset, DataLoader

    torch.distributed.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    read = []

    def train(name, batches):
        ids = []
        for batch in batches:
            model(batch["x"][:, None]).sum().backward()
            ids += batch["id"].tolist()
        read.append([name, ids])

    for size in (1, 16, 17, 18, 33, 34, 51, 101):
        for drop_last in (False, True):
            options = {"shard_by_rank": True, "drop_last": drop_last}
            with DataLoader(make_batch_reader(sys.argv[1], **options), batch_size=size) as loader:
                train(f"loader {size} {drop_last}", loader)
            data = BatchedIterableDataset(sys.argv[1], size, drop_last=drop_last)
            train(f"dataset {size} {drop_last}", torch.utils.data.DataLoader(data, batch_size=None))
    with open(f"{sys.argv[2]}/{torch.distributed.get_rank()}.json", "w") as file:
        json.dump(read, file)
    del model  # torch may wait for ever for a group that ends before its model
    torch.distributed.destroy_process_group()
"""


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.smoke), 3])
def test_uneven_rows_train_on_several_ranks(numbered, tmp_path, size):
    """101 rows in batches around their share: without even shards the last step waits for ever."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    path = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={size}"]
    done = warm.run(
        [*command, "--standalone", str(script), numbered(101, [40, 61]), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(size)]
    assert len(ranks[0]) == 32
    for parts in zip(*ranks, strict=True):
        ((name,), lists) = ({name for name, _ in parts}, [ids for _, ids in parts])
        is_dropped = name.endswith("True")
        share = 101 // size if is_dropped else -(-101 // size)
        assert [len(ids) for ids in lists] == [share] * size, name
        union = {row for ids in lists for row in ids}
        assert len(union) == (size * share if is_dropped else 101), name
