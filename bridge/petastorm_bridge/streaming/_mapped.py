"""Shard files that are opened by streaming's readers, and what kind of values their columns hold."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from petastorm_bridge._sources._far.fetch import Extent, Fetch
from petastorm_bridge._sources._far.stores import MountStore
from petastorm_bridge.mds.access import is_mapped, load
from petastorm_bridge.mds.layout import ShardLayout
from petastorm_bridge.mds.shard import Shard
from petastorm_bridge.mds.types import fixed_encoding
from petastorm_bridge.mds.verified import (
    best_hash,
    check_size,
    checked_bytes,
    differing_hash,
    mark,
    marks_of,
    replaced,
)


def shard_path(reader: Any) -> str:
    """Return where a shard's uncompressed file is or will be."""
    return str(os.path.join(reader.dirname, reader.split, reader.raw_data.basename))


def open_file(reader: Any) -> Shard:
    """Open a shard file.

    Args:
        reader: An ``MDSReader``, which says where the file is and what it holds by the index. One of the
            ``checked_hashes`` of a ``MappedReader`` is checked.

    Raises:
        FileNotFoundError: There is no such file.
        ShardCorruptedError: The file is not what the index says, or not the one that was noted.
        DatasetError: It is no regular file.
    """
    path, size = shard_path(reader), reader.raw_data.bytes
    hashes = getattr(reader, "checked_hashes", None)
    if is_mapped(os.path.dirname(path)):
        raw = checked_bytes(path, size, hashes, mapped=True)
    else:
        raw = _copied_bytes(path, size, hashes)
    check_file(reader)
    return Shard(path, raw, reader.samples, layout_of(reader))


def note_files(directory: str, readers: Sequence[Any]) -> None:
    """Remember which files the shards of a directory are in, so that others in their places are noticed."""
    marks = marks_of(directory, [reader.raw_data.basename for reader in readers])
    for reader in readers:
        reader.noted = marks.get(reader.raw_data.basename)


def check_file(reader: Any) -> None:
    """Look whether a shard's file is still the one that was noted; one that is deleted stays readable.

    Raises:
        ShardCorruptedError: It has another size than the index says, or was replaced or written since,
            and no hash of the index shows that its content is the same.
    """
    path = shard_path(reader)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    check_size(path, reader.raw_data.bytes, status.st_size)
    noted, current = getattr(reader, "noted", None), mark(status)
    if noted is None or noted == current:
        return
    hashes = reader.raw_data.hashes
    if best_hash(hashes) is None or differing_hash(hashes, load(path, mapped=False)[0]):
        raise replaced(path)
    reader.noted = current


def _copied_bytes(path: str, size: int, hashes: Mapping[str, str] | None) -> Any:
    """Return the bytes of a file whose mapping may fail: those of a copy, on a disk of this machine.

    The copy has no name, and takes up disk for as long as the bytes are in use.
    """
    check_size(path, size, os.stat(path).st_size)
    with tempfile.TemporaryDirectory(prefix="petastorm-bridge-") as folder:
        copy = os.path.join(folder, "shard")
        Fetch(MountStore(), Extent(path, path, size, hashes or {})).to_file(copy, has_lock=True)
        return load(copy, mapped=True)[0]


class Kind(Enum):
    """What the values of a column are for the user."""

    NUMBER = "numbers, or arrays of numbers of one shape, of fixed width"
    ARRAY = "arrays whose shape or type stands in each value"
    DIGITS = "numbers written in decimal digits"
    TEXT = "strings"
    BYTES = "bytes"
    OBJECT = "whatever the encoding's own decoder makes: JSON, images, pickles"


_KINDS = {
    "str": Kind.TEXT,
    "bytes": Kind.BYTES,
    "str_int": Kind.DIGITS,
    "str_float": Kind.DIGITS,
    "ndarray": Kind.ARRAY,
}


class Column(NamedTuple):
    """One stored column: its key in a sample, its MDS encoding, and what its values are."""

    name: str
    encoding: str
    kind: Kind


def layout_of(reader: Any) -> ShardLayout:
    """Return the layout that an ``MDSReader`` describes; equal ones are one object."""
    return _layout(
        tuple(reader.column_names), tuple(reader.column_encodings), tuple(reader.column_sizes)
    )


@functools.lru_cache(maxsize=1024)
def _layout(
    names: tuple[str, ...], encodings: tuple[str, ...], sizes: tuple[int | None, ...]
) -> ShardLayout:
    return ShardLayout(names, encodings, tuple(size or None for size in sizes))


@functools.lru_cache(maxsize=1024)
def columns_of(layout: ShardLayout) -> tuple[Column, ...]:
    """Return the columns in stored order, which is the order of a sample's keys."""
    return tuple(map(_column, layout.names, layout.encodings))


def _column(name: str, encoding: str) -> Column:
    if fixed_encoding(encoding) is not None:
        return Column(name, encoding, Kind.NUMBER)
    return Column(name, encoding, _KINDS.get(encoding.partition(":")[0], Kind.OBJECT))
