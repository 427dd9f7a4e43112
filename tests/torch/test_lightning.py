"""Lightning trains on the loaders, writes checkpoints and resumes from them."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from petastorm_bridge import TransformSpec, make_batch_reader
from petastorm_bridge.errors import BridgeWarning
from petastorm_bridge.pytorch import (
    BatchedDataLoader,
    BatchedIterableDataset,
    DataLoader,
    InMemBatchedDataLoader,
)

lightning = pytest.importorskip("lightning", reason="lightning is not installed")

# Lightning's own: advice, and a check that torch deprecates.
pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning"),
]

ROWS, SIZE, STEPS = 60, 6, 10


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.seen = []
        self.validated = 0

    def training_step(self, batch, _):
        self.seen.append(batch["id"].tolist())
        return self.layer(batch["x"][:, None]).mean()

    def validation_step(self, batch, _):
        self.validated += 1

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-9)


class SaveAndCrash(lightning.Callback):
    def __init__(self, step, path):
        self.step = step
        self.path = path

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            raise ConnectionError


@pytest.fixture
def make_loader(write):
    ids = np.arange(ROWS)
    table = pa.table({"id": ids, "x": ids.astype(np.float32)})
    url = write(table, [25, 5, 20, 10])
    readers = []

    def make_loader(size=SIZE, *, kind=DataLoader, capacity=0, num_epochs=1, **options):
        readers.append(make_batch_reader(url, num_epochs=num_epochs, **options))
        return kind(readers[-1], size, shuffling_queue_capacity=capacity)

    yield make_loader
    for reader in readers:
        reader.stop()
        reader.join()


@pytest.fixture
def fit(tmp_path):
    """``fit(loader, validation, **options of Trainer)`` → the model and the trainer."""

    def fit(loader, validation=None, *, checkpoint=None, **options):
        trainer = lightning.Trainer(
            accelerator="cpu",
            default_root_dir=tmp_path,
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
            **options,
        )
        model = Model()
        # Its own class of the model is in the checkpoint.
        trainer.fit(model, loader, validation, ckpt_path=checkpoint, weights_only=False)
        return model, trainer

    return fit


def test_a_trainer_with_defaults_trains_and_writes_its_checkpoint(make_loader, fit, tmp_path):
    model, trainer = fit(make_loader(), max_epochs=2)
    assert trainer.global_step == len(model.seen) == 2 * STEPS
    for epoch in (model.seen[:STEPS], model.seen[STEPS:]):
        assert sorted(flat(epoch)) == list(range(ROWS))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["epoch=1-step=20.ckpt"]


USES = [
    ({}, {"max_epochs": 2}, 20, 4),
    ({}, {"max_epochs": 2, "val_check_interval": 4}, 20, 8),
    ({}, {"max_epochs": 2, "val_check_interval": 0.5}, 20, 8),
    ({}, {"max_steps": 13}, 13, 2),
    ({"num_epochs": None}, {"max_epochs": 1, "limit_train_batches": 13}, 13, 2),
    ({"num_epochs": None}, {"max_steps": 13, "val_check_interval": 5}, 13, 4),
    ({"seed": 3, "capacity": 20}, {"max_epochs": 2}, 20, 4),
    ({}, {"max_epochs": 3, "limit_train_batches": 4}, 12, 6),
    ({"num_epochs": None}, {"max_epochs": 3, "limit_train_batches": 4}, 12, 6),
    ({}, {"max_epochs": 2, "limit_train_batches": 0.5, "limit_val_batches": 1}, 10, 2),
]


@pytest.mark.filterwarnings("ignore:The position of this loader cannot be saved")
@pytest.mark.parametrize(("loading", "training", "steps", "validated"), USES)
def test_what_the_trainer_is_used_for(make_loader, fit, loading, training, steps, validated):
    validation = make_loader(30)
    model, trainer = fit(make_loader(**loading), validation, num_sanity_val_steps=0, **training)
    assert (trainer.global_step, model.validated) == (steps, validated)


@pytest.mark.parametrize("num_epochs", [1, None])
def test_a_sanity_check_takes_nothing_from_the_validation(make_loader, fit, num_epochs):
    validation = make_loader(6, num_epochs=num_epochs)
    limits = {} if num_epochs else {"limit_val_batches": 10}
    model, _ = fit(make_loader(), validation, max_epochs=2, num_sanity_val_steps=2, **limits)
    assert model.validated == 2 + 2 * 10


RESUMED = [
    ({"seed": 3}, {"max_epochs": 1}, 4),
    ({"seed": 3, "shuffle_rows": True}, {"max_epochs": 3}, 14),
    ({"seed": 3}, {"max_epochs": 2}, STEPS),
    ({"seed": 3, "capacity": 20}, {"max_epochs": 2}, 4),
    ({"seed": 3, "kind": BatchedDataLoader}, {"max_epochs": 2}, 14),
    ({"seed": 3, "kind": BatchedDataLoader, "capacity": 20}, {"max_epochs": 2}, 14),
    ({"shuffle_row_groups": False}, {"max_epochs": 2}, 4),
    ({"seed": 3, "num_epochs": None}, {"max_epochs": 1, "limit_train_batches": 15}, 4),
]


@pytest.mark.parametrize(("loading", "training", "step"), RESUMED)
def test_a_resumed_run_sees_the_batches_that_the_first_had_left(
    make_loader, fit, tmp_path, loading, training, step
):
    whole, _ = fit(make_loader(**loading), **training)
    path = tmp_path / "crash.ckpt"
    with pytest.raises(ConnectionError):
        fit(make_loader(**loading), callbacks=[SaveAndCrash(step, path)], **training)
    resumed, _ = fit(make_loader(**loading), checkpoint=path, **training)
    assert resumed.seen == whole.seen[step:]


UNKNOWN = {
    "transform": ({"transform_spec": TransformSpec(lambda frame: frame)}, {"max_epochs": 2}),
    "buffer": (
        {"transform_spec": TransformSpec(lambda frame: frame), "capacity": 20},
        {"max_epochs": 2},
    ),
    "endless": ({"num_epochs": None}, {"max_steps": 25}),
}


@pytest.mark.parametrize("step", [1, 9, 14])
@pytest.mark.parametrize(("loading", "training"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_run_of_unknown_length_is_resumed(make_loader, fit, tmp_path, loading, training, step):
    """Lightning has then taken one batch more than it trained on."""
    loading = {"seed": 3, **loading}
    whole, _ = fit(make_loader(**loading), **training)
    path = tmp_path / "crash.ckpt"
    with pytest.raises(ConnectionError):
        fit(make_loader(**loading), callbacks=[SaveAndCrash(step, path)], **training)
    resumed, _ = fit(make_loader(**loading), checkpoint=path, **training)
    assert resumed.seen == whole.seen[step:]


def test_rows_in_memory_train_in_one_pass(make_loader, fit, write):
    table = pa.table({"id": np.arange(ROWS), "x": np.zeros(ROWS, np.float32)})
    reader = make_batch_reader(write(table, [30, 30], "memory"), shuffle_row_groups=False)
    loader = InMemBatchedDataLoader(reader, SIZE, num_epochs=2, rows_capacity=ROWS, shuffle=True)
    model, trainer = fit(loader, max_epochs=1)
    assert trainer.global_step == len(loader) == 2 * STEPS
    for epoch in (model.seen[:STEPS], model.seen[STEPS:]):
        assert sorted(flat(epoch)) == list(range(ROWS))


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's own
@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")  # it is right
@pytest.mark.parametrize(
    ("workers", "step"),
    [(0, 14), (2, 4), pytest.param(2, 14, marks=[pytest.mark.modern, pytest.mark.slow])],
)
def test_a_run_over_torchdatas_loader_is_resumed(write, fit, tmp_path, workers, step):
    """In the first epoch and in the second, with workers."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    ids = np.arange(ROWS)
    url = write(pa.table({"id": ids, "x": ids.astype(np.float32)}), [25, 5, 20, 10])

    def loader():
        dataset = BatchedIterableDataset(url, SIZE, seed=3, shuffle_rows=True)
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    whole, _ = fit(loader(), max_epochs=3)
    path = tmp_path / "crash.ckpt"
    with pytest.raises(ConnectionError):
        fit(loader(), max_epochs=3, callbacks=[SaveAndCrash(step, path)])
    resumed, _ = fit(loader(), max_epochs=3, checkpoint=path)
    assert resumed.seen == whole.seen[step:]
    for epoch in range(3):
        assert sorted(flat(whole.seen[epoch * STEPS : (epoch + 1) * STEPS])) == list(range(ROWS))


def test_a_run_resumed_from_the_end_of_an_epoch_sees_a_whole_one(make_loader, fit, tmp_path):
    """Lightning then leaves the loader's state in the checkpoint alone."""
    fit(make_loader(seed=3), max_epochs=1)
    checkpoint = tmp_path / "checkpoints" / "epoch=0-step=10.ckpt"
    resumed, trainer = fit(make_loader(seed=3), max_epochs=2, checkpoint=checkpoint)
    assert trainer.global_step == 2 * STEPS
    assert sorted(flat(resumed.seen)) == list(range(ROWS))


def test_a_run_without_a_seed_is_resumed_with_a_new_pass(make_loader, fit, tmp_path):
    path = tmp_path / "crash.ckpt"
    with (
        pytest.warns(BridgeWarning, match="without a seed"),
        pytest.raises(ConnectionError),
    ):
        fit(make_loader(), max_epochs=2, callbacks=[SaveAndCrash(4, path)])
    with pytest.warns(BridgeWarning, match="begins with a new pass"):
        resumed, _ = fit(make_loader(), max_epochs=2, checkpoint=path)
    assert len(resumed.seen) == 2 * STEPS - 4
    assert sorted(flat(resumed.seen[-STEPS:])) == list(range(ROWS))


def test_a_run_may_be_resumed_with_batches_of_another_size(make_loader, fit, tmp_path):
    path = tmp_path / "crash.ckpt"
    whole, _ = fit(make_loader(seed=3), max_epochs=1)
    with pytest.raises(ConnectionError):
        fit(make_loader(seed=3), max_epochs=1, callbacks=[SaveAndCrash(4, path)])
    resumed, _ = fit(make_loader(3, seed=3), max_epochs=2, checkpoint=path)
    rest = flat(whole.seen[4:])
    assert flat(resumed.seen[: len(rest) // 3]) == rest


class Sized(BatchedIterableDataset):
    """As the guide advises where a transform keeps every row."""

    def __len__(self):
        return STEPS


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's own
@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")  # it is right
def test_a_length_makes_a_transformed_run_over_torchdatas_loader_exact(write, fit, tmp_path):
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    ids = np.arange(ROWS)
    url = write(pa.table({"id": ids, "x": ids.astype(np.float32)}), [25, 5, 20, 10])

    def loader():
        spec = TransformSpec(lambda frame: frame)
        dataset = Sized(url, SIZE, seed=3, transform_spec=spec, transform_batch_size=4)
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=2)

    whole, _ = fit(loader(), max_epochs=2)
    path = tmp_path / "crash.ckpt"
    with pytest.raises(ConnectionError):
        fit(loader(), max_epochs=2, callbacks=[SaveAndCrash(14, path)])
    resumed, _ = fit(loader(), max_epochs=2, checkpoint=path)
    assert resumed.seen == whole.seen[14:]
