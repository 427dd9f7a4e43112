"""Rows of a decoded column in another order."""

import numpy as np
import pyarrow as pa
import pytest

from petastorm_bridge._sources.parquet_reading import rows_of

_ORDERS = {
    "permuted": np.random.default_rng(0).permutation(50),
    "part": np.array([49, 0, 7]),
    "repeated": np.array([3, 3, 3]),
    "none": np.empty(0, np.int64),
}


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS)
@pytest.mark.parametrize("shape", [(50,), (50, 3)], ids=["numbers", "matrix"])
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f2", "f8"])
def test_rows_are_gathered_as_numpy_does(dtype, shape, order):
    column = (np.random.default_rng(1).random(shape) * 100).astype(dtype)
    column.setflags(write=False)

    gathered = rows_of(column, order)

    np.testing.assert_array_equal(gathered, column[order], strict=True)
    assert gathered.flags.writeable


def test_gathered_rows_of_an_empty_column_are_empty():
    gathered = rows_of(np.empty((0, 2), np.float32), np.empty(0, np.int64))

    assert (gathered.shape, gathered.dtype) == ((0, 2), np.float32)


def test_gathered_lists_stay_lists_of_arrow():
    lists = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    gathered = rows_of(lists, np.array([2, 0]))

    assert gathered.equals(pa.array([[5.0, 6.0], [1.0, 2.0]]))
