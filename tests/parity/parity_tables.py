"""A table with a column of every kind, cut into batches, and faults to put into it."""

import numpy as np

ROWS = 60
BATCH = 8


def columns(rows=ROWS, seed=0):
    """Columns of every kind that the recorder knows."""
    random = np.random.default_rng(seed)
    x = random.random(rows)
    x[::9] = np.nan
    return {
        "id": np.arange(rows),
        "x": x,
        "small": random.random(rows).astype(np.float32),
        "flag": random.random(rows) < 0.5,
        "image": random.integers(0, 256, (rows, 3, 2)).astype(np.uint8),
        "when": np.datetime64("2020-01-01", "ns") + np.arange(rows) * np.timedelta64(1, "h"),
        "text": cells([None if i % 11 == 3 else f"né {i % 5}" for i in range(rows)]),
        "raw": cells([bytes([i % 7]) * (i % 4) for i in range(rows)]),
        "list": cells([random.random(1 + i % 3) for i in range(rows)]),
        "words": cells2([[f"a{i}", None if i % 5 == 2 else "b"] for i in range(rows)]),
    }


def cells(values):
    """An object array of these cells, whatever they are."""
    found = np.empty(len(values), object)
    for i, value in enumerate(values):
        found[i] = value
    return found


def cells2(values):
    found = np.empty((len(values), 2), object)
    for i, pair in enumerate(values):
        found[i] = pair
    return found


def batches(table, size=BATCH):
    """The table in batches of so many rows, or of the sizes in a list."""
    rows = len(next(iter(table.values())))
    sizes = [size] * -(-rows // size) if isinstance(size, int) else size
    start = 0
    for count in sizes:
        yield {name: column[start : start + count] for name, column in table.items()}
        start += count


def taken(table, rows):
    """The table's rows with these indices."""
    return {name: column[np.asarray(rows)] for name, column in table.items()}


def changed(table, name, row, value):
    """A copy with another value in one cell."""
    column = table[name].copy()
    column[row] = value
    return {**table, name: column}


def flipped(table, name, row, bit=0):
    """A copy with one bit of one number flipped."""
    column = table[name].copy()
    width = column.dtype.itemsize
    words = column.view(np.uint8).reshape(len(column), -1)
    words[row, (bit // 8) % (width * max(1, column[0].size))] ^= np.uint8(1 << bit % 8)
    return {**table, name: column}
