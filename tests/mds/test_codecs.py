"""Compression and hashing under MDS names, against the packages that streaming uses."""

import bz2
import gzip
import subprocess
import sys

import numpy as np
import pytest

from petastorm_bridge.mds import codecs

DATA = bytes(range(256)) * 7 + b"the same words again and again " * 40
FAMILIES = ["zstd", "gz", "snappy", "br", "bz2"]
NAMES = [
    *FAMILIES,
    *(f"{family}:{level}" for family in FAMILIES for level in (0, 1, 9, 10, 11, 12, 22, 23)),
    *("", "zip", "zstd:", "zstd:07", "zstd:-1", "zstd:3.0", "zstd:³", "ZSTD", " zstd", "gzip", "bz2:5:1"),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_streaming(name):
    stock = pytest.importorskip("streaming.base.compression")
    if stock.is_compression(name):
        assert codecs.parse_compression(name).extension == stock.get_compression_extension(name)
    else:
        with pytest.raises(ValueError, match=r"Unknown shard compression .*'zstd' \(1-22\)"):
            codecs.parse_compression(name)


def test_no_name_is_no_compression():
    assert codecs.parse_compression(None) is None


def test_every_level_is_understood_by_streaming_and_the_other_way_round():
    stock = pytest.importorskip("streaming.base.compression")
    names = sorted(stock.get_compressions())
    assert len(names) > 50
    for name in names:
        codec = codecs.parse_compression(name)
        assert stock.decompress(name, codec.compress(DATA)) == DATA, name
        assert codec.decompress(stock.compress(name, DATA), len(DATA)) == DATA, name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 70_000, 3_000_000])
def test_sizes(family, size):
    data = np.random.default_rng(0).integers(0, 7, size, np.uint8).tobytes()
    codec = codecs.parse_compression(family + (":1" if family != "snappy" else ""))
    packed = codec.compress(memoryview(data))
    assert codec.decompress(memoryview(packed), size) == data


def test_levels_are_used():
    words = np.random.default_rng(0).choice([b"some ", b"words ", b"in ", b"any ", b"order "], 9000)
    data = b"".join(words)
    packed = {
        name: len(codecs.parse_compression(name).compress(data))
        for name in ("zstd:1", "zstd:19", "br:0", "br:11", "gz:1", "gz:9")
    }
    assert packed["zstd:19"] < packed["zstd:1"]
    assert packed["br:11"] < packed["br:0"]
    assert packed["gz:9"] < packed["gz:1"]
    assert len(gzip.compress(data, 9)) == pytest.approx(packed["gz:9"], rel=0.1)
    assert bz2.decompress(codecs.parse_compression("bz2").compress(DATA)) == DATA


@pytest.mark.parametrize("family", FAMILIES)
def test_damaged_data_is_an_error(family):
    codec = codecs.parse_compression(family)
    packed = codec.compress(DATA)
    damaged = [b"", b"\0", b"garbage", packed[:-1], packed[: len(packed) // 2], DATA]
    for data in damaged:
        with pytest.raises((OSError, ValueError)):
            codec.decompress(data, len(DATA))
    # What is shorter or longer than expected must not be padded or cut.
    for size in (len(DATA) - 1, len(DATA) + 1, 2 * len(DATA)):
        with pytest.raises((OSError, ValueError)):
            codec.decompress(packed, size)


def test_hashes_are_those_of_streaming():
    stock = pytest.importorskip("streaming.base.hashing")
    for name in sorted(stock.get_hashes()):
        assert codecs.is_hash(name)
        assert codecs.digest(name, memoryview(DATA)) == stock.get_hash(name, DATA)
    assert stock.is_hash(codecs.default_hash())
    assert not codecs.is_hash("crc32")
    with pytest.raises(ValueError, match=r"Unknown hash 'crc32'; this machine has .*sha1"):
        codecs.digest("crc32", b"")


def test_without_xxhash_there_is_still_a_hash():
    script = (
        "import sys; sys.modules['xxhash'] = None\n"
        "from petastorm_bridge.mds import codecs\n"
        "print(codecs.default_hash(), codecs.is_hash('xxh64'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["sha1", "False"]
