"""Trains with Keras on an endless dataset in steps, and validates on a finite one.

python train_keras.py
"""

import argparse
import math
import tempfile
from typing import Any

import keras
import tensorflow as tf

from example_data import digits_url, report
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter

BATCH = 64


def train(converter: SparkDatasetConverter) -> None:
    """Trains three epochs of as many steps as the rows fill."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    seen: list[int] = []

    def note(ids: Any) -> None:
        seen.extend(ids.numpy().tolist())

    def pair(row: Any) -> tuple[Any, Any]:
        tf.py_function(note, [row.id], [])
        return tf.ensure_shape(row.features, (None, 64)), row.label

    steps = math.ceil(len(converter) / BATCH)
    with (
        converter.make_tf_dataset(batch_size=BATCH, prefetch=0) as endless,
        converter.make_tf_dataset(batch_size=256, num_epochs=1, shuffle_row_groups=False) as once,
    ):
        # Each validation reads all rows from the start.
        held = once.map(lambda row: (tf.ensure_shape(row.features, (None, 64)), row.label))
        history = model.fit(
            endless.map(pair),
            steps_per_epoch=steps,
            validation_data=held,
            validation_steps=math.ceil(len(converter) / 256),
            epochs=3,
            verbose=0,
        )
    report("trained", seen)
    for number, accuracy in enumerate(history.history["val_accuracy"], start=1):
        print(f"epoch {number}  validation accuracy {accuracy:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", help="where the data is, or goes")
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory() as temporary:
        train(make_spark_converter(digits_url(chosen or temporary)))
