"""Trains with Keras on a dataset of Petastorm's, through tf.data.

python train_frames_tensorflow.py file:///tmp/frames
"""

import argparse
from typing import Any

import keras
import tensorflow as tf

from frame_data import COUNT, PLACES, SIZE, FrameSchema, report
from petastorm_bridge import make_reader
from petastorm_bridge.tf_utils import make_petastorm_dataset

BATCH = 16
EPOCHS = 10
FIELDS = [FrameSchema.frame_id, FrameSchema.time, FrameSchema.image, FrameSchema.place]


def train(url: str) -> None:
    """Trains ten epochs; times come as microseconds since 1970."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((SIZE, SIZE, 3)), keras.layers.Flatten(), keras.layers.Dense(PLACES)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    seen: dict[str, list[float]] = {"frame_id": [], "time": [], "image": []}

    def note(ids: Any, times: Any, images: Any) -> None:
        seen["frame_id"] += ids.numpy().tolist()
        seen["time"] += times.numpy().tolist()
        seen["image"] += images.numpy().sum((1, 2, 3)).tolist()

    def pair(frame: Any) -> tuple[Any, Any]:
        tf.py_function(note, [frame.frame_id, frame.time, frame.image], [])
        return tf.cast(frame.image, tf.float32) / 255.0, frame.place

    with make_reader(url, schema_fields=FIELDS, num_epochs=EPOCHS, seed=1) as reader:
        dataset = make_petastorm_dataset(reader).shuffle(64, seed=1).batch(BATCH).map(pair)
        # An epoch is all frames once: the reader passes over them as often as there are epochs.
        history = model.fit(
            dataset, epochs=EPOCHS, steps_per_epoch=COUNT // BATCH, verbose=0, shuffle=False
        )
    report("trained", seen)
    print(f"accuracy {history.history['accuracy'][-1]:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="where write_frames.py put the dataset")
    train(parser.parse_args().url)
