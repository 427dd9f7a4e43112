"""Epochs over a stock loader: finite and endless ones, passed over again and left midway."""

import itertools

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def directory(installed, spark, tmp_path_factory):
    frame = spark.range(22, numPartitions=2)
    return installed.write_mds(frame, str(tmp_path_factory.mktemp("epochs") / "mds"))


def ids(batches):
    return [i for batch in batches for i in batch["id"].tolist()]


@pytest.mark.parametrize("workers", [0, 2])
def test_in_order(directory, loader, workers):
    batches = list(loader(directory, num_workers=workers))
    assert ids(batches) == list(range(22))
    assert [len(batch["id"]) for batch in batches] == [4, 4, 4, 4, 4, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_each_pass_is_an_epoch_and_a_second_time_gives_the_next_ones(
    copied, directory, loader, workers
):
    epochs = copied.Epochs(loader(directory, shuffle=True, num_workers=workers), 2)
    assert len(epochs) == 12
    passes = [list(epochs) for _ in range(2)]
    assert [len(batches) for batches in passes] == [12, 12]
    orders = [tuple(ids(batches[at : at + 6])) for batches in passes for at in (0, 6)]
    assert all(sorted(order) == list(range(22)) for order in orders)
    assert len(set(orders)) == 4


@pytest.mark.smoke
@pytest.mark.parametrize("workers", [0, 2])
def test_endless_epochs_have_full_batches(copied, directory, loader, workers):
    endless = copied.Epochs(loader(directory, shuffle=True, num_workers=workers, drop_last=True))
    batches = list(itertools.islice(endless, 15))
    assert [len(batch["id"]) for batch in batches] == [4] * 15
    for at in (0, 5, 10):  # a pass is 22 // 4 batches
        assert len(set(ids(batches[at : at + 5]))) == 20
    assert endless
    with pytest.raises(TypeError, match="without end have no length"):
        len(endless)


def test_petastorms_endless_loader_has_no_length_either(directory):
    pytest.importorskip("petastorm", reason="compares with the real Petastorm")
    from petastorm.pytorch import BatchedDataLoader, DataLoader

    for kind in (DataLoader, BatchedDataLoader):
        assert not hasattr(kind, "__len__")
        assert not hasattr(kind, "__bool__")


@pytest.mark.parametrize("workers", [0, 2])
def test_less_than_a_batch(copied, directory, loader, workers):
    small = loader(directory, batch_size=23, drop_last=True, num_workers=workers)
    with pytest.raises(ValueError, match=r"no batch in a whole pass.*smaller batch_size"):
        next(iter(copied.Epochs(small)))
    assert list(copied.Epochs(small, 2)) == []
    (batch, *_) = copied.Epochs(loader(directory, batch_size=23), 1)
    assert len(batch["id"]) == 22


@pytest.mark.parametrize("epochs", [3, None])
def test_left_midway_and_begun_again(copied, directory, loader, epochs):
    again = copied.Epochs(loader(directory), epochs)
    for batch in again:
        assert batch["id"].tolist() == [0, 1, 2, 3]
        break
    assert ids(itertools.islice(again, 6)) == list(range(22))
    assert len(again.loader.dataset) == 22


def test_whole_batches(copied, directory, streaming):
    """Of the columnar dataset, and of torch's own loader."""
    from torch.utils.data import DataLoader

    from petastorm_bridge.streaming import ColumnarStreamingDataset

    dataset = ColumnarStreamingDataset(local=directory.path, batch_size=4, drop_last=True)
    columnar = copied.Epochs(DataLoader(dataset, batch_size=None), 2)
    assert [len(batch["id"]) for batch in columnar] == [4] * 10
    assert len(columnar) == 10


def test_in_a_trainer(copied, directory, loader, tmp_path):
    """Lightning asks an iterable for its length, and takes one without."""
    lightning = pytest.importorskip("lightning", reason="is the trainer")
    import torch

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))
            self.rows = []

        def training_step(self, batch):
            self.rows.append(len(batch["id"]))
            return self.weight * batch["id"].float().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    for epochs, limit, rows in ((2, 1.0, [4, 4, 4, 4, 4, 2] * 4), (None, 7, [4] * 14)):
        model = Model()
        trainer = lightning.Trainer(
            max_epochs=2,
            limit_train_batches=limit,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(model, copied.Epochs(loader(directory, drop_last=epochs is None), epochs))
        assert model.rows == rows


def test_two_loaders_at_once(directory, loader):
    pairs = zip(loader(directory), loader(directory, batch_size=6), strict=False)
    assert [(len(a["id"]), len(b["id"])) for a, b in pairs] == [(4, 6), (4, 6), (4, 6), (4, 4)]


def test_a_seed(directory, loader):
    one, other = (ids(loader(directory, shuffle=True, shuffle_seed=5)) for _ in range(2))
    assert one == other != list(range(22))


def test_loaders_that_a_function_makes(native, directory, loader):
    """Each has an order of its own; the first one that of streaming, as without a seed."""
    handle = native.MdsDirectory(directory.path + "/.", len(directory))
    seeds = [handle.next_seed() for _ in range(3)]
    assert seeds == [9176, 9177, 9178]
    orders = [ids(loader(directory, shuffle=True, shuffle_seed=seed)) for seed in seeds]
    assert orders[0] == ids(loader(directory, shuffle=True))
    assert len({tuple(order) for order in orders}) == 3


def test_seeds_after_pickling(native, directory, tmp_path):
    """A copy goes on in this process; in another, openings are counted from the beginning."""
    import pickle
    import sys

    import warm

    handle = native.MdsDirectory(str(tmp_path), 3)
    assert [handle.next_seed(), handle.next_seed()] == [9176, 9177]
    copied = pickle.loads(pickle.dumps(handle))
    assert copied.next_seed() == 9178
    assert native.MdsDirectory(str(tmp_path / "other"), 3).next_seed() == 9176
    code = f"import pickle; print(pickle.loads({pickle.dumps(handle)!r}).next_seed())"
    if native.__name__.startswith("petastorm_bridge"):
        done = warm.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "9176\n"
