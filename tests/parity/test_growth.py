"""How the costs of a comparison grow with the number of columns and of batches."""

import numpy as np
import pytest
from growth import assert_grows_linearly

from petastorm_bridge.parity import Promise, Rules, compare, record

pytestmark = [pytest.mark.modern, pytest.mark.slow]


def recorded(folder, columns, batches, changed):
    """A recording of two rows a batch, whose arrays are turned around from batch to batch."""

    def loader():
        for batch in range(batches):
            shape = (2, 3, 1) if batch % 2 else (2, 1, 3)
            table = {f"c{n}": np.full(shape, float(batch)) for n in range(columns)}
            for name in table if changed and batch == batches // 2 else ():
                table[name][1] += 0.5
            yield {"id": np.arange(2 * batch, 2 * batch + 2), **table}

    record(loader(), folder)
    return folder


@pytest.mark.parametrize("order", ["exact", "shuffled"])
@pytest.mark.parametrize(("columns", "batches"), [(None, 3), (2, None)])
def test_costs_grow_with_columns_and_batches(tmp_path, columns, batches, order):
    def prepare(size):
        counts = columns or size, batches or size
        folders = [tmp_path / f"{size}-{side}" for side in "ab"]
        for folder in folders:
            if not folder.exists():
                recorded(folder, *counts, changed=folder is folders[1])

        def comparison():
            result = compare(*folders, Rules(order=order, key=["id"]), profile=True)
            assert len(result.promise(Promise.VALUES).findings) == min(10, counts[0])
            assert "--tolerance float64=" in result.hint

        return comparison

    assert_grows_linearly(prepare, 60)


@pytest.mark.parametrize("columns", [None, 2])
def test_costs_of_recording_grow_with_columns_and_batches(tmp_path, columns):
    def prepare(size):
        folder = tmp_path / f"{size}-{len(list(tmp_path.iterdir()))}"
        return lambda: recorded(folder, columns or size, 3 if columns is None else size, True)

    assert_grows_linearly(prepare, 60)
