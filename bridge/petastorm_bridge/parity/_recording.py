"""Read a recording: one directory, or one for each rank."""

from __future__ import annotations

import json
import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ._cells import Array, Cells, from_arrow
from .recorder import FORMAT, checksum

__all__ = ["Block", "CannotCompareError", "Recording", "open_recording"]

_RANK = re.compile(r"rank-(\d+)-of-(\d+)")
_CACHED_BATCHES = 4


class CannotCompareError(Exception):
    """A recording is missing, incomplete or damaged, or the request makes no sense."""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a recording: the first one's index, their number and their columns."""

    start: int
    rows: int
    columns: dict[str, Cells]


@dataclass(frozen=True)
class _Chunk:
    part: int
    layout: int
    index: int
    rows: int
    shapes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Run:
    """What a column is from one row on: kind, dtype and shape."""

    start: int
    kind: str
    dtype: str
    shape: tuple[int | None, ...]
    form: str


class Recording:
    """A recording; of several ranks, their rows one rank after the other.

    Attributes:
        path: Its directory.
        manifests: The manifest of each rank (one without ranks).
        rows: Number of rows of all ranks.
    """

    def __init__(self, path: str, parts: Sequence[str]) -> None:
        self.path = path
        self._parts = list(parts)
        self.manifests = [_manifest(part) for part in parts]
        self.rows = sum(manifest["rows"] for manifest in self.manifests)
        self._files: dict[tuple[int, int], Any] = {}
        self._cache: OrderedDict[tuple[int, int, int], Any] = OrderedDict()

    def check(self) -> None:
        """Compare every file with its checksum.

        Raises:
            CannotCompareError: One is damaged or gone.
        """
        for part, manifest in zip(self._parts, self.manifests, strict=True):
            for name, wanted in manifest.get("files", {}).items():
                try:
                    found = checksum(part, name)
                except OSError as error:
                    raise CannotCompareError(f"{part} is damaged: {error}") from error
                if found != wanted:
                    raise CannotCompareError(f"{part} is damaged: {name} was changed")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(os.path.normpath(self.path))

    @property
    def manifest(self) -> dict[str, Any]:
        """The first rank's manifest."""
        return self.manifests[0]

    @property
    def row_bytes(self) -> int:
        """About how many bytes a row takes."""
        sizes = [
            os.path.getsize(os.path.join(part, name))
            for part in self._parts
            for name in os.listdir(part)
        ]
        return int(sum(sizes) // max(1, self.rows))

    @property
    def ranks(self) -> int:
        """Number of ranks; 1 without ranks."""
        return len(self.manifests)

    @property
    def batched(self) -> bool:
        """Whether the loader gave batches rather than rows."""
        return bool(self.manifest.get("batched", True))

    @property
    def padded(self) -> bool:
        """Whether a StreamingDataset, which pads, was the source."""
        return any(manifest.get("padded") for manifest in self.manifests)

    @cached_property
    def rank_starts(self) -> Array:
        """Index of the first row of each rank, and the number of rows; int64 [ranks + 1]."""
        return np.cumsum([0] + [manifest["rows"] for manifest in self.manifests])

    @cached_property
    def batch_sizes(self) -> list[Array]:
        """The sizes of the batches of each rank."""
        return [
            _table(part, "batches.arrow").column("rows").to_numpy(zero_copy_only=False)
            for part in self._parts
        ]

    @cached_property
    def names(self) -> list[str]:
        """The columns in their order; columns that only some batches have come last."""
        found: dict[str, None] = {}
        for manifest in self.manifests:
            for keys in manifest["keys"]:
                found.update(dict.fromkeys(keys))
        return list(found)

    @cached_property
    def _chunks(self) -> list[_Chunk]:
        chunks = []
        for part, folder in enumerate(self._parts):
            rows = _table(folder, "chunks.arrow").to_pylist()
            shapes = {row["shapes"]: _shapes(row["shapes"]) for row in rows}
            chunks += [
                _Chunk(part, row["layout"], row["index"], row["rows"], shapes[row["shapes"]])
                for row in rows
            ]
        if sum(chunk.rows for chunk in chunks) != self.rows:
            raise CannotCompareError(f"{self.path} is damaged: its parts do not add up")
        return chunks

    @cached_property
    def _starts(self) -> Array:
        return np.cumsum([0] + [chunk.rows for chunk in self._chunks])

    def runs(self, name: str) -> list[Run]:
        """Say what a column is in which rows; a new run starts where anything changes."""
        found: list[Run] = []
        for start, chunk in zip(self._starts, self._chunks, strict=False):
            for index, column in enumerate(self._layout(chunk)):
                if column["name"] != name:
                    continue
                kind, shape = column["kind"], chunk.shapes[index]
                shown: tuple[int | None, ...] = (None,) * shape[0] if kind == "ragged" else shape
                run = Run(int(start), kind, column["dtype"], shown, column["form"])
                if not found or found[-1] != Run(found[-1].start, *_facts(run)):
                    found.append(run)
        return found

    def block(self, start: int, limit: int, names: Sequence[str] | None = None) -> Block:
        """Return up to `limit` rows from `start` on; fewer where their layout ends."""
        place = int(np.searchsorted(self._starts, start, side="right")) - 1
        chunk = self._chunks[place]
        first = start - int(self._starts[place])
        rows = min(limit, chunk.rows - first)
        batch = self._batch(chunk).slice(first, rows)
        fields = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns = {}
        for index, column in enumerate(self._layout(chunk)):
            name = column["name"]
            if names is None or name in names:
                shape = chunk.shapes[index]
                columns[name] = from_arrow(fields, name, column["kind"], column["dtype"], shape)
        return Block(start, rows, columns)

    def blocks(self, limit: int, names: Sequence[str] | None = None) -> Iterator[Block]:
        """Yield all rows, in blocks of at most `limit`."""
        start = 0
        while start < self.rows:
            block = self.block(start, limit, names)
            yield block
            start += block.rows

    def place(self, row: int) -> tuple[int, int, int, int]:
        """Return rank, row within the rank, batch and row within the batch of a row."""
        rank = int(np.searchsorted(self.rank_starts, row, side="right")) - 1
        within = row - int(self.rank_starts[rank])
        ends = np.cumsum(self.batch_sizes[rank])
        batch = int(np.searchsorted(ends, within, side="right"))
        return rank, within, batch, within - (int(ends[batch - 1]) if batch else 0)

    def _layout(self, chunk: _Chunk) -> list[dict[str, str]]:
        return list(self.manifests[chunk.part]["layouts"][chunk.layout])

    def _batch(self, chunk: _Chunk) -> Any:
        key = (chunk.part, chunk.layout, chunk.index)
        if key not in self._cache:
            try:
                self._cache[key] = self._file(chunk.part, chunk.layout).get_batch(chunk.index)
            except (OSError, pa.ArrowException) as error:
                raise CannotCompareError(f"{self.path} is damaged: {error}") from error
            if len(self._cache) > _CACHED_BATCHES:
                self._cache.popitem(last=False)
        return self._cache[key]

    def _file(self, part: int, layout: int) -> Any:
        if (part, layout) not in self._files:
            # Read rather than mapped: mapped pages count as this process's memory.
            path = os.path.join(self._parts[part], f"values-{layout}.arrow")
            self._files[part, layout] = pa.ipc.open_file(pa.OSFile(path))
        return self._files[part, layout]


def _facts(run: Run) -> tuple[str, str, tuple[int | None, ...], str]:
    return run.kind, run.dtype, run.shape, run.form


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(shape) for shape in json.loads(text))


def _table(folder: str, name: str) -> Any:
    try:
        with pa.OSFile(os.path.join(folder, name)) as file:
            return pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowException) as error:
        raise CannotCompareError(f"{folder} is damaged: {name}: {error}") from error


def _manifest(folder: str) -> dict[str, Any]:
    path = os.path.join(folder, "manifest.json")
    try:
        with open(path, encoding="utf-8") as file:
            manifest: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        raise CannotCompareError(
            f"{folder} is no recording: it has no manifest.json, which the recorder writes last"
        ) from None
    except (OSError, ValueError) as error:
        raise CannotCompareError(f"{path} cannot be read: {error}") from error
    if manifest.get("format") != FORMAT:
        raise CannotCompareError(
            f"{folder} has format {manifest.get('format')}, this version reads format {FORMAT}; "
            "record it again, or use the other version of petastorm-bridge"
        )
    return manifest


def open_recording(path: str | os.PathLike[str]) -> Recording:
    """Open a recording.

    Raises:
        CannotCompareError: There is none, one of its ranks is missing, or it is damaged.
    """
    folder = os.fspath(path)
    if not os.path.isdir(folder):
        raise CannotCompareError(f"there is no recording {folder}")
    if os.path.exists(os.path.join(folder, "manifest.json")):
        return Recording(folder, [folder])
    found = {m[0]: (int(m[1]), int(m[2])) for m in map(_RANK.fullmatch, os.listdir(folder)) if m}
    if not found:
        raise CannotCompareError(
            f"{folder} is no recording: it has no manifest.json, which the recorder writes last"
        )
    sizes = {size for _, size in found.values()}
    if len(sizes) > 1:
        raise CannotCompareError(f"{folder} mixes recordings of {sorted(sizes)} ranks")
    missing = set(range(sizes.pop())) - {rank for rank, _ in found.values()}
    if missing:
        raise CannotCompareError(f"{folder} is incomplete: rank(s) {sorted(missing)} are missing")
    return Recording(folder, [os.path.join(folder, name) for name in sorted(found)])
