"""Trains with accelerate, which places models and batches and divides the rows among processes.

torchrun --standalone --nproc-per-node=2 train_accelerate.py

On a machine with GPUs `accelerate launch --num_processes 2 train_accelerate.py` does the same; without any it
starts one process, whatever number it is given.
"""

import argparse
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

from example_data import digits_url, report
from petastorm_bridge.pytorch import BatchedIterableDataset
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter


def train(converter: SparkDatasetConverter) -> None:
    """Trains one of the processes."""
    accelerator = Accelerator(cpu=True)
    # accelerate reads on the first process and sends each one its share: no shards here.
    dataset = BatchedIterableDataset(converter, batch_size=64, seed=3, shard_by_rank=False)
    set_seed(1)  # the same first weights in every run
    model = torch.nn.Linear(64, 10)
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.Adam(model.parameters(), lr=0.01),
        DataLoader(dataset, batch_size=None),
    )
    seen: list[int] = []
    for _ in range(2):  # epochs
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["features"]), batch["label"])
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            seen += batch["id"].tolist()
    report(f"rank {accelerator.process_index}, trained", seen)

    # A loader is no DataLoader of torch's; accelerate leaves it as it is, and each process reads its own.
    with converter.make_torch_dataloader(
        batch_size=256, num_epochs=1, shard_by_rank=True
    ) as validation:
        right, seen = torch.zeros(1), []
        for batch in accelerator.prepare(validation):
            features = batch["features"].to(accelerator.device)
            right += (model(features).argmax(dim=1).cpu() == batch["label"]).sum()
            seen += batch["id"].tolist()
    report(f"rank {accelerator.process_index}, validated", seen)
    everyone = accelerator.gather(torch.tensor([float(right), len(seen)])).reshape(-1, 2).sum(dim=0)
    accelerator.print(f"accuracy {float(everyone[0] / everyone[1]):.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", help="where the data is, or goes")
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory() as temporary:
        train(make_spark_converter(digits_url(chosen or temporary)))
