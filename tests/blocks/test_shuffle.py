"""The two shuffle buffers, against models that move one row at a time."""

import math
import resource

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastorm_bridge._blocks.columns import Block
from petastorm_bridge._blocks.shuffle import _CHUNK, _CHUNK_BYTES, shuffle_pool, shuffle_window

BOTH = pytest.mark.parametrize("shuffle", [shuffle_pool, shuffle_window])


def blocks_of(epochs):
    """Blocks of the given sizes, epoch by epoch; row ``i`` of epoch ``e`` is ``e * 1e6 + i``."""
    for epoch, sizes in enumerate(epochs):
        first = epoch * 1_000_000
        for position, size in enumerate(sizes):
            rows = np.arange(first, first + size)
            first += size
            columns = {"i": rows, "v": np.stack([rows, rows * 2], axis=1).astype(np.float32)}
            yield Block(columns, size, position == len(sizes) - 1)


def rows_of(blocks):
    """The row numbers of blocks, after a check that all columns moved together."""
    found = [np.empty(0, np.int64)]
    for block in blocks:
        rows = block.columns["i"]
        assert len(rows) == block.num_rows
        expected = np.stack([rows, rows * 2], axis=1).astype(np.float32)
        assert np.array_equal(block.columns["v"], expected)
        found.append(np.asarray(rows))
    return np.concatenate(found).tolist()


EPOCHS = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=6), min_size=1, max_size=4)


@BOTH
@given(epochs=EPOCHS, capacity=st.integers(1, 100), seed=st.integers(0, 99))
@settings(max_examples=100)
def test_each_epoch_is_a_permutation_of_itself(shuffle, epochs, capacity, seed):
    found = rows_of(shuffle(blocks_of(epochs), capacity, np.random.default_rng(seed)))
    first = 0
    for epoch, sizes in enumerate(epochs):
        total = sum(sizes)
        rows = found[first : first + total]
        assert sorted(rows) == list(range(epoch * 1_000_000, epoch * 1_000_000 + total))
        first += total
    assert first == len(found)


@BOTH
def test_the_end_of_each_epoch_is_marked(shuffle):
    found = list(shuffle(blocks_of([[7, 3], [5], [9000, 1]]), 4, np.random.default_rng(0)))
    totals, rows = [], 0
    for block in found:
        rows += block.num_rows
        if block.ends_epoch:
            totals.append(rows)
            rows = 0
    assert (totals, rows) == ([10, 5, 9001], 0)


@BOTH
def test_a_generator_decides_the_order(shuffle):
    def order(seed):
        return rows_of(shuffle(blocks_of([[50, 50, 50]]), 40, np.random.default_rng(seed)))

    assert order(1) == order(1) != order(2)


@BOTH
def test_capacity_one_is_no_shuffling_across_rows(shuffle):
    """A single row waits, and so each leaves before the next comes (pool: block by block)."""
    found = rows_of(shuffle(blocks_of([[1] * 30]), 1, np.random.default_rng(0)))
    assert found == list(range(30))


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8), capacity=st.integers(1, 60))
@settings(max_examples=150)
def test_the_pool_swallows_whole_blocks_and_keeps_fewer_than_its_capacity(sizes, capacity):
    """As petastorm/reader_impl/pytorch_shuffling_buffer.py: what has left after each block."""
    released = []

    def watched():
        for block in blocks_of([sizes]):
            released.append(0)
            yield block

    for block in shuffle_pool(watched(), capacity, np.random.default_rng(3)):
        released[-1] += block.num_rows
    waiting, expected = 0, []
    for position, size in enumerate(sizes):
        waiting += size
        # Rows leave while `capacity` or more wait; at the end of the epoch, all do.
        keep = 0 if position == len(sizes) - 1 else min(waiting, capacity - 1)
        expected.append(waiting - keep)
        waiting = keep
    assert released == expected


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8), capacity=st.integers(1, 60))
@settings(max_examples=150)
def test_the_window_lets_rows_leave_early_by_less_than_its_capacity(sizes, capacity):
    found = rows_of(shuffle_window(blocks_of([sizes]), capacity, np.random.default_rng(4)))
    assert all(row - place < capacity for place, row in enumerate(found))


@BOTH
def test_wide_rows_leave_a_few_at_a_time(shuffle):
    """So that they stay in the processor's cache; which rows leave when does not depend on it."""
    ids = np.arange(3000)

    def shuffled(columns):
        return [*shuffle(iter([Block(columns, 3000, True)]), 1000, np.random.default_rng(0))]

    wide, narrow = shuffled({"i": ids, "v": np.zeros((3000, 250))}), shuffled({"i": ids})
    assert all(block.columns["v"].nbytes <= _CHUNK_BYTES for block in wide)
    rows = [
        np.concatenate([block.columns["i"] for block in each]).tolist() for each in (wide, narrow)
    ]
    assert rows[0] == rows[1]


def window_row_by_row(count, capacity, rng, draws):
    """tf.data's shuffle with given draws: each newcomer takes the place of a random waiting row."""
    waiting = list(range(min(capacity, count)))
    left = []
    for row, draw in zip(range(capacity, count), draws, strict=True):
        left.append(waiting[draw])
        waiting[draw] = row
    return left


@pytest.mark.parametrize(("count", "capacity"), [(500, 3), (500, 50), (5000, 7), (9000, 4500)])
def test_the_window_is_tf_datas_row_by_row(count, capacity):
    """The same draws give the same rows, also where a newcomer is replaced within its own block."""
    found = rows_of(shuffle_window(blocks_of([[count]]), capacity, np.random.default_rng(5)))
    rng = np.random.default_rng(5)
    draws = []
    for start in range(0, count, _CHUNK):
        arriving = min(start + _CHUNK, count) - max(start, capacity)
        if arriving > 0:
            draws += rng.integers(0, capacity, arriving).tolist()
    expected = window_row_by_row(count, capacity, rng, draws)
    assert found[: len(expected)] == expected
    assert sorted(found) == list(range(count))


def chi_square(counts):
    """Pearson's statistic of counts against equal shares, in standard deviations from its mean."""
    counts = np.asarray(counts, float)
    expected = counts.mean()
    degrees = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - degrees) / math.sqrt(2 * degrees)


def test_the_pool_draws_uniformly():
    """Where each of 8 rows goes, over many epochs; and which rows leave the pool first."""
    rounds = 4000
    places = np.zeros((8, 8))
    first_out = np.zeros(12)
    rng = np.random.default_rng(6)
    for _ in range(rounds):
        found = rows_of(shuffle_pool(blocks_of([[5, 3]]), 100, rng))
        places[found, range(8)] += 1
        blocks = shuffle_pool(blocks_of([[12, 4]]), 12, rng)
        first_out[rows_of([next(blocks)])] += 1  # one row leaves for capacity 12
    assert all(abs(chi_square(row)) < 4.5 for row in places)
    assert first_out.sum() == rounds
    assert abs(chi_square(first_out)) < 4.5


def test_a_small_share_is_drawn_uniformly():
    """Drawing few of many takes another way than drawing most."""
    rounds, rng = 3000, np.random.default_rng(7)
    first, second = np.zeros(40), np.zeros(40)
    for _ in range(rounds):
        blocks = shuffle_pool(blocks_of([[40, 4, 1]]), 36, rng)
        one, two = next(blocks), next(blocks)
        assert (one.num_rows, two.num_rows) == (5, 4)
        first[rows_of([one])] += 1
        rows = np.array(rows_of([two]))
        second[rows[rows < 40]] += 1
    assert abs(chi_square(first)) < 4.5
    assert abs(chi_square(second)) < 4.5


def test_the_window_draws_uniformly():
    rounds, rng = 3000, np.random.default_rng(8)
    first = np.zeros(10)
    for _ in range(rounds):
        found = rows_of(shuffle_window(blocks_of([[30]]), 10, rng))
        first[found[0]] += 1
    assert abs(chi_square(first)) < 4.5


@BOTH
@pytest.mark.parametrize("width", [1, 250, 30_000])
def test_room_for_many_rows_takes_no_memory_for_few(shuffle, width):
    def few():
        for texts in (
            "a",
            "abc",
            "abcdef",
        ):  # each of another type, which a record for all has to take
            columns = {"v": np.zeros((20, width)), "text": np.array([texts] * 20)}
            yield Block(columns, 20, texts == "abcdef")

    list(shuffle(few(), 10, np.random.default_rng(0)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        found = shuffle(few(), 10**12, np.random.default_rng(0))
        assert sum(block.num_rows for block in found) == 60
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 64 << 10  # KiB


def test_wide_rows_beside_narrow_ones_stay_together():
    """They go into their places field by field, among others that come and leave."""
    count = 2000
    ids = np.arange(count)
    wide = np.repeat(ids[:, None], 300, axis=1).astype(np.float32)
    sizes = [7, 500, 3, 990, 500]
    ends = np.cumsum(sizes)
    blocks = [
        Block({"i": ids[end - size : end], "v": wide[end - size : end]}, size, end == count)
        for size, end in zip(sizes, ends, strict=True)
    ]
    found = list(shuffle_pool(iter(blocks), 120, np.random.default_rng(1)))
    order = np.concatenate([block.columns["i"] for block in found])
    assert sorted(order) == ids.tolist()
    assert np.array_equal(np.concatenate([block.columns["v"] for block in found]), wide[order])


@BOTH
def test_objects_texts_and_names(shuffle):
    """Column types that are no plain numbers, and names that NumPy's records do not take."""
    count = 300
    rows = np.arange(count)
    texts = np.array([f"t{row}" for row in rows])
    columns = {
        "": rows,
        "f0": texts,
        "objects": np.array([None if row % 7 == 0 else {"row": row} for row in rows], object),
        "times": rows.astype("datetime64[ns]"),
        "truth": rows % 2 == 0,
        "matrix": np.stack([rows] * 6, axis=1).reshape(count, 2, 3).astype(np.float16),
        "nothing": np.empty((count, 0), np.float32),
    }
    blocks = [
        Block({name: column[start : start + 100] for name, column in columns.items()}, 100, False)
        for start in range(0, count, 100)
    ]
    found = list(shuffle(iter(blocks), 150, np.random.default_rng(0)))
    order = np.concatenate([block.columns[""] for block in found])
    assert sorted(order) == rows.tolist()
    for name, column in columns.items():
        shuffled = np.concatenate([block.columns[name] for block in found])
        assert list(found[0].columns) == list(columns)
        assert shuffled.dtype == column.dtype
        assert shuffled.shape == column.shape
        assert np.array_equal(shuffled, column[order])


@BOTH
def test_only_a_column_without_elements(shuffle):
    block = Block({"nothing": np.empty((5, 0), np.float32)}, 5, True)
    found = list(shuffle(iter([block]), 2, np.random.default_rng(0)))
    assert sum(len(part.columns["nothing"]) for part in found) == 5


@BOTH
def test_dtypes_are_widened_when_later_blocks_need_it(shuffle):
    parts = [
        (np.arange(10, dtype=np.int32), np.array(["a"] * 10)),
        (np.arange(10, 20, dtype=np.float64), np.array(["abcdef"] * 10)),
        (np.array([None] * 10, object), np.array(["b"] * 10)),
    ]
    blocks = [
        Block({"n": number, "s": text}, 10, position == 2)
        for position, (number, text) in enumerate(parts)
    ]
    found = list(shuffle(iter(blocks), 15, np.random.default_rng(0)))
    numbers = [value for block in found for value in block.columns["n"].tolist()]
    texts = [value for block in found for value in block.columns["s"].tolist()]
    assert sorted(value for value in numbers if value is not None) == list(range(20))
    assert numbers.count(None) == 10
    for number, text in zip(numbers, texts, strict=True):
        assert text == ("b" if number is None else "a" if number < 10 else "abcdef")


@BOTH
def test_differing_shapes_are_an_error(shuffle):
    blocks = [
        Block({"v": np.zeros((5, 3))}, 5, False),
        Block({"v": np.zeros((5, 4))}, 5, True),
    ]
    with pytest.raises(RuntimeError, match=r"equal size, but got \[3\] and \[4\] in column 'v'"):
        list(shuffle(iter(blocks), 20, np.random.default_rng(0)))


@BOTH
def test_what_leaves_does_not_change_later(shuffle):
    """Blocks that a consumer keeps are not views of the buffer."""
    blocks = shuffle(blocks_of([[50] * 20]), 60, np.random.default_rng(0))
    kept = [(block, block.columns["i"].copy()) for block in blocks]
    assert all(np.array_equal(block.columns["i"], copy) for block, copy in kept)


@BOTH
def test_blocks_without_rows_or_columns(shuffle):
    blocks = [Block({}, 0, False), Block({"i": np.arange(3)}, 3, False), Block({}, 0, True)]
    found = list(shuffle(iter(blocks), 2, np.random.default_rng(0)))
    assert sorted(row for block in found for row in block.columns["i"]) == [0, 1, 2]
    assert list(shuffle(iter([Block({}, 0, True)]), 2, np.random.default_rng(0))) == []
    assert list(shuffle(iter([]), 2, np.random.default_rng(0))) == []


@BOTH
def test_inputs_are_left_alone(shuffle):
    rows = np.arange(100)
    list(shuffle(iter([Block({"i": rows}, 100, True)]), 30, np.random.default_rng(0)))
    assert np.array_equal(rows, np.arange(100))
