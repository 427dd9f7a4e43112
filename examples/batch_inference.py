"""Predicts in Spark's executors, shard by shard, and joins the predictions back to the table.

python batch_inference.py
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from example_data import digits, local_spark, report
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter

SHARDS = 4


def predictor(
    converter: SparkDatasetConverter, weights: list[list[float]]
) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """The function that Spark sends to its executors, with the converter in it."""

    def predict(shards: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import torch

        matrix = torch.tensor(weights)
        for frame in shards:
            for shard in frame["shard"]:
                with converter.make_torch_dataloader(
                    batch_size=256, num_epochs=1, cur_shard=int(shard), shard_count=SHARDS
                ) as loader:
                    for batch in loader:
                        best = (batch["features"] @ matrix.T).argmax(dim=1)
                        yield pd.DataFrame({"id": batch["id"].numpy(), "predicted": best.numpy()})

    return predict


def mean_digits(converter: SparkDatasetConverter) -> list[list[float]]:
    """A simple model: the mean picture of every digit, less the mean of all."""
    import torch

    sums, counts = torch.zeros(10, 64), torch.zeros(10)
    with converter.make_torch_dataloader(batch_size=256, num_epochs=1) as loader:
        for batch in loader:
            label = batch["label"].long()
            sums.index_add_(0, label, batch["features"])
            counts += torch.bincount(label, minlength=10)
    means = sums / counts[:, None]
    centred = means - means.mean(dim=0)
    return (centred / centred.norm(dim=1, keepdim=True)).tolist()


def main(cache_dir: str) -> None:
    """Converts the digits, predicts and joins."""
    spark = local_spark("digits")
    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, Path(cache_dir).as_uri())
    table = digits(spark).cache()
    converter = make_spark_converter(table)
    shards = spark.range(SHARDS, numPartitions=SHARDS).withColumnRenamed("id", "shard")
    predict = predictor(converter, mean_digits(converter))
    predicted = shards.mapInPandas(predict, "id int, predicted int")
    joined = table.join(predicted, "id").select("id", "label", "predicted").toPandas()
    report("joined", joined["id"])
    print(f"accuracy {(joined['label'] == joined['predicted']).mean():.3f}")
    converter.delete()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", help="where converted data goes")
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory() as temporary:
        main(chosen or temporary)
