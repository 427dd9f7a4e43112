"""What compression and row group arguments mean, for every value Petastorm was measured with."""

import numpy as np
import pytest

from petastorm_bridge.mds.codecs import parse_compression
from petastorm_bridge.spark._session import ArgumentTypeError
from petastorm_bridge.spark._writing import codecs


@pytest.mark.parametrize(("codec", "mds"), codecs.CODECS.items())
def test_every_codec_of_petastorm_names_an_mds_compression(codec, mds):
    assert codecs.mds_compression(codec.upper()) == mds
    expected = None if mds is None else mds.partition(":")[0]
    found = parse_compression(mds)
    assert (None if found is None else found.extension) == expected


@pytest.mark.parametrize("codec", [None, "", 0, False])
def test_falsy_codecs_mean_uncompressed(codec):
    assert codecs.mds_compression(codec) is None


@pytest.mark.parametrize("codec", ["zstd", "brotli", "none", "foo"])
def test_codecs_unknown_to_petastorm_are_refused_with_its_text(codec):
    expected = (
        "compression_codec should be None or one of the following values: "
        "'uncompressed', 'bzip2', 'gzip', 'lz4', 'snappy', 'deflate'"
    )
    with pytest.raises(RuntimeError) as caught:
        codecs.mds_compression(codec)
    assert str(caught.value) == expected


def test_a_codec_of_another_type_is_a_type_error_and_petastorms_attribute_error():
    with pytest.raises(TypeError, match="not int: 5") as caught:
        codecs.mds_compression(5)
    assert isinstance(caught.value, AttributeError)


@pytest.mark.parametrize(
    ("asked", "size"),
    [
        (32 << 20, 32 << 20),
        (np.int64(4096), 4096),
        ("1024", 1024),
        (None, 128 << 20),
        (0, 1),
        (-1, 1),
        (1 << 40, 1 << 40),
    ],
)
def test_row_group_sizes_that_petastorm_takes_are_taken(asked, size):
    assert codecs.shard_size(asked) == size


@pytest.mark.parametrize("asked", ["abc", "1k", "", "1024.5"])
def test_row_group_sizes_that_are_no_numbers_are_value_errors(asked):
    with pytest.raises(ValueError, match="is not a whole number"):
        codecs.shard_size(asked)


@pytest.mark.parametrize("asked", [1024.5, True, [1]])
def test_row_group_sizes_of_another_type_are_type_errors(asked):
    with pytest.raises(ArgumentTypeError, match="not an int"):
        codecs.shard_size(asked)
