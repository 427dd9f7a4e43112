"""Frames of a small robot's camera: what the programs around Petastorm's own datasets write and read."""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql.types import LongType, ShortType, TimestampType

from petastorm_bridge.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastorm_bridge.unischema import Unischema, UnischemaField

DRIVES = 8
FRAMES_OF_A_DRIVE = 30
COUNT = DRIVES * FRAMES_OF_A_DRIVE
PLACES = 3  # where the lamp is: left, ahead, right
SIZE = 12  # pixels of an image, both ways
EVERY = np.timedelta64(100, "ms")  # from frame to frame; the time between two drives is an hour

FrameSchema = Unischema(
    "FrameSchema",
    [
        UnischemaField("frame_id", np.int64, (), ScalarCodec(LongType()), False),
        UnischemaField("time", np.datetime64, (), ScalarCodec(TimestampType()), False),
        UnischemaField("speed", np.float32, (), None, False),
        UnischemaField("place", np.int16, (), ScalarCodec(ShortType()), False),
        UnischemaField("image", np.uint8, (SIZE, SIZE, 3), CompressedImageCodec("png"), False),
        UnischemaField("points", np.float32, (None, 3), NdarrayCodec(), False),
    ],
)


def frame(frame_id: int) -> dict[str, Any]:
    """One frame, the same whenever it is asked for: the lamp is in one of three parts of the image."""
    rng = np.random.default_rng(frame_id)
    drive, number = divmod(frame_id, FRAMES_OF_A_DRIVE)
    place = int(rng.integers(PLACES))
    image = rng.integers(0, 120, (SIZE, SIZE, 3), np.uint8)
    left = place * SIZE // PLACES
    image[:, left : left + SIZE // PLACES] += np.uint8(100)
    start = datetime(2024, 5, 1, 8 + drive, tzinfo=timezone.utc)
    return {
        "frame_id": np.int64(frame_id),
        "time": start + timedelta(milliseconds=100 * number),
        "speed": np.float32(rng.random()),
        "place": np.int16(place),
        "image": image,
        "points": rng.normal(0, 10, (int(rng.integers(1, 9)), 3)).astype(np.float32),
    }


def features(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a model wants of a frame: a float image, channels first, and how near the nearest point is."""
    image = np.asarray(row["image"], np.float32) / np.float32(255)
    return {
        "frame_id": row["frame_id"],
        "image": np.ascontiguousarray(image.transpose(2, 0, 1)),
        "nearest": np.float32(np.linalg.norm(row["points"], axis=1).min()),
        "place": row["place"],
    }


def report(who: str, columns: Mapping[str, Iterable[float]]) -> None:
    """Prints how many frames somebody saw, and adds their columns to the file that SEEN_ROWS names."""
    seen = {name: np.asarray(values).tolist() for name, values in columns.items()}
    ids = seen["frame_id"]
    print(f"{who}: {len(ids)} frames, {len(set(ids))} of them different", flush=True)
    if os.environ.get("SEEN_ROWS"):
        with Path(os.environ["SEEN_ROWS"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps([who, seen]) + "\n")
