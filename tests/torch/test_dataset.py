"""The dataset for torch's own ``DataLoader``: ranks, workers, epochs, going on later."""

import itertools
import os
import pickle
import sys
import tempfile
import types

import numpy as np
import pytest
import torch
import warm
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge.errors import BridgeWarning, NoDataAvailableError
from petastorm_bridge.predicates import in_lambda
from petastorm_bridge.pytorch import BatchedDataLoader, BatchedIterableDataset
from petastorm_bridge.pytorch import DataLoader as BridgeLoader
from petastorm_bridge.pytorch._epochs import Epochs
from petastorm_bridge.reader import _ranks as ranks
from petastorm_bridge.reader._plan import Part, Plan, Randomness, between, rows_of_part
from petastorm_bridge.reader._sharding import Piece

ROWS, SIZE = 47, 5
# Test machines have few cores.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata's own
]


@pytest.fixture
def url(numbered):
    return numbered(ROWS, [20, 7, 20])


@pytest.fixture
def dataset(url):
    """``dataset(**options)`` → a dataset of `id` 0 … 46 in batches of 5."""
    return lambda **options: BatchedIterableDataset(url, **{"batch_size": SIZE, **options})


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(ranks, "_warned", set())  # once in a process, and other tests were there

    def world(rank, size):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(size))

    return world


def batches(iterable):
    return [batch["id"].tolist() for batch in iterable]


def rows(iterable):
    return flat(batches(iterable))


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def as_set(found):
    return set(map(frozenset, found))


def positive(frame):
    return frame[frame["id"] > 3]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_batches_of_an_epoch_are_the_same_whatever_the_number_of_workers(dataset, workers):
    alone = dataset(seed=3)
    loader = DataLoader(dataset(seed=3), batch_size=None, num_workers=workers)
    for _ in range(2):
        expected, found = batches(alone), batches(loader)
        assert len(loader) == len(alone) == len(found) == 10
        assert as_set(found) == as_set(expected)
        assert sorted(flat(found)) == list(range(ROWS))


def test_the_first_epoch_is_that_of_a_loader(dataset, url):
    with BridgeLoader(make_batch_reader(url, seed=3), SIZE) as loader:
        assert batches(loader) == batches(dataset(seed=3))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_every_epoch_has_an_order_of_its_own_and_a_seed_has_them_again(dataset, workers):
    def epochs(**options):
        loader = DataLoader(dataset(**options), batch_size=None, num_workers=workers)
        return [batches(loader) for _ in range(3)]

    seeded = epochs(seed=1, shuffle_rows=True)
    assert len(set(map(str, seeded))) == 3
    assert seeded == epochs(seed=1, shuffle_rows=True)
    torch.manual_seed(5)
    drawn = epochs(shuffle_rows=True)
    assert len(set(map(str, drawn))) == 3
    torch.manual_seed(5)
    assert drawn == epochs(shuffle_rows=True)
    assert len(set(map(str, epochs(shuffle_row_groups=False)))) == 1


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}])
def test_an_epoch_may_be_set(dataset, options):
    orders = [batches(one) for one in [dataset(seed=1, shuffle_rows=True)] for _ in range(3)]
    for workers in (0, 2):
        kept = options if workers else {}
        data = dataset(seed=1, shuffle_rows=True)
        loader = DataLoader(data, batch_size=None, num_workers=workers, **kept)
        for epoch in (2, 0, 1):
            data.set_epoch(epoch)
            assert as_set(batches(loader)) == as_set(orders[epoch])
        assert as_set(batches(loader)) == as_set(orders[2])


def test_epochs_are_counted_beyond_the_room_there_is_for_them(monkeypatch):
    import petastorm_bridge.pytorch._epochs as module

    monkeypatch.setattr(module, "_CAPACITY", 2)
    epochs, seen = Epochs(), []
    for seed in (10, 20, 30, 40):
        info = types.SimpleNamespace(id=1, seed=seed + 1)
        monkeypatch.setattr(module, "get_worker_info", lambda info=info: info)
        epochs._again = 0  # another process
        seen.append(epochs.take())
    assert seen[:2] == [0, 1]
    assert len(set(seen)) == 4


@pytest.mark.parametrize(("drop_last", "expected"), [(False, 16), (True, 15)])
@pytest.mark.parametrize("workers", [0, 3])
def test_ranks_times_workers(dataset, world, workers, drop_last, expected):
    found = []
    for rank in range(3):
        world(rank, 3)
        data = dataset(drop_last=drop_last)
        loader = DataLoader(data, batch_size=None, num_workers=workers)
        found.append(rows(loader))
        assert len(loader) == len(data) == -(-expected // SIZE)
    assert [len(part) for part in found] == [expected] * 3
    union = flat(found)
    assert len(set(union)) == (ROWS if not drop_last else 45)


@given(st.integers(0, 60), st.integers(1, 9) | st.none(), st.integers(1, 12))
def test_parts_are_the_rows_and_begin_where_batches_do(rows, size, count):
    parts = [rows_of_part(Part(number, count, size), rows) for number in range(count)]
    assert [row for part in parts for row in part] == list(range(rows))
    batches_of_parts = sum(-(-len(part) // (size or rows or 1)) for part in parts)
    assert batches_of_parts == -(-rows // (size or rows or 1))


@given(st.integers(0, 40), st.integers(1, 4), st.integers(0, 9), st.booleans())
def test_a_part_may_be_gone_on_with(skipped, count, size, shuffled):
    """Visits of a part, without the first rows of it."""
    counts = [9, 0, 5, 12]
    pieces = [Piece(group, 0, rows) for group, rows in enumerate(counts)]

    def rows_of(visits):
        chosen = []
        for visit in visits:
            order = range(visit.num_rows) if visit.order is None else visit.order
            chosen += [(visit.piece.group, visit.piece.start + row) for row in order]
        return chosen

    def visits():
        plan = Plan(
            pieces, shuffle_pieces=shuffled, shuffle_rows=shuffled, randomness=Randomness(1)
        )
        return plan.visits(1)

    whole, found = rows_of(visits()), []
    for number in range(count):
        rows = rows_of_part(Part(number, count, size or None), len(whole))
        part = list(between(visits(), rows.start, rows.stop))
        assert [visit.ends_epoch for visit in part] == [False] * (len(part) - 1) + [True] * bool(
            part
        )
        found += rows_of(part)
        left = between(visits(), rows.start + skipped, rows.stop)
        assert rows_of(left) == rows_of(part)[skipped:]
    assert found == whole
    assert rows_of(between(visits(), skipped)) == whole[skipped:]


def test_ranks_may_be_uneven_or_read_everything(dataset, world):
    found = []
    for rank in range(3):
        world(rank, 3)
        found.append(rows(dataset(even_batches=False)))
    assert sorted(map(len, found)) == [15, 16, 16]
    assert sorted(flat(found)) == list(range(ROWS))
    with pytest.warns(BridgeWarning, match="each rank reads all"):
        assert sorted(rows(dataset(shard_by_rank=False))) == list(range(ROWS))


ALL = {
    "predicate": ({"predicate": in_lambda(["id"], lambda ids: ids > 3)}, 43),
    "filters": ({"filters": [("id", ">", 3)]}, 43),
    "transform": ({"transform_spec": TransformSpec(positive)}, 43),
}


@pytest.mark.parametrize(("options", "expected"), ALL.values(), ids=ALL)
def test_what_changes_rows_is_divided_among_workers_and_has_no_length(dataset, options, expected):
    data = dataset(**options)
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(data)
    for workers in (0, 2):
        found = rows(DataLoader(data, batch_size=None, num_workers=workers))
        assert sorted(found) == list(range(ROWS - expected, ROWS))


def test_rows_one_by_one_for_frameworks_that_make_the_batches(dataset):
    data = dataset(batch_size=None, seed=1)
    assert len(data) == ROWS
    assert {key: value.shape for key, value in next(iter(data)).items()} == {"id": (), "x": ()}
    expected = batches(DataLoader(dataset(batch_size=None, seed=1), batch_size=4))
    assert sorted(flat(expected)) == list(range(ROWS))
    for workers in (0, 2, 3):
        data.set_epoch(0)
        loader = DataLoader(data, batch_size=4, num_workers=workers)
        assert len(loader) == 12
        assert batches(loader) == expected  # frameworks stop after as many batches as `len` says


def test_another_loader_makes_the_batches(dataset):
    data = dataset(data_loader_fn=BatchedDataLoader, shuffling_queue_capacity=12, seed=2)
    for workers in (0, 2):
        loader = DataLoader(data, batch_size=None, num_workers=workers)
        assert sorted(rows(loader)) == list(range(ROWS))


@pytest.mark.parametrize("options", [{"batch_size": SIZE}, {"batch_size": None}])
@pytest.mark.parametrize("more", [{}, {"shuffling_queue_capacity": 12}, {"shuffle_rows": True}])
def test_an_epoch_goes_on_where_its_state_was_saved(dataset, options, more):
    whole = dataset(**options, **more)
    torch.manual_seed(2)
    states, seen = [whole.state_dict()], []
    for item in whole:
        seen.append(item["id"].tolist())
        states.append(whole.state_dict())
    states.append(whole.state_dict())  # the epoch is over
    for number in (1, 3, len(seen) - 1, len(seen), len(seen) + 1):
        torch.manual_seed(9)  # what was drawn is in the state
        other = dataset(**options, **more)
        other.load_state_dict(pickle.loads(pickle.dumps(states[number])))
        assert other.state_dict() == states[number]
        if number <= len(seen):
            assert batches(other) == seen[number:]
        assert len(batches(other)) == len(seen)


def test_what_is_no_state_is_refused(dataset, url):
    for state in (None, {}, {"version": 1}, {"version": 2, "epoch": 0}):
        with pytest.raises(ValueError, match="no state of a BatchedIterableDataset"):
            dataset().load_state_dict(state)
    with (
        BridgeLoader(make_batch_reader(url), SIZE) as loader,
        pytest.raises(ValueError, match="no state"),
    ):
        dataset().load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("workers", "more"), [(0, {}), (0, {"seed": 4}), (3, {}), (2, {"seed": 4})]
)
def test_torchdatas_loader_resumes_exactly(dataset, workers, more):
    """With the batches that came next, in the same order, and then with whole epochs."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        return stateful.StatefulDataLoader(
            dataset(shuffle_rows=True, **more), batch_size=None, num_workers=workers
        )

    whole = loader()
    epochs, states = [], {}
    for epoch in range(3):
        seen = []
        for batch in whole:
            seen.append(batch["id"].tolist())
            states[epoch, len(seen)] = pickle.dumps(whole.state_dict())
        epochs.append(seen)
    for epoch, number in ((0, 4), (1, 7), (1, 1)):
        resumed = loader()
        resumed.load_state_dict(pickle.loads(states[epoch, number]))
        assert batches(resumed) == epochs[epoch][number:]
        again = batches(resumed)
        assert sorted(flat(again)) == list(range(ROWS))
        if more:
            assert again == epochs[epoch + 1]
    assert len(set(map(str, epochs))) == 3


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}])
def test_torchdatas_loader_resumes_where_not_all_workers_have_begun(dataset, options):
    """In a second epoch, and once more where it was just resumed."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        data = dataset(shuffle_rows=True, seed=4)
        return stateful.StatefulDataLoader(data, batch_size=None, num_workers=2, **options)

    whole = loader()
    epochs = [batches(whole), batches(whole)]
    once = loader()
    rows(once)
    for taken in (1, 2):
        iterator = iter(once)
        assert next(iterator)["id"].tolist() == epochs[1][taken - 1]
        state = pickle.dumps(once.state_dict())
        once = loader()
        once.load_state_dict(pickle.loads(state))
    assert batches(once) == epochs[1][2:]


def test_a_loaded_state_stays_where_its_own_epoch_is_set(dataset):
    """As loops do that count their epochs."""
    data = dataset(seed=4)
    order = batches(data)
    for epoch, expected in ((0, order[2:]), (1, batches(data))):
        other = dataset(seed=4)
        iterator = iter(other)
        next(iterator)
        next(iterator)
        resumed = dataset(seed=4)
        resumed.load_state_dict(other.state_dict())
        resumed.set_epoch(epoch)
        assert batches(resumed) == expected


@pytest.mark.modern
@pytest.mark.slow
def test_spawned_workers(dataset):
    """Which know nothing of this process but what is pickled."""
    alone = dataset(seed=3)
    orders = [batches(alone) for _ in range(2)]
    loader = DataLoader(
        dataset(seed=3), batch_size=None, num_workers=2, multiprocessing_context="spawn"
    )
    for order in orders:
        assert as_set(batches(loader)) == as_set(order)


def test_a_pickled_dataset_is_small_and_goes_on_counting(dataset):
    data = dataset(seed=3)
    orders = [batches(data) for _ in range(2)]
    fresh = dataset(seed=3)
    rows(fresh)
    pickled = pickle.dumps(fresh)
    assert len(pickled) < 2000
    assert batches(pickle.loads(pickled)) == orders[1]


def test_it_shows_what_it_reads(dataset, url):
    shown = repr(dataset(seed=3))
    assert shown.startswith(f"<BatchedIterableDataset of {url.removeprefix('file://')}")
    assert shown.endswith("batch_size=5 seed=3 shard_by_rank=True rows=47 columns=['id', 'x']>")
    assert dataset()


REFUSED = {
    "num_epochs": ({"num_epochs": 2}, TypeError, "takes no num_epochs: an iteration is one epoch"),
    "cur_shard": ({"cur_shard": 0, "shard_count": 2}, TypeError, "takes no cur_shard"),
    "typo": ({"shufle_rows": True}, TypeError, "'shufle_rows'. Did you mean 'shuffle_rows'"),
    "size": ({"batch_size": 0}, ValueError, "at least 1"),
    "capacity": ({"shuffling_queue_capacity": None}, TypeError, "capacity is None, a NoneType"),
    "dropping": ({"drop_last": True, "shard_by_rank": False}, TypeError, "goes with shard_by_rank"),
}


@pytest.mark.parametrize(("options", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_go_together_is_said_at_once(dataset, options, error, text):
    with pytest.raises(error, match=text):
        dataset(**options)


def test_more_ranks_than_rows(dataset, world):
    world(0, 48)
    with pytest.raises(NoDataAvailableError):
        dataset()


def test_nothing_is_left_behind(dataset, no_leaks):
    data = dataset()
    rows(data)
    with no_leaks():
        iterator = iter(data)
        next(iterator)
        del iterator
        rows(DataLoader(data, batch_size=None, num_workers=2))


def test_no_rows(write):
    import pyarrow as pa

    empty = pa.table({"id": np.arange(0)})
    with pytest.warns(UserWarning, match="No matching data"):
        data = BatchedIterableDataset(write(empty, name="empty"), 4)
    with pytest.warns(UserWarning, match="No matching data"):
        assert len(data) == 0
    with pytest.warns(UserWarning, match="No matching data"):
        assert list(data) == []


DEEP = """
import sys, torch
from torch.utils.data import DataLoader
from petastorm_bridge.pytorch import BatchedIterableDataset

torch.multiprocessing.set_sharing_strategy(sys.argv[2])
data = BatchedIterableDataset(sys.argv[1], batch_size=5)
try:
    print(sum(len(batch["id"]) for batch in DataLoader(data, batch_size=None, num_workers=1)))
except RuntimeError as error:
    print(error)
"""


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "longest"), [("file_descriptor", 75), ("file_system", 73)])
def test_a_temporary_directory_too_deep_for_sockets_is_an_error_and_no_hang(
    url, tmp_path, strategy, longest
):
    """At the named length it works: the limit is that of the sockets."""
    for length in (longest, longest + 1):
        with tempfile.TemporaryDirectory(dir="/tmp") as short:
            deep = os.path.join(short, "d" * (length - len(short) - 1))
            os.mkdir(deep)
            done = warm.run(
                [sys.executable, "-W", "ignore", "-c", DEEP, url, strategy],
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
                env={**os.environ, "TMPDIR": deep},
            )
        if length == longest:
            assert done.stdout == f"{ROWS}\n", done.stderr
        else:
            assert f"set TMPDIR to a path of at most {longest} characters" in done.stdout
            assert deep in done.stdout
