"""Epochs from the standard library, over a stock loader."""

import itertools

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def directory(installed, spark, tmp_path_factory):
    frame = spark.range(22, numPartitions=2)
    return installed(frame, str(tmp_path_factory.mktemp("epochs") / "mds"))


def ids(batches):
    return [i for batch in batches for i in batch["id"].tolist()]


@pytest.mark.parametrize("workers", [0, 2])
def test_in_order(directory, loader, workers):
    batches = list(loader(directory, num_workers=workers))
    assert ids(batches) == list(range(22))
    assert [len(batch["id"]) for batch in batches] == [4, 4, 4, 4, 4, 2]


def test_epochs_follow_on_one_another(directory, loader):
    one = loader(directory, shuffle=True)
    batches = list(itertools.chain.from_iterable(itertools.repeat(one, 3)))
    assert len(batches) == 3 * len(one) == 18
    epochs = [ids(batches[start : start + 6]) for start in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(22)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_endless_epochs(directory, loader):
    endless = itertools.chain.from_iterable(itertools.repeat(loader(directory, shuffle=True)))
    batches = list(itertools.islice(endless, 15))
    assert sorted(ids(batches[:6])) == sorted(ids(batches[6:12])) == list(range(22))


def test_iterated_again_after_it_was_left(directory, loader):
    one = loader(directory)
    for batch in one:
        assert batch["id"].tolist() == [0, 1, 2, 3]
        break
    assert ids(one) == list(range(22))
    assert len(one) == 6
    assert len(one.dataset) == 22


def test_two_loaders_at_once(directory, loader):
    pairs = zip(loader(directory), loader(directory, batch_size=6), strict=False)
    assert [(len(a["id"]), len(b["id"])) for a, b in pairs] == [(4, 6), (4, 6), (4, 6), (4, 4)]


def test_a_seed(directory, loader):
    one, other = (ids(loader(directory, shuffle=True, shuffle_seed=5)) for _ in range(2))
    assert one == other != list(range(22))
