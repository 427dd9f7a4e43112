"""What a transform may return."""

import copy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import TransformSpec, make_batch_reader


@pytest.fixture
def url(tmp_path):
    pq.write_table(pa.table({"id": np.arange(6)}), tmp_path / "x.parquet", row_group_size=3)
    return tmp_path.as_uri()


@pytest.mark.difference("strided-arrays")
@pytest.mark.parametrize("pool", ["thread", "process"])
@pytest.mark.parametrize(
    "arrange",
    [lambda v: v.transpose(2, 0, 1), np.asfortranarray, lambda v: v[::-1, :, ::2]],
    ids=["transposed", "fortran", "strided"],
)
def test_arrays_in_any_memory_order(url, pool, arrange):
    value = np.arange(24.0).reshape(2, 3, 4)
    expected = arrange(value)

    def change(frame):
        frame["v"] = [arrange(value + i) for i in frame["id"]]
        return frame

    spec = TransformSpec(change, edit_fields=[("v", np.float64, expected.shape, False)])
    with make_batch_reader(
        url, reader_pool_type=pool, workers_count=1, transform_spec=spec, shuffle_row_groups=False
    ) as reader:
        groups = list(reader)
    for group in groups:
        assert group.v.flags.c_contiguous
        for i, found in zip(group.id, group.v, strict=True):
            np.testing.assert_array_equal(found, expected + i)


def test_a_copy_is_stopped_with_its_reader(url):
    reader = make_batch_reader(url)
    other = copy.copy(reader)
    other.stop()
    assert reader.stopped
    for each in (reader, other):
        with pytest.raises(RuntimeError, match="has stopped"):
            next(each)
    reader.join()


def test_a_reader_says_what_it_reads(url):
    with make_batch_reader(url) as reader:
        path = url.removeprefix("file://")
        assert repr(reader) == f"<Reader of {path}: 6 rows, 2 row groups, near, fields id>"
    assert repr(reader).endswith(", stopped>")
