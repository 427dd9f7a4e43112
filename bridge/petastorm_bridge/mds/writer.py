"""Arrow record batches → MDS shard files."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from . import codecs
from .access import is_far
from .encode import costly_values, encode_column, row_sizes
from .files import WritesAhead, write_whole
from .layout import MAX_SHARD_BYTES, ShardLayout, assemble_shard
from .schema import Field, companion_names
from .types import fixed_dtype, is_list, is_storable, marks_nulls_itself

NullColumns = Mapping[str, tuple[str | None, str | None]]
_Write = Callable[[str, Sequence[memoryview]], None]

DEFAULT_SIZE_LIMIT = 32 << 20  # of Petastorm's row groups: a batch of a reader is one shard

# What the smallest number of rows may take where the limit is lower.
_LEAST_BYTES = 1 << 20


class ShardWriter:
    """Writes a stream of record batches as shard files of bounded size.

    Shards are cut in row order, so the concatenation of the shards is the stream. Nothing here
    makes a dataset: :func:`petastorm_bridge.mds.commit.commit_dataset` does, from the entries that
    :meth:`finish` returns. In far directories files are written while the next ones are encoded.

    Args:
        schema: Arrow schema of the batches; every type must be storable.
        directory: Where the files go; must exist.
        prefix: Files are called ``<prefix>.<number>.mds``, plus the compression's extension. Nobody else
            writes files of these names meanwhile, unless they are the same ones.
        size_limit: Upper bound of the bytes of a shard's rows and offsets, before compression and
            without null flags (a single larger row still makes a shard of its own).
        min_rows: A shard of less than 1 MiB is not cut below this many rows, which keeps a tiny
            ``size_limit`` from making a file per row.
        compression: MDS compression name, or None.
        hashes: MDS hash names to record for every file.
        declared: Binary columns whose values are stored as the bytes that they are, under the ``encoding`` of these.

    Raises:
        TypeError: A column's type cannot be stored.
        ValueError: Unknown compression or hash, or two columns of one name.
    """

    def __init__(
        self,
        schema: pa.Schema,
        directory: str,
        *,
        prefix: str = "shard",
        size_limit: int = DEFAULT_SIZE_LIMIT,
        min_rows: int = 100,
        compression: str | None = None,
        hashes: Sequence[str] | None = None,
        declared: Mapping[str, Field] | None = None,
    ) -> None:
        for field in schema:
            if not is_storable(field.type):
                raise TypeError(
                    f"Column {field.name!r} of type {field.type} cannot be stored in MDS. "
                    "Cast it, flatten it or drop it before converting."
                )
        if len(set(schema.names)) != len(schema.names):
            raise ValueError(f"Column names must differ, found {schema.names}. Rename them first.")
        self._schema = schema
        self._declared = declared or {}
        self._directory = directory
        self._prefix = prefix
        self._size_limit = max(1, min(int(size_limit), MAX_SHARD_BYTES))
        self._min_rows = min_rows
        self._compression = compression
        codecs.parse_compression(compression)
        self._hashes = tuple([codecs.default_hash()] if hashes is None else hashes)
        for name in self._hashes:
            codecs.digest(name, b"")  # raises for what is no hash
        self._start_shard()
        self._infos: list[dict[str, Any]] = []
        self._ahead = WritesAhead() if is_far(directory) else None

    def _start_shard(self) -> None:
        # Rows, and their columns that are encoded already.
        self._pending: list[tuple[pa.RecordBatch, dict[str, pa.LargeBinaryArray]]] = []
        self._pending_rows = self._pending_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of ``batch``, writing every shard that becomes full.

        Raises:
            TypeError: Other columns or types than the schema's.
            OSError: A file cannot be written, this one or an earlier one. The rows are lost: call
                :meth:`abort`.
        """
        given, wanted = batch.schema, self._schema
        if (given.names, given.types) != (wanted.names, wanted.types):
            raise TypeError(f"A batch has columns {given}, the writer expects {wanted}.")
        if batch.num_rows == 0 or batch.num_columns == 0:
            return
        sizes = np.full(batch.num_rows, 4, np.int64)
        encoded = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = costly_values(column)
            if values is not None:
                encoded[name] = values
            sizes += row_sizes(column, values)
        ends = np.cumsum(sizes)
        start = 0
        while start < batch.num_rows:
            used = int(ends[start - 1]) if start else 0
            taken = self._pending_bytes - used
            fitting, possible = (
                int(np.searchsorted(ends, limit - taken, side="right")) - start
                for limit in (self._size_limit, max(self._size_limit, _LEAST_BYTES))
            )
            least = min(self._min_rows - self._pending_rows, possible)
            wanted = max(fitting, least, int(not self._pending_rows))
            take = min(max(wanted, 0), batch.num_rows - start)
            if take:
                texts = {n: v.slice(start, take) for n, v in encoded.items()}
                self._pending.append((batch.slice(start, take), texts))
                self._pending_rows += take
                self._pending_bytes += int(ends[start + take - 1]) - used
                start += take
            if start < batch.num_rows:
                self._flush()

    def cut(self) -> list[dict[str, Any]]:
        """Make a shard of the rows that are left; return one JSON-able ``{"index": …, "stats": …}`` per shard.

        In far directories files may still be on their way then: :meth:`finish` waits for them.
        """
        if self._pending_rows:
            self._flush()
        return self._infos

    def finish(self) -> list[dict[str, Any]]:
        """Write all shards, and return what :meth:`cut` does."""
        infos = self.cut()
        if self._ahead:
            self._ahead.finish()
        return infos

    def close(self) -> None:
        """Write nothing more; wait for files that are half written. Rows without a file are lost."""
        if self._ahead:
            self._ahead.close()

    def abort(self) -> None:
        """Delete every file written so far."""
        self.close()
        for info in self._infos:
            remove_shard(self._directory, info)

    def _flush(self) -> None:
        batches, parts = zip(*self._pending, strict=True)
        table = pa.Table.from_batches(batches)
        encoded = {name: _joined([part[name] for part in parts]) for name in parts[0]}
        self._start_shard()
        basename = f"{self._prefix}.{len(self._infos):05}.mds"
        info = write_shard(
            table,
            os.path.join(self._directory, basename),
            compression=self._compression,
            hashes=self._hashes,
            size_limit=self._size_limit,
            encoded=encoded,
            declared=self._declared,
            write=self._ahead or functools.partial(write_whole, in_place=True),
        )
        self._infos.append(info)


def remove_shard(directory: str, info: Mapping[str, Any]) -> None:
    """Delete the files of a shard of which :meth:`ShardWriter.finish` or :func:`write_shard` has told."""
    for file in (info["index"]["raw_data"], info["index"]["zip_data"]):
        if file is not None:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(directory, file["basename"]))


def write_shard(
    table: pa.Table,
    path: str,
    *,
    compression: str | None,
    hashes: Sequence[str],
    size_limit: int | None,
    null_columns: NullColumns | None = None,
    encoded: Mapping[str, pa.LargeBinaryArray] | None = None,
    declared: Mapping[str, Field],
    write: _Write = write_whole,
) -> dict[str, Any]:
    """Write one table as one shard file and return its index entry and statistics.

    Args:
        table: At least one row and one column.
        path: File to write, ending in ``.mds``; a compressed shard adds its extension.
        compression: MDS compression name, or None.
        hashes: MDS hash names.
        size_limit: Recorded in the entry only.
        null_columns: Names of the null columns to store for rows and elements of a column, by its name.
            None stores those that are needed.
        encoded: Columns that :func:`costly_values` has encoded already.
        declared: As of :class:`ShardWriter`.
        write: Writes the file.

    Raises:
        OSError: The file cannot be written; nothing is left under its final name.
    """
    companions = companion_names(table.schema.names)
    stored = []
    stats: dict[str, dict[str, int]] = {}
    for name, chunked in zip(table.schema.names, table.columns, strict=True):
        array = _joined(chunked.chunks)
        # Those in null lists do not count.
        element_nulls = array.flatten().null_count if is_list(array.type) else 0
        stats[name] = {"nulls": array.null_count, "element_nulls": element_nulls}
        if null_columns is None:
            flags = needed_flags(array.type, companions[name], **stats[name])
        else:
            flags = null_columns.get(name, (None, None))
        stored += encode_column(
            name,
            array,
            *flags,
            None if encoded is None else encoded.get(name),
            declared=declared[name].encoding if name in declared else None,
        )
    layout = ShardLayout.of(stored)
    config = layout.config(compression, tuple(hashes), size_limit)
    parts = [_buffer(part) for part in assemble_shard(stored, layout, config)]
    entry = {**config, "samples": table.num_rows, "zip_data": None}
    entry["raw_data"] = _file_info(path, parts, hashes)
    codec = codecs.parse_compression(compression)
    if codec is not None:
        path = f"{path}.{codec.extension}"
        parts = [memoryview(codec.compress(b"".join(parts)))]
        entry["zip_data"] = _file_info(path, parts, hashes)
    write(path, parts)
    return {"index": entry, "stats": stats}


def _joined(chunks: Sequence[pa.Array]) -> pa.Array:
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def needed_flags(
    type_: pa.DataType, names: tuple[str, str], nulls: int, element_nulls: int
) -> tuple[str | None, str | None]:
    """Return those of the two names that a column with so many nulls needs null columns of; None for others."""
    if is_list(type_):
        element = type_.value_type
        # JSON cells say null for an element themselves, floats and timestamps say NaN and NaT.
        in_place = marks_nulls_itself(element) or fixed_dtype(element) is None
        needed = nulls, element_nulls and not in_place
    else:
        needed = nulls and not marks_nulls_itself(type_), 0
    return names[0] if needed[0] else None, names[1] if needed[1] else None


def _buffer(part: Any) -> memoryview:
    if isinstance(part, np.ndarray):
        return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
    return memoryview(part)


def _file_info(path: str, parts: Sequence[Any], hashes: Sequence[str]) -> dict[str, Any]:
    size = sum(map(len, parts))
    digests = {name: codecs.digest(name, *parts) for name in hashes}
    return {"basename": os.path.basename(path), "bytes": size, "hashes": digests}
