"""Opening a directory of MDS shards."""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .decode import column_array
from .encode import is_encoding_of
from .entry import ShardEntry, by_layout
from .errors import DatasetError, DatasetNotFoundError
from .files import open_regular
from .infer import inferred_schema
from .names import INDEX_NAME, check_file_names
from .schema import SIDECAR_NAME, DatasetSchema
from .shard import Shard
from .verified import FileMark, best_hash, marks_of

__all__ = ["INDEX_NAME", "MdsDataset", "open_dataset", "parse_index", "read_index", "read_table"]


@dataclass(frozen=True)
class MdsDataset:
    """An opened dataset directory.

    Attributes:
        directory: Local path.
        schema: The logical schema.
        shards: Index entries in row order.
    """

    directory: str
    schema: DatasetSchema
    shards: tuple[ShardEntry, ...]

    @property
    def num_rows(self) -> int:
        """Rows in all shards (or in the sidecar, for a dataset without storable columns)."""
        if not self.shards and self.schema.num_rows is not None:
            return self.schema.num_rows
        return sum(shard.samples for shard in self.shards)

    def open_shard(
        self,
        position: int,
        data: npt.NDArray[np.uint8] | None = None,
        noted: Mapping[str, FileMark] | None = None,
    ) -> Shard:
        """Open one shard; see :class:`Shard` for the arguments and for what can go wrong."""
        return Shard(self.directory, self.shards[position], data, noted)

    def noted(self, positions: Iterable[int]) -> dict[str, FileMark]:
        """Return the marks of the files of some shards, by name, where no hash tells them from others."""
        files = (file for position in positions for file in self.shards[position].files)
        names = [file["basename"] for file in files if best_hash(file["hashes"]) is None]
        return marks_of(self.directory, names)


def read_index(directory: str) -> tuple[ShardEntry, ...]:
    """Return the shards that the index of a local directory lists; opens no other file.

    Raises:
        DatasetNotFoundError: There is no ``index.json``.
        DatasetError: It cannot be used.
    """
    path = os.path.join(os.path.abspath(directory), INDEX_NAME)
    try:
        with open_regular(path) as file, paused_collector():
            shards = parse_index(file.read())["shards"]
            entries = tuple(ShardEntry.from_json(obj, path) for obj in shards)
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"No MDS dataset at {directory}: {INDEX_NAME} is missing. It was deleted, never "
            "finished, or is not visible here yet."
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"{path} is not a usable MDS index ({error}). Convert the DataFrame again."
        ) from error
    check_file_names((name for entry in entries for name in entry.basenames), path)
    return entries


def parse_index(text: bytes) -> dict[str, Any]:
    """Return the content of an index; its ``shards`` are a list of anything.

    Raises:
        ValueError, RecursionError: It is none of version 2.
    """
    index = json.loads(text)
    if not isinstance(index, dict) or not isinstance(index.get("shards"), list):
        raise ValueError("no list of shards")  # noqa: TRY004 - of the file, not of an argument
    if index.get("version") != 2:
        raise ValueError(f"version {index.get('version')!r}")
    return index


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
    marks = tuple(_mark(os.path.join(directory, name)) for name in (INDEX_NAME, SIDECAR_NAME))
    shards, schema = _parsed(os.path.abspath(directory), marks)
    if schema is None:
        schema = inferred_schema(directory, shards, fetch)
    return MdsDataset(directory, schema, shards)


def _mark(path: str) -> tuple[int, ...]:
    """Return what changes when a file is written again."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)  # programs open the same few datasets for every epoch
def _parsed(
    directory: str,
    marks: tuple[tuple[int, ...], ...],  # noqa: ARG001 - part of the key
) -> tuple[tuple[ShardEntry, ...], DatasetSchema | None]:
    shards = read_index(directory)
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
    for layout, shard in by_layout(shards).items():
        encodings = dict(zip(layout.names, layout.encodings, strict=True))
        for name, type_, declared in _stored_types(schema):
            encoding = encodings.pop(name, "missing")
            if not is_encoding_of(type_, encoding, declared):
                raise _other_sidecar(
                    sidecar,
                    f"column {name!r} is {type_} there, {encoding} in {shard.basenames[0]}",
                )
        if encodings:
            raise _other_sidecar(
                sidecar, f"columns {sorted(encodings)} of {shard.basenames[0]} are not there"
            )


def _stored_types(schema: DatasetSchema) -> list[tuple[str, pa.DataType, str | None]]:
    """Return the name, the type and the declared encoding of every column of the shards."""
    flags = [(f.null_column, pa.uint8()) for f in schema.fields]
    flags += [(f.element_null_column, pa.list_(pa.uint8())) for f in schema.fields]
    columns = [(f.name, f.type, f.encoding) for f in schema.fields]
    return columns + [(name, type_, None) for name, type_ in flags if name is not None]


def _other_sidecar(sidecar: str, difference: str) -> DatasetError:
    return DatasetError(
        f"{sidecar} does not describe the shards beside it: {difference}. If the directory was written "
        "again by another program, delete that file; otherwise convert the DataFrame again."
    )


def read_table(dataset: MdsDataset) -> pa.Table:
    """Return a whole dataset as one Arrow table (for small data and tests)."""
    schema = pa.schema([pa.field(f.name, f.type) for f in dataset.schema.fields])
    tables = []
    for position in range(len(dataset.shards)):
        shard = dataset.open_shard(position)
        arrays = [column_array(shard, f, slice(None)) for f in dataset.schema.fields]
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()


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
