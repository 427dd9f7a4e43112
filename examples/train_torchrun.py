"""Trains with DistributedDataParallel, each process on its own shard of the rows.

Run it with `torchrun --standalone --nproc-per-node=2 train_torchrun.py`.

The 1,797 rows do not divide by two: one process reads one of its rows twice, so that both take as many
steps and nobody waits for a gradient that never comes.
"""

import argparse
import tempfile

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from example_data import digits_url, report
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter


def train(converter: SparkDatasetConverter) -> None:
    """Trains one of the processes."""
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen: list[int] = []
    with converter.make_torch_dataloader(
        batch_size=64, num_epochs=1, shuffle_rows=True, shard_by_rank=True
    ) as loader:
        for _ in range(2):  # epochs
            for batch in loader:
                loss = torch.nn.functional.cross_entropy(model(batch["features"]), batch["label"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += batch["id"].tolist()
        report(f"rank {distributed.get_rank()}, {2 * len(loader)} steps", seen)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", help="where the data is, or goes")
    chosen = parser.parse_args().cache_dir
    distributed.init_process_group("gloo")  # "nccl" with GPUs
    with tempfile.TemporaryDirectory() as temporary:
        train(make_spark_converter(digits_url(chosen or temporary)))
    distributed.destroy_process_group()
