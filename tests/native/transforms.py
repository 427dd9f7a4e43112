"""A transform that worker processes can import."""

import numpy as np


def make_columns(frame):
    """Everything that transforms make: changed, added, dropped, narrowed, of several axes."""
    rows = len(frame)
    made = frame[["id", "flag"]].copy()
    made["inverted"] = ~frame["flag"]
    made["scaled"] = frame["id"] * 1.5
    made["same"] = frame["real"] * 1.5
    made["pair"] = [np.array([i, i + 1.0]) for i in frame["id"]]
    made["listed"] = [[1, 2, 3] for _ in range(rows)]
    made["image"] = [np.full((2, 3), i, np.uint8) for i in frame["id"]]
    made["narrow"] = frame["id"].astype("int8")
    made["u16"] = frame["id"].astype("uint16")
    made["u32"] = frame["id"].astype("uint32")
    made["hole"] = frame["holes"]
    made["arr"] = [values[:1] for values in frame["values"]]
    made["some"] = [values.any() for values in frame["flags"]]
    return made


EDITS = [
    ("inverted", np.bool_, (), False),
    ("scaled", np.float32, (), False),
    ("same", np.float64, (), False),
    ("pair", np.float32, (2,), False),
    ("listed", np.float32, (None,), False),
    ("image", np.uint8, (2, 3), False),
    ("narrow", np.int64, (), False),
    ("u16", np.uint16, (), False),
    ("u32", np.uint32, (), False),
    ("hole", np.float64, (), False),
    ("arr", np.int64, (None,), False),
    ("some", np.bool_, (), False),
]
SELECTED = ["id", "flag", *(name for name, *_ in EDITS)]


def keep_even(frame):
    return frame[frame["id"] % 2 == 0][["id"]]


def hours(frame):
    return frame[["id"]].assign(hour=frame["at"].dt.hour.astype("int32"))
