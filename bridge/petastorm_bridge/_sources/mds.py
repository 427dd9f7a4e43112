"""MDS datasets as sources of row groups: one shard is one row group."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from petastorm_bridge._blocks.columns import Column, NullFacts, present
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.access import is_mapped
from petastorm_bridge.mds.codecs import EXTENSIONS
from petastorm_bridge.mds.dataset import MdsDataset
from petastorm_bridge.mds.decode import column_array, column_view
from petastorm_bridge.mds.entry import INDEX_NAME, ShardEntry
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.schema import Field
from petastorm_bridge.mds.shard import Rows, Shard, open_shard
from petastorm_bridge.mds.types import is_list

from .source import RowGroup, Source, build_schema

# Shards of more bytes with values of differing length, which are copied, are read beside the program.
_COPIED_BYTES = 4 << 20


def named_shards(paths: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the directory of an MDS dataset and the names of listed shards in it; None if they are other files.

    Args:
        paths: Paths or URLs; an empty dataset has its index there.

    Raises:
        ValueError: They are of several datasets.
    """
    if not any(_is_shard(name) or name == INDEX_NAME for name in map(os.path.basename, paths)):
        return None
    parents = sorted({os.path.dirname(path) for path in paths})
    directory = parents[0]
    if len(parents) > 1:  # dataframe_to_mds gives every partition a folder, under one merged index
        directory = os.path.commonpath(parents)
        if not os.path.isfile(os.path.join(directory, INDEX_NAME)):
            raise ValueError(
                f"Shards of several datasets are listed together: {', '.join(map(masked, parents))}. "
                "Open one reader for each."
            )
    names = [os.path.relpath(path, directory) for path in paths]
    return directory, [name for name in names if name != INDEX_NAME]


def _is_shard(name: str) -> bool:
    stem, _, extension = name.rpartition(".")
    return extension == "mds" or (extension in EXTENSIONS and stem.endswith(".mds"))


class MdsGroup:
    """The columns of a shard."""

    def __init__(self, shard: Shard, fields: Mapping[str, Field]) -> None:
        self._shard = shard
        self._fields = fields

    def load(self, names: Sequence[str], rows: Rows) -> dict[str, Column]:
        return {name: self._column(name, rows) for name in names}

    def _column(self, name: str, rows: Rows) -> Column:
        field = self._fields[name]
        # Timestamps and dates change their form on the way to pandas; numbers do not.
        if not _has_own_form(field.type):
            view = column_view(self._shard, field, rows)
            if view is not None:
                return view
        return present(column_array(self._shard, field, rows))


def _has_own_form(type_: pa.DataType) -> bool:
    if is_list(type_):
        return _has_own_form(type_.value_type)
    return bool(pa.types.is_temporal(type_))


class MdsSource(Source):
    """The shards of a local MDS dataset; one shard is one row group.

    Args:
        dataset: The opened dataset.
        basenames: Read only the shards with these file names, in this order; None reads all.
    """

    def __init__(self, dataset: MdsDataset, basenames: Sequence[str] | None = None) -> None:
        self._dataset = dataset
        self._positions = self._select(basenames)
        self._noted = dataset.noted(self._positions)
        schema = dataset.schema
        self._fields = {field.name: field for field in schema.fields}
        # Where nobody counted, there may be nulls.
        fields = [(field.name, field.type, field.nulls != 0) for field in schema.fields]
        try:
            ignored = [(str(n), str(t)) for n, t in schema.extra.get("ignored", ())]
        except (TypeError, ValueError) as error:
            raise DatasetError(
                f"The sidecar of {dataset.directory} is damaged: {error}."
            ) from error
        # Petastorm has no arrays of several axes in batches; those of foreign datasets keep theirs.
        shapes = {f.name: f.shape for f in schema.fields if f.shape and len(f.shape) > 1}
        self.schema, self.types = build_schema(fields, ignored, shapes)
        self.nulls = {
            name: NullFacts(bool(self._fields[name].nulls), bool(self._fields[name].element_nulls))
            for name in self.types
        }
        self.row_counts = [dataset.shards[i].samples for i in self._positions]
        self.description = dataset.directory

    def _select(self, basenames: Sequence[str] | None) -> list[int]:
        if basenames is None:
            return list(range(len(self._dataset.shards)))
        by_name = {
            name: i for i, shard in enumerate(self._dataset.shards) for name in shard.basenames
        }
        missing = [name for name in basenames if name not in by_name]
        if missing:
            raise FileNotFoundError(
                f"{missing[0]} is not a shard of {self._dataset.directory}; its index lists "
                f"{len(self._dataset.shards)} others."
            )
        return [by_name[name] for name in basenames]

    def narrowed(self, names: Collection[str]) -> MdsSource:  # noqa: ARG002 - one schema for all
        """Return the source itself: all shards have the same columns."""
        return self

    def open(self, position: int) -> RowGroup:
        """Open a shard; see :func:`petastorm_bridge.mds.shard.open_shard` for what may be raised."""
        return self._open(position, None)

    def _open(self, position: int, data: npt.NDArray[np.uint8] | None) -> MdsGroup:
        shard = open_shard(self._dataset.directory, self._entry(position), data, self._noted)
        return MdsGroup(shard, self._fields)

    def _entry(self, position: int) -> ShardEntry:
        return self._dataset.shards[self._positions[position]]

    def is_cheap(self, position: int) -> bool:
        """Return whether the shard only has to be mapped (and not read or expanded)."""
        entry = self._entry(position)
        is_copied = entry.layout.record is None and entry.raw["bytes"] > _COPIED_BYTES
        return entry.zip is None and not is_copied and is_mapped(self._dataset.directory)
