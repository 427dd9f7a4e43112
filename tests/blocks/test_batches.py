"""Cutting blocks into batches, against taking one row at a time."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastorm_bridge._blocks.batches import concatenate, cut, cut_groups
from petastorm_bridge._blocks.columns import Block

SIZES = st.lists(st.integers(0, 12), max_size=8)


def blocks_of(sizes):
    """Blocks of numbers, matrices and a list, all derived from the row number."""
    first = 0
    for size in sizes:
        rows = np.arange(first, first + size)
        first += size
        matrix = np.stack([rows, rows * 2], axis=1).reshape(size, 1, 2)
        columns = {"i": rows, "m": matrix.astype(np.float32), "texts": [f"t{row}" for row in rows]}
        yield Block(columns, size)


def arrays_of(sizes):
    """The same without the list."""
    for block in blocks_of(sizes):
        columns = {name: block.columns[name] for name in ("i", "m")}
        yield Block(columns, block.num_rows)


def cut_naively(total, size):
    """Row numbers of each batch."""
    batches = []
    for row in range(total):
        if not batches or len(batches[-1]) == size:
            batches.append([])
        batches[-1].append(row)
    return batches


def number_of_rows(batch):
    return batch["i"].size


def check(batch, rows):
    assert list(batch) == ["i", "m", "texts"][: len(batch)]
    assert batch["i"].tolist() == rows
    assert batch["m"].dtype == np.float32
    assert batch["m"].shape == (len(rows), 1, 2)
    assert batch["m"][:, 0, 1].tolist() == [2 * row for row in rows]
    if "texts" in batch:
        assert batch["texts"] == [f"t{row}" for row in rows]


@given(sizes=SIZES, size=st.integers(1, 20) | st.none())
@settings(max_examples=300)
def test_batches_are_those_of_row_by_row(sizes, size):
    found = list(cut(blocks_of(sizes), size))
    expected = cut_naively(sum(sizes), size)
    assert len(found) == len(expected)
    for batch, rows in zip(found, expected, strict=True):
        check(batch, rows)


@given(sizes=SIZES, size=st.integers(1, 20) | st.none())
def test_batches_are_writable_and_nobody_elses(sizes, size):
    blocks = list(blocks_of(sizes))
    found = list(cut(iter(blocks), size))
    for batch in found:
        assert batch["i"].flags.writeable
        assert batch["i"].flags.c_contiguous
        batch["i"][:] = -1
        batch["texts"].clear()
    assert [row for block in blocks for row in block.columns["i"]] == list(range(sum(sizes)))
    assert sum(len(block.columns["texts"]) for block in blocks) == sum(sizes)


@given(sizes=SIZES, size=st.integers(1, 20), most_rows=st.integers(1, 50), rows=st.integers(1, 50))
@settings(max_examples=300)
def test_groups_are_the_same_batches(sizes, size, most_rows, rows):
    width = 8 + 2 * 4
    total = sum(sizes)
    flat = []
    arrived = 0

    def watched():
        nonlocal arrived
        for block in arrays_of(sizes):
            arrived += block.num_rows
            yield block

    for group in cut_groups(watched(), size, most_rows, rows * width):
        batches, length = group["i"].shape
        assert group["m"].shape == (batches, length, 1, 2)
        assert length == size or (batches == 1 and arrived == total)
        assert batches * length <= max(size, min(most_rows, rows))
        flat += [{name: column[i] for name, column in group.items()} for i in range(batches)]
    expected = cut_naively(total, size)
    assert len(flat) == len(expected)
    for batch, numbers in zip(flat, expected, strict=True):
        check(batch, numbers)


def test_a_group_does_not_wait_for_the_next_block():
    asked = []

    def watched():
        for block in arrays_of([10, 10]):
            asked.append(block.num_rows)
            yield block

    groups = cut_groups(watched(), 4, 1000, 1 << 20)
    assert next(groups)["i"].shape == (2, 4)
    assert asked == [10]
    assert [group["i"].shape for group in groups] == [(1, 4), (2, 4)]


def test_a_full_batch_does_not_wait_for_the_next_block():
    asked = []

    def watched():
        for block in blocks_of([8, 8]):
            asked.append(block.num_rows)
            yield block

    batches = cut(watched(), 4)
    assert [next(batches)["i"].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert asked == [8]


@pytest.mark.parametrize("cutting", [lambda b: cut(b, 999), lambda b: cut_groups(b, 999, 99, 99)])
def test_leftovers_do_not_keep_their_block(cutting):
    """One row of a thousand waits for two more blocks; the thousand do not."""
    kept = []

    def source():
        rows = np.arange(1000)
        kept.append(weakref.ref(rows))
        yield Block({"i": rows}, 1000)
        del rows
        yield Block({"i": np.arange(5)}, 5)
        gc.collect()
        kept.append(kept[0]() is None)
        yield Block({"i": np.arange(5)}, 5)

    assert sum(map(number_of_rows, cutting(source()))) == 1010
    assert kept[1]


@pytest.mark.parametrize("cutting", [lambda b: cut(b, 4), lambda b: cut_groups(b, 4, 100, 1000)])
def test_differing_shapes_in_one_batch_are_an_error(cutting):
    blocks = [Block({"v": np.zeros((3, 2))}, 3), Block({"v": np.zeros((3, 5))}, 3)]
    with pytest.raises(
        RuntimeError, match=r"equal size, but got \[2\] and \[5\] in column 'v'.*Pad"
    ):
        list(cutting(iter(blocks)))


def test_differing_shapes_in_different_batches_are_none():
    blocks = [Block({"v": np.zeros((4, 2))}, 4), Block({"v": np.zeros((4, 5))}, 4)]
    assert [batch["v"].shape for batch in cut(iter(blocks), 4)] == [(4, 2), (4, 5)]


def test_columns_without_elements():
    blocks = [Block({"v": np.zeros((5, 0))}, 5), Block({"v": np.zeros((5, 0))}, 5)]
    assert [batch["v"].shape for batch in cut(iter(blocks), 4)] == [(4, 0), (4, 0), (2, 0)]
    groups = [group["v"].shape for group in cut_groups(iter(blocks), 2, 100, 1000)]
    assert groups == [(2, 2, 0), (1, 2, 0), (2, 2, 0)]


def test_concatenate_widens_types():
    joined = concatenate([{"v": np.arange(2, dtype=np.int32)}, {"v": np.array([0.5])}])
    assert joined["v"].tolist() == [0.0, 1.0, 0.5]
