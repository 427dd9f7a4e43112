"""What ``index.json`` says of shards, checked before anything is read by it.

What an index names is opened, fetched, overwritten by downloads and deleted from caches: only files below its
own directory, whoever wrote it. Every reader of an index therefore asks here first, before it touches anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .codecs import parse_compression
from .errors import DatasetError
from .layout import ShardLayout
from .schema import SIDECAR_NAME
from .types import fixed_encoding

INDEX_NAME = "index.json"

_RESERVED = {INDEX_NAME, SIDECAR_NAME}
# Linux allows 255 bytes; downloads and writers add endings of their own while they are at work.
_LONGEST_PART = 200
_LONGEST_NAME = 1024


@dataclass(frozen=True)
class ShardEntry:
    """What ``index.json`` says of one shard.

    Attributes:
        samples: Number of rows.
        raw: ``{"basename", "bytes", "hashes"}`` of the uncompressed file.
        zip: The same of the compressed file, or None.
        compression: MDS compression name, or None.
    """

    layout: ShardLayout
    samples: int
    raw: dict[str, Any]
    zip: dict[str, Any] | None
    compression: str | None

    @classmethod
    def from_json(
        cls, obj: dict[str, Any], index_path: str, *, has_other_encodings: bool = False
    ) -> ShardEntry:
        """Read one element of the index's ``shards``.

        Args:
            obj: The element.
            index_path: For messages.
            has_other_encodings: Encodings that are not of MDS may have any width.

        Raises:
            DatasetError: Another version or format than MDS 2, or not an entry of an index. What it
                names is not looked at (:func:`check_file_names`).
        """
        if not isinstance(obj, dict):
            raise _unusable(index_path, f"a shard is {obj!r}")
        if obj.get("version") != 2 or obj.get("format") != "mds":
            raise DatasetError(
                f"{index_path} describes a shard of format {obj.get('format')!r} version "
                f"{obj.get('version')!r}; only MDS version 2 can be read."
            )
        try:
            layout = _layout(obj, has_other_encodings)
            raw = _file(obj["raw_data"])
            zipped = None if obj["zip_data"] is None else _file(obj["zip_data"])
            samples, compression = _count(obj["samples"]), obj["compression"]
            if zipped is not None:
                parse_compression(str(compression))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unusable(index_path, f"{type(error).__name__}: {error}") from error
        # Before anybody makes room for as many: a file holds their number and the offset of each.
        if raw["bytes"] < 4 * (samples + 2):
            raise _unusable(index_path, f"{samples} samples in {raw['bytes']} bytes")
        return cls(layout, samples, raw, zipped, compression)

    @property
    def files(self) -> tuple[dict[str, Any], ...]:
        """What is said of the files in which the shard may be found, the uncompressed one first."""
        return (self.raw,) if self.zip is None else (self.raw, self.zip)

    @property
    def stored(self) -> dict[str, Any]:
        """What is said of the file that the dataset has: the compressed one, if there is one."""
        return self.files[-1]

    @property
    def basenames(self) -> tuple[str, ...]:
        """Names of the ``files``."""
        return tuple(file["basename"] for file in self.files)


def parse_index(text: bytes, path: str) -> dict[str, Any]:
    """Return the content of an index, whose ``shards`` are a list of anything; DatasetError if it is none."""
    try:
        index = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"{error}") from error
    if not isinstance(index, dict) or not isinstance(index.get("shards"), list):
        raise _unusable(path, "no list of shards")
    if index.get("version") != 2:
        raise _unusable(path, f"version {index.get('version')!r}")
    return index


def _unusable(index_path: str, reason: str) -> DatasetError:
    return DatasetError(
        f"{index_path} is not a usable MDS index ({reason}). Convert the DataFrame again."
    )


def _layout(obj: dict[str, Any], has_other_encodings: bool) -> ShardLayout:
    """Return the columns of an entry, whose widths must be those of their encodings."""
    columns = [obj[key] for key in ("column_names", "column_encodings", "column_sizes")]
    if not all(isinstance(part, list) for part in columns):
        raise TypeError(f"names, encodings and sizes of columns {columns}")
    return _checked_layout(*map(tuple, columns), has_other_encodings)


@lru_cache(maxsize=64, typed=True)  # the shards of a dataset have the same columns
def _checked_layout(
    names: tuple[str, ...],
    encodings: tuple[str, ...],
    widths: tuple[int | None, ...],
    has_other_encodings: bool,
) -> ShardLayout:
    if not all(isinstance(text, str) for text in (*names, *encodings)):
        raise TypeError(f"columns {list(names)} of encodings {list(encodings)}")
    "".join(names).encode()  # what is no Unicode cannot be the name of an Arrow column
    if len(set(names)) != len(names):
        raise ValueError(f"columns {list(names)}")
    sizes: list[int | None] = []
    for _, encoding, width in zip(names, encodings, widths, strict=True):
        dtype = fixed_encoding(encoding)
        if dtype is None and has_other_encodings and width is not None:
            sizes.append(_count(width))
        else:
            sizes.append(None if dtype is None else dtype.itemsize)
    if tuple(sizes) != widths:
        raise ValueError(f"column sizes {list(widths)} instead of {sizes}")
    if sum(size or 0 for size in sizes) >= 1 << 31:  # NumPy's record types end there
        raise ValueError(f"column sizes {list(widths)}, 2 GiB or more in each sample")
    # A width of 0 is none, as in streaming.
    return ShardLayout(names, encodings, tuple(width or None for width in widths))


def _count(number: Any) -> int:
    """Return a number of samples or bytes, of which MDS can address less than 4 GiB in a file."""
    if type(number) is not int or not 0 <= number < 1 << 33:  # compressed files may be larger
        raise ValueError(f"a size of {number!r}")
    return number


def _file(obj: Any) -> dict[str, Any]:
    if not (isinstance(obj["basename"], str) and isinstance(obj["hashes"], dict)):
        raise TypeError(f"file {obj!r}")
    return {**obj, "bytes": _count(obj["bytes"])}


def check_file_names(names: Iterable[str], index_path: str) -> None:
    """Check all file names of an index: parts separated by single slashes, as stock writers give.

    Raises:
        DatasetError: One leads, or may lead, out of the index's directory, is no usable name, or is also
            the folder of another one.
    """
    files = dict.fromkeys(names)
    folders: set[str] = set()
    for name in files:
        if problem := _problem(name):
            raise DatasetError(
                f"{index_path} names a file {problem}: {_shortened(name)}. Nothing of it was touched. Do "
                "not use this dataset unless you trust who wrote it; otherwise convert the DataFrame again."
            )
        parts = name.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    for name in folders & files.keys():
        raise DatasetError(
            f"{index_path} names {_shortened(name)} both as a file and as a folder of files. Convert "
            "the DataFrame again."
        )


def check_folders(directory: str, names: Iterable[str]) -> None:
    """Refuse, with DatasetError, folders of these files in a directory that are links to somewhere else."""
    root = os.path.realpath(directory)
    for folder in sorted({os.path.dirname(name) for name in names} - {""}):
        target = os.path.realpath(os.path.join(directory, folder))
        if not target.startswith(os.path.join(root, "")):
            raise DatasetError(
                f"{os.path.join(directory, folder)} is a link to {target}, outside of the directory that "
                "holds copies of shards; files there would be overwritten and deleted. Remove the link "
                "or choose another local directory."
            )


def _problem(name: str) -> str | None:
    parts = name.split("/")
    # What is no Unicode takes no bytes here, and is asked for by itself.
    sizes = [len(part.encode(errors="ignore")) for part in parts]
    rules = {
        "without a name": name in ("", "."),
        "outside of its directory": name.startswith("/") or ".." in parts,
        "in a way that no writer does": bool({"", "."} & {*parts}) or "\\" in name or "\0" in name,
        "that is no shard": not _RESERVED.isdisjoint(parts),
        "that is no text": any("\ud800" <= character <= "\udfff" for character in name),
        "whose name is too long": max(sizes) > _LONGEST_PART or len(name) > _LONGEST_NAME,
    }
    return next((problem for problem, is_so in rules.items() if is_so), None)


def _shortened(name: str) -> str:
    return repr(name) if len(name) <= 200 else f"{name[:200]!r}…"
