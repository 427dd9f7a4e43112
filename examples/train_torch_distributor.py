"""Trains on Spark's executors: TorchDistributor sends the converter to every process.

python train_torch_distributor.py
"""

import argparse
import tempfile
from pathlib import Path

from pyspark.ml.torch.distributor import TorchDistributor

from example_data import digits, local_spark, report
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter


def train(converter: SparkDatasetConverter, epochs: int) -> list[list[int]]:
    """Trains in one process; returns the rows that each of them saw."""
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo")  # "nccl" with GPUs
    model = DistributedDataParallel(torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen: list[int] = []
    with converter.make_torch_dataloader(
        batch_size=64, num_epochs=epochs, shard_by_rank=True, drop_last=True
    ) as loader:
        for batch in loader:
            label = batch["label"].long()
            loss = torch.nn.functional.cross_entropy(model(batch["features"]), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["id"].tolist()
    everyone: list[list[int]] = [[] for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(everyone, seen)
    del model  # torch may wait for ever for a group that ends before its model
    distributed.destroy_process_group()
    return everyone


def main(cache_dir: str) -> None:
    """Converts the digits once and trains in two processes."""
    spark = local_spark("digits")
    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, Path(cache_dir).as_uri())
    converter = make_spark_converter(digits(spark))
    distributor = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False)
    for rank, seen in enumerate(distributor.run(train, converter, 2)):
        report(f"rank {rank}", seen)
    converter.delete()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", help="where converted data goes")
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory() as temporary:
        main(chosen or temporary)
