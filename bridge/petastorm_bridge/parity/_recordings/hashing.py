"""Hash rows: equal ones are found by it wherever they are, whatever batches they came in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from .cells import Array, Cells, uniform

_NULL = np.uint64(0xA5A5F00D5EEDB105)
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)


def hashes(cells: Cells) -> Array:
    """Hash each row, uint64 [rows]."""
    if cells.kind == "mixed":
        row_hashes = np.empty(cells.rows, np.uint64)
        for rows, of_rows in uniform(cells):
            row_hashes[rows] = hashes(of_rows)
        return row_hashes
    if cells.kind == "ragged":
        return np.asarray(hash_ragged(cells.values, cells.dtype))
    if cells.kind == "number":
        return np.asarray(hash_fixed(cells.values, cells.dtype))
    return np.asarray(hash_flat(cells.values, cells.kind, cells.rows, cells.shape))


def mix(words: Array) -> Array:
    """Scramble 64-bit words in place (the finaliser of splitmix64)."""
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


@lru_cache(maxsize=4096)
def hash_kind(dtype: str, shape: tuple[int, ...]) -> Array:
    """Hash a dtype and the shape of one row's value; uint64 [1].

    Every row's hash contains it: rows of the same bytes and another shape are other rows.
    """
    name = f"{dtype} {shape!r}".encode("utf-8", "surrogatepass")
    return np.frombuffer(hashlib.blake2b(name, digest_size=8).digest(), np.uint64)


def hash_fixed(values: Any, dtype: str) -> Array:
    """Hash each row of an array [n, ...] of fixed-width elements, with dtype and shape; uint64 [n]."""
    rows, shape = values.shape[0], tuple(map(int, values.shape[1:]))
    kind = hash_kind(dtype, shape)
    width = values.dtype.itemsize * int(np.prod(shape))
    if rows == 0 or width == 0:
        return mix(np.repeat(kind, rows))
    raw = np.ascontiguousarray(values).reshape(rows, -1).view(np.uint8).reshape(rows, width)
    length = -(-width // 8)
    keys = np.arange(1, length + 1, dtype=np.uint64) * _GOLDEN_RATIO
    hashes = np.empty(rows, np.uint64)
    step = max(1, (1 << 18) // length)
    for start in range(0, rows, step):
        part = raw[start : start + step]
        if width % 8:
            padded = np.zeros((len(part), length * 8), np.uint8)
            padded[:, :width] = part
            part = padded
        words = part.view(np.uint64) + keys
        hashes[start : start + step] = mix(words).sum(axis=1, dtype=np.uint64)
    return mix(hashes + kind)


def hash_flat(array: Any, kind: str, rows: int, shape: tuple[int, ...]) -> Array:
    """Hash each row of strings or bytes, which are a flat Arrow array of all cells; uint64 [n].

    A null has the same hash whatever kind of column it is in: of nulls alone nobody knows the kind.
    """
    words = array.cast(pa.large_binary()).dictionary_encode()
    digests = b"".join(
        hashlib.blake2b(word, digest_size=8, person=kind.encode()).digest()
        for word in words.dictionary.to_pylist()
    )
    hashes = np.append(np.frombuffer(digests, np.uint64), _NULL)
    places = words.indices.fill_null(len(words.dictionary)).to_numpy(zero_copy_only=False)
    return hash_fixed(hashes[places].reshape((rows, *shape)), "cells")


def hash_ragged(arrays: Sequence[Any], dtype: str) -> Array:
    """Hash each array of a list of arrays or None as `hash_fixed` hashes it; uint64 [n]."""
    places: dict[Any, list[int]] = {}
    for place, array in enumerate(arrays):
        places.setdefault(None if array is None else array.shape, []).append(place)
    hashes = np.empty(len(arrays), np.uint64)
    for shape, alike in places.items():
        if shape is None:
            hashes[alike] = hash_fixed(np.full(1, _NULL), "cells")
        else:
            hashes[alike] = hash_fixed(np.stack([arrays[place] for place in alike]), dtype)
    return hashes


def hash_rows(columns: Mapping[str, Array]) -> Array:
    """Combine {name: hashes} of the columns of some rows; the columns' order does not matter."""
    total = np.zeros(1, np.uint64)
    for name, hashes in columns.items():
        salt = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        total = total + mix(hashes + np.frombuffer(salt, np.uint64))
    return mix(total)
