"""Trains two small image classifiers on JPEG files, one in PyTorch and one in Keras.

The files stay encoded in the Spark DataFrame and on disk. A transform decodes them while the
loaders read, into arrays of a declared shape.
"""

import argparse
import io
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf
import torch
from petastorm_bridge import TransformSpec
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter
from PIL import Image

from example_data import local_spark, photographs

BATCH = 32
EPOCHS = 6
SIDE = 32  # pixels; every image is scaled down to this


def decode(frame: pd.DataFrame) -> pd.DataFrame:
    """Turns JPEG bytes into arrays of shape (32, 32, 3), float32 in 0..1."""
    frame["image"] = frame["image"].map(decode_image)
    return frame[["image", "label"]]


def decode_image(jpeg: bytes) -> np.ndarray:
    """One image as an array of shape (32, 32, 3)."""
    image = Image.open(io.BytesIO(jpeg)).resize((SIDE, SIDE))
    return np.asarray(image, dtype=np.float32) / 255


DECODE = TransformSpec(
    decode,
    edit_fields=[("image", np.float32, (SIDE, SIDE, 3), False)],
    selected_fields=["image", "label"],
)


def main(cache_dir: str) -> None:
    """Converts the photographs, trains and tests both models, deletes the converted data."""
    spark = local_spark("photos")
    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, Path(cache_dir).as_uri())
    crops = photographs(spark)
    # The right-hand part is kept for the test; column 13 overlaps both parts and is left out.
    train = make_spark_converter(crops.where("column < 13"))
    test = make_spark_converter(crops.where("column > 13"))
    print(f"{len(train)} images to train on, {len(test)} to test with")
    print(f"training data: {train.cache_dir_url} ({len(train.file_urls)} files)")

    train_torch(train, test)
    train_keras(train, test)

    train.delete()
    test.delete()
    spark.stop()


def train_torch(train: SparkDatasetConverter, test: SparkDatasetConverter) -> None:
    """Trains a small convolutional network in a plain PyTorch loop."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 5 * 5, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    steps = len(train) // BATCH
    with train.make_torch_dataloader(
        batch_size=BATCH, transform_spec=DECODE, shuffling_queue_capacity=400
    ) as loader:
        batches = iter(loader)
        for epoch in range(1, EPOCHS + 1):
            start, total = time.perf_counter(), 0.0
            for _ in range(steps):
                batch = next(batches)
                output = model(batch["image"].permute(0, 3, 1, 2))
                loss = torch.nn.functional.cross_entropy(output, batch["label"].long())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            rate = steps * BATCH / (time.perf_counter() - start)
            print(f"torch  epoch {epoch}  loss {total / steps:.4f}  {rate:,.0f} rows/s")

    correct = 0
    with (
        test.make_torch_dataloader(batch_size=BATCH, num_epochs=1, transform_spec=DECODE) as loader,
        torch.no_grad(),
    ):
        for batch in loader:
            guess = model(batch["image"].permute(0, 3, 1, 2)).argmax(dim=1)
            correct += int((guess == batch["label"]).sum())
    print(f"torch  test accuracy {correct / len(test):.3f}")


def train_keras(train: SparkDatasetConverter, test: SparkDatasetConverter) -> None:
    """Trains the same network with Keras."""
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((SIDE, SIDE, 3)),
            tf.keras.layers.Conv2D(8, 5, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(16, 5, strides=2, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(2),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.003),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    steps = len(train) // BATCH
    with train.make_tf_dataset(
        batch_size=BATCH, transform_spec=DECODE, shuffling_queue_capacity=400
    ) as dataset:
        pairs = dataset.map(lambda row: (row.image, row.label))
        start = time.perf_counter()
        history = model.fit(pairs, steps_per_epoch=steps, epochs=EPOCHS, verbose=0)
        rate = EPOCHS * steps * BATCH / (time.perf_counter() - start)
    for epoch, loss in enumerate(history.history["loss"], start=1):
        print(f"keras  epoch {epoch}  loss {loss:.4f}")
    print(f"keras  trained at {rate:,.0f} rows/s")
    with test.make_tf_dataset(batch_size=BATCH, num_epochs=1, transform_spec=DECODE) as dataset:
        pairs = dataset.map(lambda row: (row.image, row.label))
        _, accuracy = model.evaluate(pairs, steps=math.ceil(len(test) / BATCH), verbose=0)
    print(f"keras  test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cache-dir", help="where converted data goes (default: a temporary folder)"
    )
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory(prefix="converter-cache-") as temporary:
        main(chosen or temporary)
