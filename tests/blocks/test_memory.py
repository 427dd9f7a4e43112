"""Memory of columns that every block has."""

import numpy as np
import pyarrow as pa
import pytest

from petastorm_bridge._blocks.columns import pooled


@pytest.mark.parametrize("dtype", ["?", "u1", "f2", "f8", "M8[ns]", "<U3"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (3, 0), (7,), (5, 2, 3)])
def test_plain_values_lie_in_arrows_pool(shape, dtype):
    column = pooled(shape, dtype)

    assert (column.shape, column.dtype) == (shape, np.dtype(dtype))
    assert isinstance(column.base, pa.Buffer)
    assert column.flags.writeable
    assert column.flags.aligned
    assert column.flags.c_contiguous
    assert column.ctypes.data % 64 == 0


def test_objects_stay_in_memory_of_python():
    column = pooled((2, 3), object)

    assert column.tolist() == [[None] * 3] * 2
    assert not isinstance(column.base, pa.Buffer)


def test_more_than_any_machine_has():
    with pytest.raises(MemoryError):
        pooled((1 << 40, 1 << 10), np.float64)
