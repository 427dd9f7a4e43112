"""Trains with Ray Train: the dataset is sent to the workers, each of which opens its shard.

python train_ray.py
"""

import argparse
import os
import tempfile
from typing import Any

import ray
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from torch.utils.data import DataLoader

from example_data import digits_url, report
from petastorm_bridge.pytorch import BatchedIterableDataset
from petastorm_bridge.spark import make_spark_converter


def train(config: dict[str, Any]) -> None:
    """Trains one of the workers."""
    context = ray.train.get_context()
    model = ray.train.torch.prepare_model(torch.nn.Linear(64, 10))
    loader = ray.train.torch.prepare_data_loader(DataLoader(config["dataset"], batch_size=None))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen: list[int] = []
    for _ in range(2):  # epochs
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["features"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["id"].tolist()
    report(f"rank {context.get_world_rank()}, {2 * len(loader)} steps", seen)


def main(folder: str) -> None:
    """Trains in two workers."""
    converter = make_spark_converter(digits_url(folder))  # or a Spark DataFrame
    passed_on = {
        name: os.environ[name] for name in ("PYTHONPATH", "SEEN_ROWS") if name in os.environ
    }
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": passed_on},
        logging_level="error",
    )
    ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"dataset": BatchedIterableDataset(converter, batch_size=64, seed=3)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=folder),
    ).fit()
    ray.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", help="where the data is, or goes")
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory() as temporary:
        main(os.path.abspath(chosen or temporary))
