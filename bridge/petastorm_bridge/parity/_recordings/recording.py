"""Read a recording: one directory, or one for each rank."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from petastorm_bridge.parity.recorder import BATCHES, CHUNKS, checksum, counted, describe_columns

from .cells import Array, Cells, from_arrow
from .manifest import CannotCompareError, read_manifest, regular_file

_RANK = re.compile(r"rank-(\d{1,9})-of-(\d{1,9})")
_CACHED_BATCHES = 4
_CACHED_FILES = 64
# What reading and decoding files of any content can raise.
_DAMAGE = (OSError, pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError)


@contextlib.contextmanager
def _damage(place: str) -> Iterator[None]:
    """Turn what reading a damaged file raises into one error."""
    try:
        yield
    except _DAMAGE as error:
        message = str(error).partition("\n")[0][:300] or type(error).__name__
        raise CannotCompareError(f"{place} is damaged: {message}; record again") from error
    except (MemoryError, RecursionError) as error:
        raise CannotCompareError(f"{place} is damaged: its sizes make no sense") from error


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a recording: the first one's index, their number and their columns."""

    start: int
    rows: int
    columns: dict[str, Cells]


@dataclass(frozen=True)
class _Chunk:
    """A record batch: its file, its number there, its rows, and its columns with their shapes."""

    path: str
    index: int
    rows: int
    columns: list[dict[str, str]]
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
        self.manifests = [read_manifest(part) for part in parts]
        self.rows = sum(manifest["rows"] for manifest in self.manifests)
        open_file = lru_cache(_CACHED_FILES)(_open_file)
        self._batch = lru_cache(_CACHED_BATCHES)(
            lambda path, index: _checked(open_file(path).get_batch(index))
        )

    def check(self) -> None:
        """Compare every file with its checksum.

        Raises:
            CannotCompareError: One is damaged or gone.
        """
        for part, manifest in zip(self._parts, self.manifests, strict=True):
            for name, wanted in manifest["files"].items():
                with _damage(part):
                    regular_file(os.path.join(part, name))
                    if checksum(part, name) != wanted:
                        raise ValueError(f"{name} was changed")

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
        files = (os.path.join(part, name) for part in self._parts for name in os.listdir(part))
        return int(sum(map(os.path.getsize, files)) // max(1, self.rows))

    @property
    def ranks(self) -> int:
        """Number of ranks; 1 without ranks."""
        return len(self.manifests)

    @property
    def batched(self) -> bool:
        """Whether the loader gave batches rather than rows."""
        return bool(self.manifest["batched"])

    @property
    def padded(self) -> bool:
        """Whether a StreamingDataset, which pads, was the source."""
        return any(manifest["padded"] for manifest in self.manifests)

    @cached_property
    def rank_starts(self) -> Array:
        """Index of the first row of each rank, and the number of rows; int64 [ranks + 1]."""
        return np.cumsum([0] + [manifest["rows"] for manifest in self.manifests])

    @cached_property
    def batch_sizes(self) -> list[Array]:
        """The sizes of the batches of each rank."""
        by_rank = []
        for part, manifest in zip(self._parts, self.manifests, strict=True):
            sizes = _integers(_table(part, "batches.arrow", BATCHES), "rows")
            if len(sizes) != manifest["batches"] or sum(sizes.tolist()) != manifest["rows"]:
                raise CannotCompareError(f"{part} is damaged: its batches do not add up")
            by_rank.append(sizes)
        return by_rank

    @cached_property
    def _batch_ends(self) -> list[Array]:
        return [np.cumsum(sizes) for sizes in self.batch_sizes]

    @cached_property
    def _layouts(self) -> list[list[str]]:
        """The columns of batches, in their order."""
        layouts = (layout for manifest in self.manifests for layout in manifest["layouts"])
        return [[column["name"] for column in layout] for layout in layouts]

    @cached_property
    def names(self) -> list[str]:
        """The columns in their order; columns that only some batches have come last."""
        return list(dict.fromkeys(name for layout in self._layouts for name in layout))

    @cached_property
    def columns(self) -> dict[str, dict[str, Any]]:
        """What each column is: its dtypes, kinds and forms, and the shape that its values share."""
        different = {(id(chunk.columns), chunk.shapes): chunk for chunk in self._chunks}
        facts = describe_columns((chunk.columns, chunk.shapes) for chunk in different.values())
        return {column["name"]: column for column in facts}

    @cached_property
    def _chunks(self) -> list[_Chunk]:
        chunks = []
        for folder, manifest in zip(self._parts, self.manifests, strict=True):
            of_part = _chunks_of(folder, manifest["layouts"])
            if sum(chunk.rows for chunk in of_part) != manifest["rows"]:
                raise CannotCompareError(f"{folder} is damaged: its parts do not add up")
            chunks += of_part
        return chunks

    @cached_property
    def everywhere(self) -> set[str]:
        """The columns that all batches have."""
        return set.intersection(*map(set, self._layouts)) if self._layouts else set()

    @cached_property
    def _starts(self) -> Array:
        return np.cumsum([0] + [chunk.rows for chunk in self._chunks])

    @cached_property
    def _runs(self) -> tuple[dict[str, list[Run]], dict[str, list[Run]]]:
        """What the columns are in which rows, and what they are in batches without rows."""
        filled: dict[str, list[Run]] = {}
        empty: dict[str, list[Run]] = {}
        last: tuple[object, ...] = ()
        for start, chunk in zip(self._starts.tolist(), self._chunks, strict=False):
            if chunk.rows and (chunk.path, chunk.shapes) == last:
                continue  # as before in every column
            if chunk.rows:
                last = chunk.path, chunk.shapes
            for column, shape in zip(chunk.columns, chunk.shapes, strict=True):
                runs = (filled if chunk.rows else empty).setdefault(column["name"], [])
                shown = (None,) * shape[0] if column["kind"] == "ragged" else shape
                run = Run(start, column["kind"], column["dtype"], shown, column["form"])
                if not runs or runs[-1] != replace(run, start=runs[-1].start):
                    runs.append(run)
        return filled, empty

    def runs(self, name: str, *, empty: bool = False) -> list[Run]:
        """Say what a column is in which rows, or in batches without rows.

        A new run starts where anything changes.
        """
        return self._runs[empty].get(name, [])

    @cached_property
    def key_runs(self) -> list[tuple[int, tuple[str, ...]]]:
        """Say which columns come in which order from which row on."""
        runs: list[tuple[int, tuple[str, ...]]] = []
        for start, chunk in zip(self._starts.tolist(), self._chunks, strict=False):
            names = tuple(column["name"] for column in chunk.columns)
            if chunk.rows and (not runs or runs[-1][1] != names):
                runs.append((start, names))
        return runs

    def block(self, start: int, limit: int, names: Collection[str] | None = None) -> Block:
        """Return up to `limit` rows from `start` on; fewer where their layout ends."""
        place = int(np.searchsorted(self._starts, start, side="right")) - 1
        chunk = self._chunks[place]
        first = start - int(self._starts[place])
        rows = min(limit, chunk.rows - first)
        with _damage(chunk.path):
            batch = self._batch(chunk.path, chunk.index)
            if batch.num_rows != chunk.rows:
                raise ValueError("a part has another number of rows than chunks.arrow says")
            batch = batch.slice(first, rows)
            fields = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns = {}
            for column, shape in zip(chunk.columns, chunk.shapes, strict=True):
                name = column["name"]
                if names is None or name in names:
                    columns[name] = from_arrow(fields, name, column["kind"], column["dtype"], shape)
        return Block(start, rows, columns)

    def blocks(self, limit: int, names: Collection[str] | None = None) -> Iterator[Block]:
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
        ends = self._batch_ends[rank]
        batch = int(np.searchsorted(ends, within, side="right"))
        return rank, within, batch, within - (int(ends[batch - 1]) if batch else 0)


def _open_file(path: str) -> Any:
    # Read rather than mapped: mapped pages count as this process's memory.
    return pa.ipc.open_file(pa.OSFile(regular_file(path)))


def _checked(batch: Any) -> Any:
    batch.validate(full=True)  # of a damaged file Arrow believes everything
    return batch


def _chunks_of(folder: str, layouts: list[list[dict[str, str]]]) -> list[_Chunk]:
    table = _table(folder, "chunks.arrow", CHUNKS)
    texts = table.column("shapes").to_pylist()
    with _damage(f"{folder}: chunks.arrow"):
        shapes = {text: _shapes(text) for text in set(texts)}
    numbers = [_integers(table, name).tolist() for name in ("layout", "index", "rows")]
    chunks = []
    of_file: Counter[str] = Counter()
    for layout, index, rows, text in zip(*numbers, texts, strict=True):
        if layout >= len(layouts) or len(shapes[text]) != len(layouts[layout]):
            raise CannotCompareError(f"{folder} is damaged: a part has no layout")
        for column, shape in zip(layouts[layout], shapes[text], strict=True):
            if column["kind"] == "ragged" and len(shape) != 1:
                raise CannotCompareError(f"{folder} is damaged: a shape makes no sense")
        path = os.path.join(folder, f"values-{layout}.arrow")
        chunks.append(_Chunk(path, index, rows, layouts[layout], shapes[text]))
        of_file[path] += rows
    # Before anything is made as long as there are said to be rows.
    for path, rows in of_file.items():
        with _damage(folder):
            if rows > os.path.getsize(path):  # a row has a byte at least
                raise ValueError(f"{path} is too small for {counted(rows, 'row')}")
    return chunks


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    shapes = tuple(tuple(shape) for shape in json.loads(text))
    for shape in shapes:
        if not all(type(size) is int and 0 <= size < 1 << 48 for size in shape) or len(shape) > 64:
            raise ValueError("a shape makes no sense")
    return shapes


def _table(folder: str, name: str, schema: Any) -> Any:
    with _damage(f"{folder}: {name}"):
        with pa.OSFile(regular_file(os.path.join(folder, name))) as file:
            table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)
        if table.schema != schema or any(column.null_count for column in table.columns):
            raise ValueError("its columns are not those of a recording")
        return table


def _integers(table: Any, name: str) -> Array:
    numbers = table.column(name).to_numpy(zero_copy_only=False)
    if len(numbers) and numbers.min() < 0:
        raise CannotCompareError(f"a recording is damaged: {name} is negative; record again")
    return np.asarray(numbers)


def open_recording(path: str | os.PathLike[str]) -> Recording:
    """Open a recording.

    Raises:
        CannotCompareError: There is none, one of its ranks is missing, or it is damaged.
    """
    folder = os.fspath(path)
    if not os.path.isdir(folder):
        replaced = glob.glob(glob.escape(os.path.normpath(folder)) + ".replaced-*")
        hint = (
            f"; {replaced[0]} is an earlier one that an interrupted program left"
            if replaced
            else ""
        )
        raise CannotCompareError(f"there is no recording {folder}{hint}")
    parts = {m[0]: (int(m[1]), int(m[2])) for m in map(_RANK.fullmatch, os.listdir(folder)) if m}
    if not parts or os.path.exists(os.path.join(folder, "manifest.json")):
        return Recording(folder, [folder])
    sizes = {size for _, size in parts.values()}
    if len(sizes) > 1:
        raise CannotCompareError(f"{folder} mixes recordings of {sorted(sizes)} ranks")
    ranks = sorted(rank for rank, _ in parts.values())
    size = sizes.pop()
    if ranks != list(range(len(ranks))) or len(ranks) != size:
        present = ", ".join(map(str, ranks[:20])) + (" …" if len(ranks) > 20 else "")
        raise CannotCompareError(
            f"{folder} is incomplete: it has {counted(len(ranks), 'rank')} of {size}, "
            f"namely {present}; the others are missing"
        )
    return Recording(folder, [os.path.join(folder, name) for name in sorted(parts)])
