"""Opening Parquet files, reading their footers, and showing their columns as Petastorm does."""

from __future__ import annotations

import inspect
import itertools
import os
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs, parquet

from petastorm_bridge._blocks.columns import (
    Column,
    equal_lists,
    is_numbers,
    numbers,
    pooled,
    present,
)
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.mds.errors import DatasetError, DatasetNotFoundError
from petastorm_bridge.mds.shard import Rows
from petastorm_bridge.mds.types import is_list

from ._far.fetch import Extent
from .far_parquet import MakeFar
from .parquet_files import File
from .parquet_schema import Footer, Schemas

_FOOTER_THREADS = 16
_TRIED = 16  # files of a near directory that are read before threads are started, which help only if disks are slow
_TURNS = 8  # of each thread at least, where there are more files
_STREAM_BYTES = 4 << 20
# Pages carry checksums, which Spark writes and Arrow compares from release 15 on.
_CHECKSUMS: dict[str, Any] = (
    {"page_checksum_verification": True}
    if "page_checksum_verification" in inspect.signature(parquet.ParquetFile).parameters
    else {}
)

_Result = TypeVar("_Result")


class DamagedFileError(DatasetError, pa.ArrowInvalid):  # type: ignore[misc] # pyarrow is untyped
    """A file is no Parquet file, or a damaged one; Petastorm raises ``ArrowInvalid``."""


class ParquetFiles:
    """Files of one table in one place, which are opened again and again with the same options.

    Pickles without the footers, which are large and quickly read again.

    Attributes:
        files: What was found when the table was opened.
    """

    def __init__(
        self,
        files: Sequence[File],
        filesystem: fs.FileSystem,
        make_far: MakeFar | None = None,
        **options: Any,
    ) -> None:
        self.files = files
        self.far = None if make_far is None else make_far(files)
        self._filesystem = filesystem
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._options = options
        self._footers: dict[int, Any] = {}
        # Another file may come in the place of one, with its size and time. On mounts inodes may change by themselves.
        folders = {os.path.dirname(file.path) for file in files}
        is_near = self._is_local and not any(map(is_far, folders))
        self._inodes: dict[int, int] | None = {} if is_near else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_footers": {}}

    def read_footers(self) -> list[Footer]:
        """Return what is wanted of every file's footer; those of several row groups, and far ones, are kept for :meth:`open`.

        Raises:
            DatasetError: A file is damaged or no Parquet file, or is gone.
        """
        count = len(self.files)
        tried = range(min(count, _TRIED) if self._inodes is not None else 0)
        wall, cpu = time.perf_counter(), time.thread_time()
        schemas = Schemas()
        footers = self._read_run(tried, schemas)
        is_waiting = time.perf_counter() - wall > 2 * (time.thread_time() - cpu)
        if tried and not is_waiting:  # threads would only wait for each other
            return footers + self._read_run(range(len(tried), count), schemas)
        # Handing a file to a thread takes a third of the time of reading its footer.
        step = 1 + count // (_FOOTER_THREADS * _TURNS)
        runs = [range(start, min(start + step, count)) for start in range(len(tried), count, step)]
        with ThreadPoolExecutor(min(_FOOTER_THREADS, count)) as pool:
            read = pool.map(lambda run: self._read_run(run, schemas), runs)
            return footers + list(itertools.chain.from_iterable(read))

    def _read_run(self, indices: Sequence[int], schemas: Schemas) -> list[Footer]:
        return [self._read_footer(index, schemas) for index in indices]

    def _read_footer(self, index: int, schemas: Schemas) -> Footer:
        path = self.files[index].path
        if self._inodes is not None:
            self._inodes[index] = naming(path, lambda: os.stat(path).st_ino)
        metadata = self._open(index).metadata
        # Parsing a footer takes time with its row groups, of which each would need one parse.
        is_kept = self.far is not None or metadata.num_row_groups > 1
        if is_kept:
            self._footers[index] = metadata
        return naming(path, lambda: Footer(metadata, schemas.of(metadata), is_kept=is_kept))

    def metadata(self, index: int) -> Any:
        """Return the whole footer of a file."""
        return self._footers.get(index) or self._open(index).metadata

    def extents(self, index: int, group: int, names: Collection[str]) -> Sequence[Extent]:
        """Return what has to be fetched of far files to read columns of a row group."""
        assert self.far is not None
        footer = self._footers[index] = self.metadata(index)
        return self.far.extents(index, footer, group, names)

    def open_group(self, index: int, group: int, names: Collection[str]) -> parquet.ParquetFile:
        """Open one of the files to read columns of a row group, which are here then; raises as :meth:`open`."""
        if self.far is None:
            return self.open(index)
        self._check_unchanged(index)
        footer = self._footers[index] = self.metadata(index)
        return self._reader(index, self.far.open(index, footer, group, names))

    def open(self, index: int, *, streamed: bool = False) -> parquet.ParquetFile:
        """Open one of the files.

        Args:
            index: Which one.
            streamed: Do not have the bytes of a row group in memory as a whole while it is decoded.

        Raises:
            DatasetNotFoundError: It is gone.
            DatasetError: It is damaged; or, on a local file system or mount, was replaced since the table was opened.
        """
        self._check_unchanged(index)
        reader = self._open(index, streamed=streamed)
        if index not in self._footers and reader.num_row_groups > 1:
            self._footers[index] = reader.metadata
        return reader

    def _open(self, index: int, *, streamed: bool = False) -> parquet.ParquetFile:
        path = self.files[index].path
        if self._is_local:
            source = naming(path, lambda: self._filesystem.open_input_file(path))
        else:
            source = self._filesystem.open_input_file(path)
        return self._reader(index, source, streamed=streamed)

    def _reader(self, index: int, source: Any, *, streamed: bool = False) -> parquet.ParquetFile:
        return naming(
            self.files[index].path,
            lambda: parquet.ParquetFile(
                source,
                metadata=self._footers.get(index),
                pre_buffer=False,
                buffer_size=_STREAM_BYTES if streamed else 0,
                **_CHECKSUMS,
                **self._options,
            ),
        )

    def _check_unchanged(self, index: int) -> None:
        if not self._is_local:
            return
        file = self.files[index]
        try:
            status = os.stat(file.path)
        except FileNotFoundError as error:
            raise _gone(file.path) from error
        is_another = self._inodes is not None and self._inodes[index] != status.st_ino
        if is_another or (status.st_size, status.st_mtime_ns) != (file.size, file.mtime):
            raise DatasetError(
                f"{file.path} was written again while it was being read. Start anew, so that all rows are "
                "of the same file."
            )


def one_array(chunks: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()


def shown(array: pa.Array) -> Column:
    """Return a stored column in Petastorm's form; plain numbers without nulls as NumPy arrays."""
    type_ = array.type
    if is_numbers(array):
        return numbers(array)
    if pa.types.is_floating(type_) or (not array.null_count and pa.types.is_boolean(type_)):
        return array.to_numpy(zero_copy_only=False)
    # Timestamps keep the unit and zone of the file; pandas shows them as Petastorm does.
    element = type_.value_type if is_list(type_) else type_
    if pa.types.is_timestamp(element) and not pa.types.is_large_list(type_):
        return array
    return present(array)


def rows_of(column: Column, rows: Rows) -> Column:
    """Return some rows of a column that :func:`shown` gave."""
    if isinstance(rows, slice):
        if isinstance(column, np.ndarray):
            return column[rows]
        return column.slice(rows.start, rows.stop - rows.start)
    if isinstance(column, np.ndarray):
        return _gathered(column, rows)
    values = equal_lists(column)
    if values is None:
        return column.take(pa.array(rows))
    # Arrow takes lists element by element; rows of a matrix are copied as they are.
    return _lists(_gathered(values, rows), column.type)


def _gathered(column: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the rows at some positions of an array of plain values, in fresh memory."""
    out = pooled((len(rows), *column.shape[1:]), column.dtype)
    # The rows are within the group; without a check of each the copy is faster.
    return column.take(rows, axis=0, mode="clip", out=out)


def _lists(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Return the rows of a matrix as an Arrow array of lists, over the same memory."""
    rows, width = values.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    elements = pa.array(values.reshape(-1), type_.value_type)
    buffers = [None, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(type_, rows, buffers, 0, children=[elements])


def naming(path: str, read: Callable[[], _Result]) -> _Result:
    """Return what ``read`` does; errors name the file."""
    try:
        return read()
    except DatasetError:
        raise
    except FileNotFoundError as error:
        raise _gone(path) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the operating system's, which name the file
        message = masked(str(error), path)
        if "Unrecognized type" in message:
            raise DamagedFileError(
                f"{masked(path)} holds a type that pyarrow {pa.__version__} does not know ({message}): a "
                "newer Arrow wrote it. Install a newer pyarrow."
            ) from error
        raise DamagedFileError(
            f"{masked(path)} cannot be read as Parquet. It is damaged, still being written, or another kind "
            f"of file: {message}"
        ) from error


def _gone(path: str) -> DatasetNotFoundError:
    return DatasetNotFoundError(
        f"{masked(path)} is missing: it was deleted after the reader was opened."
    )
