"""Reads randomly altered shards; run as a script, because what it looks for are crashes.

``fuzz.py <directory of datasets> <rounds> <seed>`` alters bytes of the shards of each dataset, whose
index has no hashes, and reads every column in several ways. The outcome must be an error of the
engine, or arrays that are valid and have the right number of rows. Nothing outside of the file may be
read: all reads of varying length go through one function, which is watched here; all others are
NumPy's indexing, which checks its bounds.
"""

import os
import random
import struct
import sys
from collections import Counter

import numpy as np

from petastorm_bridge.mds import ragged, walk
from petastorm_bridge.mds.dataset import open_dataset
from petastorm_bridge.mds.decode import column_array, column_view
from petastorm_bridge.mds.errors import DatasetError

WORDS = [0, 1, 2, 3, 4, 5, 0x7F, 0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF]


unwatched = ragged.alternating


def watched(raw, starts, lengths):
    """Stand in for ``alternating``, insisting on what it relies on."""
    starts, lengths = np.asarray(starts), np.asarray(lengths)
    if len(starts):
        stops = starts + lengths
        assert (lengths >= 0).all()
        assert starts[0] >= 0
        assert stops[-1] <= len(raw)
        assert (stops[:-1] <= starts[1:]).all()
    return unwatched(raw, starts, lengths)


def alter(data, rows, random):
    """Change some bytes, most often words of the header or of rows."""
    data = bytearray(data)
    first = struct.unpack_from("<I", data, 4)[0]
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        kind = random.randrange(5)
        if kind == 0:  # the number of rows or an offset
            struct.pack_into("<I", data, 4 * random.randrange(rows + 2), word(random, len(data)))
        elif kind == 1:  # a size word at the start of a row
            row = random.randrange(rows)
            (start,) = struct.unpack_from("<I", data, 4 + 4 * row)
            place = start + 4 * random.randrange(8)
            if place + 4 <= len(data):
                struct.pack_into("<I", data, place, word(random, len(data)))
        elif kind == 2:  # two size words, so that the row keeps its length
            (start,) = struct.unpack_from("<I", data, 4 + 4 * random.randrange(rows))
            one, other = start, start + 4 * random.randrange(1, 6)
            if other + 4 <= len(data):
                a, b = (struct.unpack_from("<I", data, place)[0] for place in (one, other))
                moved = random.randint(-b, a)
                struct.pack_into("<I", data, one, (a - moved) % 2**32)
                struct.pack_into("<I", data, other, (b + moved) % 2**32)
        elif kind == 3:  # any byte of the rows
            data[random.randrange(min(first, len(data) - 1), len(data))] = random.randrange(256)
        else:  # any byte
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def word(random, size):
    return random.choice([*WORDS, size, size - 1, size + 1, random.randrange(2**32)])


def read(dataset):
    """Read every column of the first shard; return how it went."""
    outcomes = set()
    for field in dataset.schema.fields:
        rows = dataset.shards[0].samples
        for selection in (slice(None), slice(1, rows - 1), np.arange(rows)[::-1].copy()):
            try:
                opened = dataset.open_shard(0)
                array = column_array(opened, field, selection)
                array.validate(full=True)
                assert array.type == field.type
                assert len(array) == len(np.arange(rows)[selection])
                view = column_view(opened, field, selection)
                assert view is None or len(view) == len(array)
                outcomes.add("read")
            except DatasetError as error:
                message = str(error)
                outcomes.add("refused" if opened_path(dataset) in message else message)
    return outcomes


def opened_path(dataset):
    return os.path.join(dataset.directory, dataset.shards[0].basenames[0])


def main(parent, rounds, seed):
    ragged.alternating = walk.alternating = watched
    outcomes = Counter()
    for name in sorted(os.listdir(parent)):
        rng = random.Random(f"{seed} {name}")
        dataset = open_dataset(os.path.join(parent, name))
        path = opened_path(dataset)
        with open(path, "rb") as file:
            whole = file.read()
        for _ in range(rounds):
            with open(path, "wb") as file:
                file.write(alter(whole, dataset.shards[0].samples, rng))
            outcomes.update(f"{name} {outcome}" for outcome in read(dataset))
    for outcome, count in sorted(outcomes.items()):
        print(outcome, count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
