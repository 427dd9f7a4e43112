"""Trains two small classifiers of handwritten digits, one in PyTorch and one in Keras.

The data goes from a Spark DataFrame through a Spark dataset converter to both frameworks.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
import torch
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter

from example_data import digits, local_spark

BATCH = 64
EPOCHS = 5


def main(cache_dir: str) -> None:
    """Converts the digits, trains and tests both models, deletes the converted data."""
    spark = local_spark("digits")
    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, Path(cache_dir).as_uri())
    train, test = digits(spark).randomSplit([0.8, 0.2], seed=1)
    train_converter, test_converter = make_spark_converter(train), make_spark_converter(test)
    print(f"{len(train_converter)} rows to train on, {len(test_converter)} to test with")
    print(
        f"training data: {train_converter.cache_dir_url} ({len(train_converter.file_urls)} files)"
    )

    train_torch(train_converter, test_converter)
    train_keras(train_converter, test_converter)
    measure_loaders(train_converter)

    train_converter.delete()
    test_converter.delete()
    spark.stop()


def train_torch(train: SparkDatasetConverter, test: SparkDatasetConverter) -> None:
    """Trains a two-layer network in a plain PyTorch loop."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    steps = len(train) // BATCH
    # Without num_epochs the loader never ends; an epoch is a number of steps.
    with train.make_torch_dataloader(batch_size=BATCH) as loader:
        batches = iter(loader)
        for epoch in range(1, EPOCHS + 1):
            start, total = time.perf_counter(), 0.0
            for _ in range(steps):
                batch = next(batches)
                output = model(batch["features"])
                loss = torch.nn.functional.cross_entropy(output, batch["label"].long())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            rate = steps * BATCH / (time.perf_counter() - start)
            print(f"torch  epoch {epoch}  loss {total / steps:.4f}  {rate:,.0f} rows/s")

    correct = 0
    with test.make_torch_dataloader(batch_size=BATCH, num_epochs=1) as loader, torch.no_grad():
        for batch in loader:
            correct += int((model(batch["features"]).argmax(dim=1) == batch["label"]).sum())
    print(f"torch  test accuracy {correct / len(test):.3f}")


def train_keras(train: SparkDatasetConverter, test: SparkDatasetConverter) -> None:
    """Trains the same network with Keras."""
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((64,)),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.005),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    steps = len(train) // BATCH
    with train.make_tf_dataset(batch_size=BATCH) as dataset:
        pairs = dataset.map(lambda row: (tf.reshape(row.features, (-1, 64)), row.label))
        start = time.perf_counter()
        history = model.fit(pairs, steps_per_epoch=steps, epochs=EPOCHS, verbose=0)
        rate = EPOCHS * steps * BATCH / (time.perf_counter() - start)
    for epoch, loss in enumerate(history.history["loss"], start=1):
        print(f"keras  epoch {epoch}  loss {loss:.4f}")
    print(f"keras  trained at {rate:,.0f} rows/s")
    with test.make_tf_dataset(batch_size=BATCH, num_epochs=1) as dataset:
        pairs = dataset.map(lambda row: (tf.reshape(row.features, (-1, 64)), row.label))
        _, accuracy = model.evaluate(pairs, steps=math.ceil(len(test) / BATCH), verbose=0)
    print(f"keras  test accuracy {accuracy:.3f}")


def measure_loaders(converter: SparkDatasetConverter) -> None:
    """Reads twenty epochs through each loader with no model behind it."""
    with converter.make_torch_dataloader(batch_size=BATCH, num_epochs=20) as loader:
        drain("torch", (len(batch["label"]) for batch in loader))
    with converter.make_tf_dataset(batch_size=BATCH, num_epochs=20) as dataset:
        drain("keras", (len(batch.label) for batch in dataset))


def drain(framework: str, batch_sizes: Iterator[int]) -> None:
    """Consumes a loader and prints how fast it was."""
    start = time.perf_counter()
    rows = sum(batch_sizes)
    print(f"{framework:<6} loader alone {rows / (time.perf_counter() - start):,.0f} rows/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cache-dir", help="where converted data goes (default: a temporary folder)"
    )
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory(prefix="converter-cache-") as temporary:
        main(chosen or temporary)
