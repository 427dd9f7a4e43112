"""Opening a directory of MDS shards."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from .encode import is_encoding_of
from .entry import INDEX_NAME, ShardEntry, check_file_names, parse_index
from .errors import DatasetError, DatasetNotFoundError
from .files import open_regular
from .layout import ShardLayout
from .ndarray import first_header
from .schema import SIDECAR_NAME, DatasetSchema, Field
from .shard import Shard, open_shard
from .types import fixed_encoding
from .verified import FileMark, best_hash, mark_of, marks_of

# Encodings without a column type of their own (images, JSON, pickles …) are their raw bytes;
# nothing is ever unpickled.
_VARIABLE_TYPES = {
    "str": pa.string(),
    "str_int": pa.int64(),
    "str_float": pa.float64(),
    "str_decimal": pa.string(),
}


@dataclass(frozen=True)
class MdsDataset:
    """An opened dataset directory, with its shards in row order."""

    directory: str
    schema: DatasetSchema
    shards: tuple[ShardEntry, ...]

    @property
    def num_rows(self) -> int:
        """Rows in all shards (or in the sidecar, for a dataset without storable columns)."""
        if not self.shards and self.schema.num_rows is not None:
            return self.schema.num_rows
        return sum(shard.samples for shard in self.shards)

    def noted(self, positions: Iterable[int]) -> dict[str, FileMark]:
        """Return the marks of the files of some shards, by name, where no hash tells them from others."""
        files = (file for position in positions for file in self.shards[position].files)
        names = [file["basename"] for file in files if best_hash(file["hashes"]) is None]
        return marks_of(self.directory, names)


def read_index(text: bytes, path: str) -> tuple[ShardEntry, ...]:
    """Return the shards that an index lists; DatasetError, which names its path or URL, if it cannot be used."""
    with paused_collector():
        shards = parse_index(text, path)["shards"]
        entries = tuple(ShardEntry.from_json(obj, path) for obj in shards)
    check_file_names((name for entry in entries for name in entry.basenames), path)
    return entries


def open_dataset(directory: str, fetch: Callable[[ShardEntry], object] | None = None) -> MdsDataset:
    """Open a local MDS directory, with or without the bridge's sidecar.

    Args:
        directory: Holds the index.
        fetch: Brings a shard's file into the directory, where files come from elsewhere on demand.
            Only called when a column's type can be told from its values alone: no sidecar, and an
            ``ndarray`` column of varying shape or type.

    Raises:
        DatasetNotFoundError: There is no ``index.json``.
        DatasetError: The index or the sidecar cannot be read, or they and the shards do not match.
    """
    marks = tuple(mark_of(os.path.join(directory, name)) for name in (INDEX_NAME, SIDECAR_NAME))
    shards, schema = _parsed(os.path.abspath(directory), marks)
    if schema is None:
        schema = _inferred_schema(directory, shards, fetch)
    return MdsDataset(directory, schema, shards)


@lru_cache(maxsize=4)  # programs open the same few datasets for every epoch
def _parsed(
    directory: str,
    marks: tuple[FileMark | None, ...],  # noqa: ARG001 - part of the key
) -> tuple[tuple[ShardEntry, ...], DatasetSchema | None]:
    path = os.path.join(directory, INDEX_NAME)
    try:
        with open_regular(path) as file:
            shards = read_index(file.read(), path)
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"No MDS dataset at {directory}: {INDEX_NAME} is missing. It was deleted, never "
            "finished, or is not visible here yet."
        ) from error
    sidecar = os.path.join(directory, SIDECAR_NAME)
    try:
        with open_regular(sidecar) as file:
            schema = DatasetSchema.from_json(file.read())
    except FileNotFoundError:
        return shards, None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{sidecar} cannot be used: {error}") from error
    _check_schema(sidecar, schema, shards)
    return shards, schema


def _check_schema(sidecar: str, schema: DatasetSchema, shards: tuple[ShardEntry, ...]) -> None:
    """Check that a sidecar describes the shards beside it: it may be another dataset's."""
    rows = sum(shard.samples for shard in shards)
    if schema.num_rows != rows and (shards or schema.fields):  # without columns: no shards
        raise _other_sidecar(sidecar, f"{schema.num_rows} rows there, {rows} in the index")
    for layout, shard in {shard.layout: shard for shard in reversed(shards)}.items():
        encodings = dict(_columns(layout))
        for name, type_, declared in schema.stored():
            encoding = encodings.pop(name, "missing")
            if not is_encoding_of(type_, encoding, declared):
                raise _other_sidecar(
                    sidecar, f"column {name!r} is {type_} there, {encoding} in {shard.basenames[0]}"
                )
        if encodings:
            raise _other_sidecar(
                sidecar, f"columns {sorted(encodings)} of {shard.basenames[0]} are not there"
            )


def _other_sidecar(sidecar: str, difference: str) -> DatasetError:
    return DatasetError(
        f"{sidecar} does not describe the shards beside it: {difference}. If the directory was written "
        "again by another program, delete that file; otherwise convert the DataFrame again."
    )


def _inferred_schema(
    directory: str, shards: tuple[ShardEntry, ...], fetch: Callable[[ShardEntry], object] | None
) -> DatasetSchema:
    """Return the schema of shards without a sidecar, from their encodings and, where only values tell, the first row."""
    if not shards:
        return DatasetSchema(())
    first = next((shard for shard in shards if shard.samples), shards[0])
    fields = [_field(name, encoding) for name, encoding in _columns(first.layout)]
    if any(None in (field.shape or ()) for field in fields) and first.samples:
        if fetch is not None:
            fetch(first)
        seen = open_shard(directory, first)
        fields = [_field(name, encoding, seen) for name, encoding in _columns(first.layout)]
    for layout, entry in {shard.layout: shard for shard in reversed(shards)}.items():
        others = [_field(name, encoding) for name, encoding in _columns(layout)]
        merged = [_merged(a, b) for a, b in zip(fields, others, strict=False)]
        if len(fields) != len(others) or None in merged:
            raise DatasetError(
                f"The shards of {directory} differ in their columns: {_columns(first.layout)} "
                f"in {first.basenames[0]}, {_columns(layout)} in {entry.basenames[0]}."
            )
        fields = [field for field in merged if field is not None]
    return DatasetSchema(tuple(fields))


def _columns(layout: ShardLayout) -> list[tuple[str, str]]:
    return list(zip(layout.names, layout.encodings, strict=True))


def _field(name: str, encoding: str, shard: Shard | None = None) -> Field:
    family, _, config = encoding.partition(":")
    fixed = fixed_encoding(encoding)
    if family == "ndarray":
        dtype = np.dtype(config.partition(":")[0] or "float64")
        shape: tuple[int | None, ...] = (None,) if fixed is None else fixed.shape
        if fixed is None and shard is not None:  # the first value says more
            header = first_header(shard, name)
            dtype, shape = header.dtype, (None,) * max(len(header.shape), 1)
        return Field(name, pa.list_(pa.from_numpy_dtype(dtype)), encoding, shape=shape)
    if fixed is not None:
        return Field(name, pa.from_numpy_dtype(fixed), encoding)
    return Field(name, _VARIABLE_TYPES.get(family, pa.binary()), encoding)


def _merged(one: Field, other: Field) -> Field | None:
    """Return the field that describes the columns of two shards, or None if none does."""
    if one.name != other.name or (one.type != other.type and other.encoding != "ndarray"):
        return None
    if one.shape is None or other.shape is None:
        return one if one.shape is other.shape else None
    if None in other.shape:
        return replace(one, shape=(None,) * len(one.shape))
    if len(one.shape) != len(other.shape):
        return None
    sizes = zip(one.shape, other.shape, strict=True)
    return replace(one, shape=tuple(a if a == b else None for a, b in sizes))


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Let Python's collector of cycles rest in the body, unless it does so already.

    For many objects that are made to stay: it would look at all of them again and again while they
    become more, which took most of the time of opening an index of 20,000 shards.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
