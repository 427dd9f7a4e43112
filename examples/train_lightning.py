"""Trains with Lightning from a DataModule, fails in the middle of an epoch and goes on where it stopped.

python train_lightning.py
"""

import argparse
import contextlib
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from example_data import digits_url, report
from petastorm_bridge.spark import make_spark_converter

BATCH = 64


class Digits(lightning.LightningDataModule):
    """Opens a loader when the trainer asks for one, and closes all of them at the end."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.converter = make_spark_converter(url)  # or a Spark DataFrame
        self.open = contextlib.ExitStack()

    def train_dataloader(self) -> Any:
        """One epoch; with a seed, Lightning's checkpoints hold the place in it."""
        return self.open.enter_context(
            self.converter.make_torch_dataloader(
                batch_size=BATCH, num_epochs=1, seed=7, shuffle_rows=True, shard_by_rank=True
            )
        )

    def val_dataloader(self) -> Any:
        """The rows in order."""
        return self.open.enter_context(
            self.converter.make_torch_dataloader(
                batch_size=256, num_epochs=1, shuffle_row_groups=False, shard_by_rank=True
            )
        )

    def teardown(self, stage: str) -> None:
        """Closes the loaders' files and threads."""
        del stage
        self.open.close()


class Classifier(lightning.LightningModule):
    """A linear model that notes the rows it sees."""

    def __init__(self, fail_at: int | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        self.fail_at = fail_at
        self.seen: list[list[int]] = []  # by step

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        """Loss of a batch."""
        if self.global_step == self.fail_at:
            raise ConnectionError("the machine was taken away")
        self.seen.append(batch["id"].tolist())
        return torch.nn.functional.cross_entropy(self.layer(batch["features"]), batch["label"])

    def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
        """Logs the accuracy."""
        right = self.layer(batch["features"]).argmax(dim=1) == batch["label"]
        self.log("accuracy", right.float().mean(), batch_size=len(right))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def trainer(folder: str) -> lightning.Trainer:
    """Two epochs, with a checkpoint every ten steps."""
    every_ten = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=10, save_top_k=-1)
    return lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[every_ten],
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
    )


def main(folder: str) -> None:
    """Trains, fails at step 44 and goes on from step 40, in the middle of the second epoch."""
    lightning.seed_everything(1)
    url = digits_url(folder)
    model = Classifier(fail_at=44)
    try:
        trainer(folder).fit(model, Digits(url))
    except ConnectionError as error:
        print(f"failed: {error}")
    report("until the checkpoint", chain.from_iterable(model.seen[:40]))

    resumed = Classifier()
    again = trainer(folder)
    again.fit(resumed, Digits(url), ckpt_path=str(Path(folder) / "step=40.ckpt"))
    report("after the checkpoint", chain.from_iterable(resumed.seen))
    print(f"accuracy {float(again.callback_metrics['accuracy']):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", help="where data and checkpoints go")
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory() as temporary:
        main(chosen or temporary)
