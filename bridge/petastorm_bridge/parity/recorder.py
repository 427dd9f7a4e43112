"""Record what a loader gives: keys, dtypes, shapes, where batches begin, and every value bit for bit.

This one file works alone. Copy it beside an old installation (Python 3.8 or newer, NumPy, pyarrow)
and run ``python recorder.py module:function --out golden/``, or call `record`. Nothing is visible
under the name of the recording until it is complete.

A recording is a directory:

- ``manifest.json``, written last: columns, counts, versions;
- ``batches.arrow``: the number of rows of each batch, in order;
- ``chunks.arrow``: in which order to read the record batches, and the shapes of their columns;
- ``values-N.arrow``: the values, one Arrow IPC file for each combination of columns and dtypes.
"""

from __future__ import annotations

import argparse
import decimal
import importlib
import importlib.util
import json
import os
import platform
import re
import shutil
import sys
import time
import traceback
import zlib
from contextlib import nullcontext
from importlib import metadata
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

FORMAT = 2
CHUNK_ROWS = 16384
CHUNK_BYTES = 32 << 20
ROW_BLOCK = 1024  # rows stacked at a time when a loader gives single rows, unless they are large
MAX_LAYOUTS = 256
SHAPE_SUFFIX = "\0shape"
FILE_NAME = re.compile(r"manifest\.json|batches\.arrow|chunks\.arrow|values-\d+\.arrow")
# What Arrow has as NumPy has it.
PRIMITIVES = {"float16", "float32", "float64"}
PRIMITIVES |= {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
BATCHES = pa.schema([("rows", pa.int64())])
CHUNKS = pa.schema(
    [("layout", pa.int32()), ("index", pa.int32()), ("rows", pa.int64()), ("shapes", pa.string())]
)
# What a report should name, where installed.
STACK = (
    "numpy",
    "pandas",
    "pyarrow",
    "petastorm",
    "petastorm-bridge",
    "mosaicml-streaming",
    "torch",
    "tensorflow",
    "tensorflow-cpu",
    "pyspark",
)


class RecordingError(Exception):
    """The loader's output, or the place for the recording, cannot be used; says why."""


# --------------------------------------------------------------------- one column of one batch


class Column(NamedTuple):
    """One column of consecutive rows.

    kind: 'number' (values: an array [rows, *shape]), 'text', 'bytes', 'object' (values: a flat
        object array of rows × shape cells) or 'ragged' (values: a list of arrays or None; shape
        holds their number of dimensions).
    form: What the loader gave: 'torch', 'tensorflow', 'numpy', 'list' or 'rows'.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    values: Any
    rows: int
    form: str


def as_array(value: Any) -> Any:
    """Return a tensor, array or scalar as an ndarray; None if it is none of these."""
    library = type(value).__module__.partition(".")[0]
    if isinstance(value, np.ma.MaskedArray):
        raise RecordingError("a masked array cannot be recorded; fill it first (filled)")
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if library == "torch" and hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            bits = value.contiguous().view(sys.modules["torch"].int16).numpy()
            return bits.view(np.dtype([("bfloat16", "<u2")]))
        return value.numpy()
    if hasattr(value, "numpy"):
        return np.asarray(value.numpy())
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return np.asarray(value)
    return None


def form_of(value: Any) -> str:
    """Name the library that an array or tensor comes from."""
    library = type(value).__module__.partition(".")[0]
    return library if library in ("torch", "tensorflow") else "numpy"


def dtype_name(dtype: Any) -> str:
    """Name a dtype as NumPy does; fields of two bytes that stand for a bfloat16 by that name."""
    if dtype.names == ("bfloat16",):
        return "bfloat16"
    return dtype.newbyteorder("=").name if dtype.names is None else str(dtype)


def array_column(array: Any, form: str) -> Column:
    """Describe an array whose first dimension counts rows; the values are copied."""
    rows, shape = array.shape[0], array.shape[1:]
    if array.dtype.kind in "OUS":
        cells = np.ascontiguousarray(array).reshape(-1).astype(object)
        return cells_column(cells, shape, form)
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    values = np.array(array, dtype=native, order="C", copy=True)
    if native.kind == "f" and native.itemsize == 16:
        # An x87 number has ten bytes; what lies behind them is left over from other things.
        values.view(np.uint8).reshape(-1, 16)[:, 10:] = 0
    return Column("number", dtype_name(array.dtype), shape, values, rows, form)


def cells_column(cells: Any, shape: tuple[int, ...], form: str) -> Column:
    """Describe cells of any Python type: strings, bytes, arrays of several shapes, objects."""
    types = set(map(type, cells))
    types.discard(type(None))
    rows = len(cells) // max(1, int(np.prod(shape)))
    if types and all(issubclass(t, str) for t in types):
        try:
            pa.array(cells, pa.large_string())
        except (UnicodeEncodeError, pa.ArrowInvalid):  # half of a surrogate pair
            return Column("object", "str", shape, cells, rows, form)
        return Column("text", "str", shape, cells, rows, form)
    if types and all(issubclass(t, bytes) for t in types):
        return Column("bytes", "bytes", shape, cells, rows, form)
    if types and all(hasattr(t, "__array__") or hasattr(t, "detach") for t in types) and not shape:
        arrays = [None if cell is None else as_array(cell) for cell in cells]
        given = [a for a in arrays if a is not None]
        dtypes, ndims = {a.dtype for a in given}, {a.ndim for a in given}
        if len(dtypes) == 1 and len(ndims) == 1 and given[0].dtype.kind in "biufcmM":
            arrays = [None if a is None else np.array(a, order="C") for a in arrays]
            return Column("ragged", given[0].dtype.name, (given[0].ndim,), arrays, rows, form)
    return Column("object", class_names(types), shape, cells, rows, form)


def class_names(types: Iterable[type]) -> str:
    """Name a set of classes, for instance 'Decimal' or 'date|str'."""
    names = {"str" if t is np.str_ else "bytes" if t is np.bytes_ else t.__name__ for t in types}
    return "|".join(sorted(names)) or "null"


# ------------------------------------------------------------------------- one item of a loader


def leaves(item: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, value) for each column of an item; nested keys are joined by dots."""
    if hasattr(item, "keys"):
        pairs = [(str(key), item[key]) for key in item.keys()]  # noqa: SIM118 - mappings of any sort
    elif hasattr(item, "_fields"):
        pairs = list(zip(item._fields, item))
    elif isinstance(item, tuple):
        pairs = [(str(index), value) for index, value in enumerate(item)]
    else:
        pairs = [("0", item)]
    for key, value in pairs:
        if hasattr(value, "keys") or isinstance(value, tuple):
            yield from leaves(value, prefix + key + ".")
        else:
            yield prefix + key, value


def container_name(item: Any) -> str:
    """Name what an item is: 'dict', 'tuple', 'namedtuple view' or 'array'."""
    if hasattr(item, "_fields"):
        return "namedtuple " + type(item).__name__
    return "dict" if hasattr(item, "keys") else "tuple" if isinstance(item, tuple) else "array"


def looks_like_rows(item: Any) -> bool:
    """Say whether an item is a single row: some value is a scalar, or lengths differ."""
    lengths = set()
    for _, value in leaves(item):
        if isinstance(value, list):
            inner = inner_lengths(value)
            lengths |= inner if len(inner) == 1 else {len(value)}
            continue
        array = as_array(value)
        if array is None or array.ndim == 0:
            return True
        lengths.add(array.shape[0])
    return len(lengths) > 1


def batch_columns(item: Any, nested: set[str]) -> dict[str, Column]:
    """Return {key: Column} for a batch.

    Args:
        item: The batch.
        nested: Keys whose values are lists of columns, as earlier batches showed; is added to.

    Raises:
        RecordingError: A value is no column, or the columns' lengths differ.
    """
    columns = unique(
        pair for key, value in leaves(item) for pair in value_columns(key, value, nested)
    )
    lengths = {name: column.rows for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise RecordingError(
            f"the columns of a batch have different lengths: {lengths}. If the loader gives one row "
            "at a time, say so (--rows, or rows=True)."
        )
    return columns


def unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return pairs as a dict.

    Raises:
        RecordingError: Two have the same name, as {"a.b": …, "a": {"b": …}} has them.
    """
    columns: dict[str, Any] = {}
    for name, value in pairs:
        if name in columns:
            raise RecordingError(f"two columns are called {name!r}; rename one")
        if "\0" in name:
            raise RecordingError(f"the column {name!r} has a NUL character in its name; rename it")
        columns[name] = value
    return columns


def value_columns(key: str, value: Any, nested: set[str]) -> Iterator[tuple[str, Column]]:
    """Yield (key, Column) for one value; a list of equally long columns has several."""
    array = None if isinstance(value, list) else as_array(value)
    if array is not None and array.ndim > 0:
        yield key, array_column(array, form_of(value))
        return
    if not isinstance(value, list):
        raise RecordingError(
            f"the value of {key!r} is a {type(value).__name__}, which has no rows. If the loader "
            "gives one row at a time, say so (--rows, or rows=True)."
        )
    lengths = inner_lengths(value)
    if len(lengths) == 1 and lengths != {len(value)}:
        nested.add(key)
    if lengths and key in nested:
        # What torch's default_collate makes of lists: the columns of their positions. A batch of as
        # many rows as there are positions does not tell; the others do.
        for index, part in enumerate(value):
            inner = list(part) if isinstance(part, tuple) else part
            yield from value_columns(f"{key}.{index}", inner, nested)
        return
    yield key, stack(value, "list")


def inner_lengths(values: Sequence[Any]) -> set[int]:
    """Return the lengths of a list's values if all of them are columns rather than cells."""
    for value in values:
        if not isinstance(value, (list, tuple)):
            array = None if isinstance(value, (str, bytes)) or value is None else as_array(value)
            if array is None or array.ndim == 0:
                return set()
    return set(map(len, values))


def stack(values: Any, form: str) -> Column:
    """Make a column of a list of cells, as one array if they have one dtype and shape."""
    types = set(map(type, values))
    if types in ({int}, {float}, {bool}):
        array = np.array(values)
        if array.dtype != object:  # an integer of more than 64 bits
            return array_column(array, form)
    if not types & {str, bytes, type(None)} and not types & {list, tuple, dict}:
        arrays = [as_array(value) for value in values]
        if arrays and all(array is not None for array in arrays):
            first = arrays[0]
            if all(a.dtype == first.dtype and a.shape == first.shape for a in arrays):
                return array_column(np.stack(arrays), form)
            values = arrays
    cells = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        cells[index] = value
    return cells_column(cells, (), form)


# ---------------------------------------------------------------------------------------- Arrow


def encode_cell(value: Any) -> list[Any]:  # noqa: PLR0911 - a table of types
    """Write a cell of any supported type as JSON that tells type and exact value.

    Raises:
        RecordingError: Its type is not supported.
    """
    if isinstance(value, (bool, int, str)) and not isinstance(value, np.generic):
        return [type(value).__name__, str(value) if isinstance(value, int) else ascii(value)]
    if isinstance(value, float) and not isinstance(value, np.generic):
        return ["float", repr(value), np.float64(value).tobytes().hex()]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return [type(value).__name__, bytes(value).hex()]
    if isinstance(value, decimal.Decimal) or hasattr(value, "isoformat"):
        return [type(value).__name__, str(value)]
    if type(value).__name__ in ("timedelta", "UUID"):
        return [type(value).__name__, str(value)]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [None if v is None else encode_cell(v) for v in value]]
    if hasattr(value, "keys"):
        return [
            "dict",
            [
                [encode_key(k), None if value[k] is None else encode_cell(value[k])]
                for k in value.keys()  # noqa: SIM118
            ],
        ]
    array = as_array(value)
    if array is None:
        raise RecordingError(
            f"a value of type {type(value).__name__} cannot be recorded; turn it into an array, a "
            "string or bytes first"
        )
    if array.dtype.kind == "O":
        return ["object", list(array.shape), [encode_cell(v) for v in array.ravel()]]
    return [dtype_name(array.dtype), list(array.shape), np.ascontiguousarray(array).tobytes().hex()]


def encode_key(key: Any) -> Any:
    """Write the key of a dict: a string as it is, anything else with its type."""
    return str(key) if isinstance(key, str) else None if key is None else encode_cell(key)


def flat_arrow(column: Column) -> Any:
    """Return the cells of a column as a flat Arrow array."""
    if column.kind == "text":
        return pa.array(column.values, pa.large_string())
    if column.kind == "bytes":
        return pa.array(column.values, pa.large_binary())
    if column.kind == "object":
        cells = [None if v is None else json.dumps(encode_cell(v)).encode() for v in column.values]
        return pa.array(cells, pa.large_binary())
    return number_arrow(column.values.reshape(-1))


def number_arrow(flat: Any) -> Any:
    """Return a one-dimensional array of numbers as Arrow, of the same bits."""
    name = flat.dtype.name
    if name in PRIMITIVES:
        return pa.array(flat)
    if name == "bool":
        return pa.array(flat.view(np.uint8))
    if flat.dtype.kind in "mM":
        return pa.array(flat.view(np.int64))
    width = flat.dtype.itemsize
    buffer = pa.py_buffer(np.ascontiguousarray(flat).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(flat), [None, buffer])


def arrow_arrays(name: str, column: Column) -> dict[str, Any]:
    """Return {field name: Arrow array of one value per row} for a column."""
    if column.kind != "ragged":
        flat = flat_arrow(column)
        if not column.shape:
            return {name: flat}
        size = int(np.prod(column.shape))
        offsets = pa.array(np.arange(column.rows + 1, dtype=np.int64) * size)
        return {name: pa.LargeListArray.from_arrays(offsets, flat)}
    given = [array for array in column.values if array is not None]
    missing = np.array([array is None for array in column.values])
    sizes = np.array([0 if array is None else array.size for array in column.values], np.int64)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    offsets = pa.array(ends, pa.int64(), mask=np.append(missing, False))
    flat = number_arrow(np.concatenate([array.reshape(-1) for array in given]))
    ndim = column.shape[0]
    shapes = [(0,) * ndim if array is None else array.shape for array in column.values]
    flat_shapes = np.array(shapes, np.int64).reshape(-1)
    ndims = pa.array(np.arange(column.rows + 1, dtype=np.int64) * ndim)
    return {
        name: pa.LargeListArray.from_arrays(offsets, flat),
        name + SHAPE_SUFFIX: pa.LargeListArray.from_arrays(ndims, pa.array(flat_shapes)),
    }


# ------------------------------------------------------------------------------ what is gathered


def describe_columns(parts: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """Return of each column its dtypes, kinds, forms and the shape that its values share.

    Args:
        parts: Of rows that look alike, the layout with name, kind, dtype and form of each column, and the shapes.
    """
    columns: dict[str, dict[str, Any]] = {}
    for layout, shapes in parts:
        for given, sizes in zip(layout, shapes):
            name, shape = given["name"], list(sizes)
            if given["kind"] == "ragged":
                shape = [None] * sizes[0]
            column = columns.setdefault(
                name, {"name": name, "dtypes": [], "shape": shape, "kinds": [], "forms": []}
            )
            for fact in ("dtype", "kind", "form"):
                if given[fact] not in column[fact + "s"]:
                    column[fact + "s"].append(given[fact])
            if len(shape) == len(column["shape"]):
                column["shape"] = [a if a == b else None for a, b in zip(column["shape"], shape)]
            elif given["dtype"] != "null":
                column["shape"] = ["varies"]
    return list(columns.values())


class Writer:
    """Write a recording batch by batch into a directory that is put in place at the end.

    Args:
        out: The recording's directory.
        overwrite: Replace a recording that is there, or an empty directory.

    Raises:
        RecordingError: The directory exists and is not to be replaced, is no recording, or cannot
            be made.
    """

    def __init__(self, out: str | os.PathLike[str], overwrite: bool = False) -> None:
        self.out = os.path.realpath(str(out))
        if os.path.exists(self.out) and not is_replaceable(self.out):
            raise RecordingError(
                f"{self.out} exists already and is no recording; choose another place, or remove it"
            )
        if os.path.exists(self.out) and not overwrite:
            raise RecordingError(
                f"{self.out} exists already; choose another place, or replace it with --overwrite "
                "(in Python: overwrite=True)"
            )
        self.folder = f"{self.out}.incomplete-{os.getpid()}"
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            os.makedirs(self.folder)
        except OSError as error:
            raise RecordingError(
                f"{self.out} cannot be written: {error.strerror}; choose another place"
            ) from error
        self.rows = self.batches = 0
        self.epochs: list[dict[str, int]] = []
        self.containers: list[str] = []
        self._epoch_start = (0, 0)
        self._layouts: dict[Any, int] = {}
        self._files: list[Any] = []
        self._counts: list[int] = []
        self._pending: list[dict[str, Column]] = []
        self._pending_key: Any = None
        self._pending_rows = self._pending_bytes = 0
        self._chunks: list[tuple[int, int, int, str]] = []
        self._sizes: list[int] = []

    def add(self, columns: dict[str, Column], container: str) -> None:
        """Take the columns of one batch, {name: Column}, and the name of what held them."""
        if container not in self.containers:
            self.containers.append(container)
        rows = next(iter(columns.values())).rows if columns else 0
        # Columns whose shape changes from batch to batch must not be put together.
        key = tuple((n, c.kind, c.dtype, c.shape, c.form) for n, c in columns.items())
        if key != self._pending_key:
            self._flush()
        self._pending_key = key
        self._pending.append(columns)
        self._sizes.append(rows)
        self.rows += rows
        self.batches += 1
        self._pending_rows += rows
        self._pending_bytes += sum(map(size_of, columns.values()))
        if self._pending_rows >= CHUNK_ROWS or self._pending_bytes >= CHUNK_BYTES:
            self._flush()

    def end_epoch(self) -> None:
        """Note that a pass over the loader has ended."""
        rows, batches = self._epoch_start
        self.epochs.append({"rows": self.rows - rows, "batches": self.batches - batches})
        self._epoch_start = (self.rows, self.batches)

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        rows, self._pending_rows, self._pending_bytes = self._pending_rows, 0, 0
        if not pending:
            return
        columns = {name: join([b[name] for b in pending]) for name in pending[0]}
        fields: dict[str, Any] = {}
        for name, column in columns.items():
            fields.update(arrow_arrays(name, column))
        batch = pa.RecordBatch.from_arrays(list(fields.values()), list(fields))
        layout = self._layout(columns, batch.schema)
        self._files[layout].write_batch(batch)
        shapes = json.dumps([list(c.shape) for c in columns.values()])
        self._chunks.append((layout, self._counts[layout], rows, shapes))
        self._counts[layout] += 1

    def _layout(self, columns: Any, schema: Any) -> int:
        description = tuple((n, c.kind, c.dtype, c.form) for n, c in columns.items())
        key = (description, tuple(map(str, schema.types)))
        if key not in self._layouts:
            if len(self._layouts) == MAX_LAYOUTS:
                raise RecordingError("columns or dtypes change all the time; recording given up")
            index = self._layouts[key] = len(self._layouts)
            path = os.path.join(self.folder, f"values-{index}.arrow")
            self._files.append(pa.RecordBatchFileWriter(path, schema))
            self._counts.append(0)
        return self._layouts[key]

    def finish(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Put the recording in place, with further facts in its manifest; returns the manifest."""
        self._flush()
        for file in self._files:
            file.close()
        sizes = pa.Table.from_pydict({"rows": self._sizes}, BATCHES)
        write_table(self.folder, "batches.arrow", sizes)
        columns = {name: [c[i] for c in self._chunks] for i, name in enumerate(CHUNKS.names)}
        write_table(self.folder, "chunks.arrow", pa.Table.from_pydict(columns, CHUNKS))
        layouts = [
            [dict(zip(("name", "kind", "dtype", "form"), column)) for column in description]
            for description, _ in self._layouts
        ]
        # Each only once: there are many chunks, and few shapes.
        parts = dict.fromkeys((layout, shapes) for layout, _, _, shapes in self._chunks)
        manifest = {
            "format": FORMAT,
            "rows": self.rows,
            "batches": self.batches,
            "epochs": self.epochs,
            "containers": self.containers,
            "columns": describe_columns((layouts[i], json.loads(text)) for i, text in parts),
            "files": {
                name: checksum(self.folder, name) for name in sorted(os.listdir(self.folder))
            },
            "layouts": layouts,
        }
        manifest.update(facts)
        manifest["checksum"] = manifest_checksum(manifest)
        with open(os.path.join(self.folder, "manifest.json"), "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
        put_in_place(self.folder, self.out)
        return manifest

    def abort(self) -> None:
        """Remove what was written."""
        for file in self._files:
            file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def size_of(column: Column) -> int:
    """Return about how many bytes a column takes in memory."""
    if column.kind == "number":
        return int(column.values.nbytes)
    return sum(map(size_of_cell, column.values))


def size_of_cell(value: Any) -> int:
    """Return about how many bytes the value of a row takes in memory."""
    if isinstance(value, (str, bytes, list)):
        return 64 + len(value)
    array = value if hasattr(value, "nbytes") else as_array(value)
    return 64 if array is None else 64 + int(array.nbytes)


def join(columns: Sequence[Column]) -> Column:
    """Put the same column of several batches together."""
    first = columns[0]
    if len(columns) == 1:
        return first
    if first.kind == "ragged":
        values = [array for column in columns for array in column.values]
    else:
        values = np.concatenate([column.values for column in columns])
    return first._replace(values=values, rows=sum(column.rows for column in columns))


def is_replaceable(folder: str) -> bool:
    """Say whether a directory is a recording and nothing else, or empty."""
    if not os.path.isdir(folder):
        return False
    names = os.listdir(folder)
    return not names or ("manifest.json" in names and all(map(FILE_NAME.fullmatch, names)))


def put_in_place(folder: str, out: str) -> None:
    """Give a finished directory its name; what had the name is deleted once that has worked.

    Whenever this is interrupted, the old recording or the new one is complete: under its name, or
    beside it with ".replaced-" and a process id added to the name.
    """
    replaced = f"{out}.replaced-{os.getpid()}"
    if os.path.exists(out):
        shutil.rmtree(replaced, ignore_errors=True)
        os.rename(out, replaced)
    try:
        os.rename(folder, out)
    except OSError:
        if os.path.exists(replaced):
            os.rename(replaced, out)
        raise
    shutil.rmtree(replaced, ignore_errors=True)


def manifest_checksum(manifest: dict[str, Any]) -> str:
    """Return the CRC-32 of what a manifest says, apart from that checksum."""
    content = {name: value for name, value in manifest.items() if name != "checksum"}
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def checksum(folder: str, name: str) -> str:
    """Return the CRC-32 of a file."""
    crc = 0
    with open(os.path.join(folder, name), "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"


def write_table(folder: str, name: str, table: Any) -> None:
    """Write an Arrow table as an Arrow IPC file."""
    with pa.RecordBatchFileWriter(os.path.join(folder, name), table.schema) as file:
        file.write_table(table)


# -------------------------------------------------------------------------------- the whole run


def record(
    loader: Any,
    out: str | os.PathLike[str],
    *,
    epochs: int = 1,
    limit: int | None = None,
    rows: bool | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Record what a loader gives and return the manifest.

    Args:
        loader: Any iterable of dicts, namedtuples, tuples or arrays; a context manager around one
            (it is entered and left); or a function that returns either.
        out: Directory of the recording; with ranks, of the recordings of all ranks.
        epochs: How many times to iterate over the loader.
        limit: Stop after the batch that reaches this number of rows; needed for endless loaders.
        rows: Whether an item is one row rather than a batch; by default the first item tells.
        rank: This process's rank; by default the environment's ``RANK`` if ``WORLD_SIZE`` > 1.
        world_size: How many ranks record.
        overwrite: Replace an earlier recording.
        progress: Is called with the number of rows so far, now and then.

    Raises:
        RecordingError: The output cannot be recorded, the directory exists, or a number makes no
            sense.
    """
    for name, number in (("epochs", epochs), ("limit", limit)):
        if number is not None and number < 1:
            raise RecordingError(f"{name} is {number}; it must be at least 1")
    launched = int(os.environ.get("WORLD_SIZE") or 1)
    if rank is None and launched > 1:
        rank = int(os.environ["RANK"]) if os.environ.get("RANK") else None
        world_size = launched
    if rank is None and world_size is not None and world_size > 1:
        raise RecordingError(
            f"which of {world_size} ranks is this? Give --rank (in Python: rank), or set RANK"
        )
    facts: dict[str, Any] = {"rank": rank, "world_size": world_size if rank is not None else None}
    if rank is not None:
        if world_size is None:
            raise RecordingError(
                f"rank {rank} of how many? Give --world-size (in Python: world_size)"
            )
        if not 0 <= rank < world_size:
            raise RecordingError(f"rank {rank} of {world_size} makes no sense: ranks begin at 0")
        out = os.path.join(str(out), f"rank-{rank:05d}-of-{world_size:05d}")
    writer = Writer(out, overwrite)
    started = time.time()
    try:
        owned = callable(loader) and not hasattr(loader, "__iter__")
        if owned and not hasattr(loader, "__enter__"):
            loader = loader()
        # A loader that was made here is also closed here.
        closes = hasattr(loader, "__enter__") and (owned or not hasattr(loader, "__iter__"))
        given = None
        with loader if closes else nullcontext(loader) as entered:
            _refuse_endless(loader, limit)
            given = _run(writer, entered, epochs=epochs, limit=limit, rows=rows, say=progress)
        if given is None:
            raise RecordingError(  # noqa: TRY301 - here what was written is removed
                "an error ended the loop over the loader, and its context hid it"
            )
        seconds = round(time.time() - started, 3)
        return writer.finish({**facts, **given, "seconds": seconds, "versions": versions()})
    except BaseException:
        writer.abort()
        raise


def _run(
    writer: Writer,
    loader: Any,
    *,
    epochs: int,
    limit: int | None,
    rows: bool | None,
    say: Callable[[int], object] | None,
) -> dict[str, Any]:
    """Write what a loader gives, and return what the manifest says of the loader."""
    if not hasattr(loader, "__iter__"):
        raise RecordingError(
            f"an object of type {type(loader).__name__} cannot be iterated over; give a loader, or a "
            "function that returns one"
        )
    _refuse_endless(loader, limit)
    block = RowBlock(writer)
    nested: set[str] = set()
    limited = False
    for _ in range(epochs):
        for item in loader:
            if rows is None:
                rows = looks_like_rows(item)
            if rows:
                block.add(item)
            else:
                writer.add(batch_columns(item, nested), container_name(item))
            if say:
                say(writer.rows)
            if limit and writer.rows + len(block.rows) >= limit:
                limited = True
                break
        block.flush()
        writer.end_epoch()
        if limited:
            break
    source, padded = source_of(loader)
    return {"source": source, "padded": padded, "limited": limited, "batched": not rows}


def _refuse_endless(loader: Any, limit: int | None) -> None:
    """Refuse a loader whose reader was asked for epochs without end, before it fills the disk.

    Petastorm's readers and those of petastorm_bridge say so; of others nothing is known.
    """
    reader = getattr(loader, "reader", loader)
    if limit is None and getattr(reader, "num_epochs", 1) is None:
        raise RecordingError(
            "the loader never ends, because num_epochs is None: limit the rows (--limit N, or "
            "limit=N), or make the loader with num_epochs=1"
        )


class RowBlock:
    """Single rows that wait to be written together: of the same keys, in the same container."""

    def __init__(self, writer: Writer) -> None:
        self.rows: list[dict[str, Any]] = []
        self._bytes = 0
        self._writer, self._container = writer, ""

    def add(self, item: Any) -> None:
        """Take a row.

        Raises:
            RecordingError: Its keys are not those of the rows before it.
        """
        row, container = unique(leaves(item)), container_name(item)
        if self.rows and (container != self._container or list(row) != list(self.rows[0])):
            lacking = set(row) ^ set(self.rows[0])
            if lacking:
                raise RecordingError(f"some rows lack {min(lacking)!r}")
            self.flush()
        self._container = container
        self.rows.append(row)
        self._bytes += sum(map(size_of_cell, row.values()))
        if len(self.rows) == ROW_BLOCK or self._bytes >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self.rows:
            rows, self.rows, self._bytes = self.rows, [], 0
            columns = {key: stack([row[key] for row in rows], "rows") for key in rows[0]}
            self._writer.add(columns, self._container)


def source_of(loader: Any) -> tuple[str, bool]:
    """Return the qualified class of a loader, and whether StreamingDataset feeds it."""
    names, seen = [], loader
    for _ in range(8):
        if seen is None:
            break
        names += [(c.__module__, c.__name__) for c in type(seen).__mro__]
        seen = getattr(seen, "dataset", None)
    padded = any(n == "StreamingDataset" and m.startswith("streaming") for m, n in names)
    return f"{type(loader).__module__}.{type(loader).__qualname__}", padded


def versions() -> dict[str, str]:
    """Return the versions of Python and of what is installed beside it."""
    installed = {"python": platform.python_version()}
    for name in STACK:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def find_function(name: str) -> Any:
    """Import the function named ``module:function``; the working directory is searched first.

    Only for what was named: what else is imported comes from there only if it is nowhere else. A
    ``json.py`` that happens to lie there is not taken for Python's.

    Raises:
        RecordingError: The name has another form, or there is no such function.
    """
    module, _, function = name.partition(":")
    if not function:
        raise RecordingError(f"{name!r} is not of the form module:function")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        import_from(here, module.partition(".")[0])
        target = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and not (module + ".").startswith(error.name + "."):
            raise
        hint = f"; write {module[:-3]}:{function}" if module.endswith(".py") else ""
        raise RecordingError(f"no module {module!r} in {here} or on the path{hint}") from error
    for part in function.split("."):
        if not hasattr(target, part):
            defined = getattr(target, "__dict__", {})
            known = [n for n, v in defined.items() if getattr(v, "__module__", "") == module]
            hint = f"; there are {', '.join(known)}" if known else ""
            raise RecordingError(f"{module} has no {function!r}{hint}")
        target = getattr(target, part)
    return target


def import_from(folder: str, name: str) -> None:
    """Import a module or package from a folder if it is there and none of that name is imported."""
    spec = None if name in sys.modules else PathFinder.find_spec(name, [folder])
    if spec is None or spec.loader is None or spec.origin is None:  # none, or a folder without code
        return
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        sys.modules.pop(name, None)
        raise


def legible(text: str) -> str:
    """Return a text with what steers a terminal, such as a name of a column may hold, written out."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def describe(manifest: dict[str, Any]) -> str:
    """Return a line about a recording."""
    columns = ", ".join(
        f"{legible(c['name'])} {'|'.join(c['dtypes'])}{c['shape'] or ''}"
        for c in manifest["columns"]
    )
    return (
        f"{counted(manifest['rows'], 'row')} in {counted(manifest['batches'], 'batch', 'batches')}, "
        f"{counted(len(manifest['columns']), 'column')}: {columns}"
    )


def counted(number: int, one: str, several: str | None = None) -> str:
    """Write a number and what it counts: '1 row', '2 rows'."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Record from the command line; returns the exit code, 0 or 2."""
    parser = argparse.ArgumentParser(description="Record what a loader gives.")
    parser.add_argument("function", help="module:function that returns the loader")
    parser.add_argument("--out", required=True, help="directory of the recording")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the loader [1]")
    parser.add_argument("--limit", type=int, help="stop after this many rows")
    parser.add_argument("--rows", action="store_true", help="the loader gives single rows")
    parser.add_argument("--rank", type=int, help="this process's rank [RANK]")
    parser.add_argument("--world-size", type=int, help="number of ranks [WORLD_SIZE]")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier recording")
    return record_named("recorder", **vars(parser.parse_args(arguments)))


def record_named(program: str, function: str, out: str, *, rows: bool, **options: Any) -> int:
    """Record the loader of a function, `module:function`, and print what it is; returns 0 or 2.

    What is printed begins with the program's name; the options are those of `record`.
    """
    started = last = time.monotonic()

    def say(rows: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > max(10.0, last - started):  # after 10 s, then each time twice as late
            last = now
            text = "%s: %s so far; only --limit ends a loader that has no end"
            print(text % (program, counted(rows, "row")), file=sys.stderr, flush=True)

    try:
        manifest = record(find_function(function), out, rows=rows or None, progress=say, **options)
    except RecordingError as error:
        print(f"{program}: {legible(str(error))}", file=sys.stderr)
        return 2
    except Exception:  # noqa: BLE001 - the loader's own error is what the user must see
        traceback.print_exc()
        print(f"{program}: the loader failed; nothing was written", file=sys.stderr)
        return 2
    print(f"{legible(out)}: {describe(manifest)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
