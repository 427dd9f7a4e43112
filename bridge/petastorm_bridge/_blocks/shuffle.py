"""Shuffle buffers over blocks: rows wait in slots of packed records and leave in random order.

Both buffers empty themselves at the end of every epoch, so that each epoch yields each row exactly
once; Petastorm's let rows of one epoch slip into the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .batches import different_shapes
from .columns import Block

# What is moved at once: enough for vector speed, and so little that it stays in cache.
_CHUNK = 4096
_CHUNK_BYTES = 512 << 10
# From so many bytes a field on, rows are stored field by field, each copied once.
_WIDE_FIELD_BYTES = 256
# Slots are made at once for what will wait, as making room anew copies all rows. At most so many bytes and slots:
# the system gives memory when it is first written to, but the list of free slots is written at once.
_EXPECTED_BYTES, _EXPECTED_SLOTS = 256 << 20, 1 << 18

Records = npt.NDArray[Any]


def shuffle_pool(
    blocks: Iterable[Block], capacity: int, rng: np.random.Generator
) -> Iterator[Block]:
    """Shuffle as Petastorm's torch loaders do (``reader_impl/shuffling_buffer.py``).

    Whole blocks go in whenever fewer than ``capacity`` rows wait; then rows leave, each drawn
    uniformly from all that wait, until fewer than ``capacity`` are left.
    """
    slots = _Slots(capacity)
    live: npt.NDArray[np.int64] = np.empty(0, np.int64)
    for block in blocks:
        if block.num_rows:
            live = np.concatenate([live, slots.insert(block)])
        leaving = len(live) if block.ends_epoch else max(len(live) - capacity + 1, 0)
        gone, live = _draw(live, leaving, rng)
        yield from _emit(slots, gone, block.ends_epoch)
        slots.release(gone)
    yield from _emit(slots, rng.permutation(live), True)


def shuffle_window(
    blocks: Iterable[Block], capacity: int, rng: np.random.Generator
) -> Iterator[Block]:
    """Shuffle as ``tf.data.Dataset.shuffle`` does.

    ``capacity`` rows wait; each further row takes the place of a random waiting one, which leaves.
    """
    slots = _Slots(capacity)
    waiting: npt.NDArray[np.int64] = np.empty(0, np.int64)
    for block in blocks:
        for packed in slots.packed(block):
            room = max(capacity - len(waiting), 0)
            waiting = np.concatenate([waiting, slots.insert_packed(packed[:room])])
            arriving = packed[room:]
            if len(arriving):
                chosen = waiting[rng.integers(0, capacity, len(arriving))]
                yield slots.block(slots.replace(chosen, arriving), ends_epoch=False)
        if block.ends_epoch:
            yield from _emit(slots, rng.permutation(waiting), True)
            slots.release(waiting)
            waiting = np.empty(0, np.int64)
    yield from _emit(slots, rng.permutation(waiting), True)


def _draw(
    live: npt.NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return ``count`` random entries of ``live`` in random order, and the others."""
    if count == 0:
        return live[:0], live
    if 4 * count >= len(live):
        mixed = rng.permutation(live)
        return mixed[:count], mixed[count:]
    # A small share: draw positions, then close the gaps with entries from the end.
    positions = rng.choice(len(live), count, replace=False)
    gone = live[positions]
    end = len(live) - count
    stays = np.ones(count, bool)
    stays[positions[positions >= end] - end] = False
    live[positions[positions < end]] = live[end:][stays]
    return gone, live[:end]


def _emit(slots: _Slots, ids: npt.NDArray[np.int64], ends_epoch: bool) -> Iterator[Block]:
    step = _rows_at_once(slots.records.dtype)
    for start in range(0, len(ids), step):
        chunk = ids[start : start + step]
        last = start + step >= len(ids)
        yield slots.block(slots.records.take(chunk), ends_epoch=ends_epoch and last)


def _rows_at_once(dtype: np.dtype[Any]) -> int:
    """Return how many records are moved at once."""
    return max(1, min(_CHUNK, _CHUNK_BYTES // max(1, dtype.itemsize)))


def _packed(dtype: np.dtype[Any], columns: list[npt.NDArray[Any]], count: int) -> Iterator[Records]:
    """Yield rows of columns as records, a few at a time."""
    step = _rows_at_once(dtype)
    for start in range(0, count, step):
        stop = min(start + step, count)
        packed = np.empty(stop - start, dtype)
        for field, column in zip(dtype.names or (), columns, strict=True):
            packed[field] = column[start:stop]
        yield packed


def _scatter(target: Records, places: npt.NDArray[np.int64], source: Records) -> None:
    """Do ``target[places] = source``."""
    if target.dtype.hasobject:
        target[places] = source
        return
    # Assigning records goes field by field; as opaque bytes it is one copy each.
    opaque = np.dtype(("V", target.dtype.itemsize))
    np.put(target.view(opaque), places, source.view(opaque))


class _Slots:
    """A growing array of records with free places.

    A record's fields are called by their position, because NumPy does not take every column name.

    Args:
        capacity: How many rows will wait, as far as that is known; there may be more.
    """

    def __init__(self, capacity: int) -> None:
        self.records: Records = np.empty(0, np.dtype([]))
        self._capacity = capacity
        self._names: tuple[str, ...] = ()
        self._free: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._written = 0  # slots up to here hold or held rows

    def _accept(self, block: Block) -> tuple[np.dtype[Any], list[npt.NDArray[Any]]]:
        """Return the record type that holds ``block`` and what waits already, and its columns."""
        first = not self._names
        if first:
            self._names = tuple(block.columns)
        columns = [np.asarray(block.columns[name]) for name in self._names]
        old = self.records.dtype
        parts = []
        for i, column in enumerate(columns):
            field, base, shape = f"{i}", column.dtype, column.shape[1:]
            if not first:
                if old[field].shape != shape:
                    raise different_shapes(self._names[i], [self.records[field], column])
                if old[field].base != base:
                    base = np.result_type(old[field].base, base)
            parts.append((field, base, shape))
        dtype = np.dtype(parts)
        if dtype != old:
            records = np.empty(len(self.records), dtype)
            if self._written:
                records[: self._written] = self.records[: self._written]
            self.records = records
        return dtype, columns

    def block(self, records: Records, *, ends_epoch: bool) -> Block:
        """Return records as a block of columns."""
        columns = {name: records[f"{i}"] for i, name in enumerate(self._names)}
        return Block(columns, len(records), ends_epoch)

    def packed(self, block: Block) -> Iterator[Records]:
        """Yield a block's rows as records, few enough at a time to stay in the processor's cache."""
        if block.num_rows:
            yield from _packed(*self._accept(block), block.num_rows)

    def insert(self, block: Block) -> npt.NDArray[np.int64]:
        """Store a block's rows and return their places."""
        dtype, columns = self._accept(block)
        places = self._places(block.num_rows)
        if dtype.itemsize >= _WIDE_FIELD_BYTES * len(columns):
            for field, column in zip(dtype.names or (), columns, strict=True):
                self.records[field][places] = column
            return places
        start = 0
        for packed in _packed(dtype, columns, block.num_rows):
            _scatter(self.records, places[start : start + len(packed)], packed)
            start += len(packed)
        return places

    def insert_packed(self, packed: Records) -> npt.NDArray[np.int64]:
        """Store records and return their places."""
        places = self._places(len(packed))
        _scatter(self.records, places, packed)
        return places

    def _places(self, count: int) -> npt.NDArray[np.int64]:
        """Take free places, made if need be."""
        missing = count - len(self._free)
        if missing > 0:
            size, dtype = len(self.records), self.records.dtype
            grown = np.empty(max(size + missing, size + size // 4, self._expected(count)), dtype)
            _scatter(grown, np.arange(size), self.records)
            self._free = np.concatenate([self._free, np.arange(size, len(grown))])
            self.records = grown
        places, self._free = self._free[:count], self._free[count:]
        if count:
            self._written = max(self._written, int(places.max()) + 1)
        return places

    def _expected(self, coming: int) -> int:
        """Return how many rows may wait, as far as slots for them take no memory before they come."""
        dtype = self.records.dtype
        if dtype.hasobject:  # NumPy fills these
            return 0
        most = min(_EXPECTED_SLOTS, _EXPECTED_BYTES // max(1, dtype.itemsize))
        return min(self._capacity + coming, most)

    def release(self, places: npt.NDArray[np.int64]) -> None:
        """Make places free again."""
        self._free = np.concatenate([places, self._free])

    def replace(self, places: npt.NDArray[np.int64], arriving: Records) -> Records:
        """Store ``arriving[i]`` at ``places[i]``, one after the other, and return what was there.

        A place named twice gives back the first newcomer to the second.
        """
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        again = np.zeros(len(places), bool)
        again[1:] = ordered[1:] == ordered[:-1]
        leaving = self.records.take(places)
        _scatter(leaving, order[again], arriving.take(order[:-1][again[1:]]))
        last = np.ones(len(places), bool)
        last[:-1] = ~again[1:]
        _scatter(self.records, ordered[last], arriving.take(order[last]))
        return leaving
