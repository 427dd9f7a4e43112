"""What ``index.json`` says of a shard, checked before anything is read by it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .encode import NDARRAY_CODES
from .errors import DatasetError
from .layout import ShardLayout

__all__ = ["ShardEntry", "fixed_encoding"]

_SCALAR_ENCODINGS = {
    "int": "int64",
    **{
        name: name
        for kind in ("int", "uint")
        for name in (f"{kind}8", f"{kind}16", f"{kind}32", f"{kind}64")
    },
    **{name: name for name in ("float16", "float32", "float64")},
}


@lru_cache(maxsize=512)  # asked for every column of every shard
def fixed_encoding(encoding: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return dtype and shape of one value of a fixed-width MDS encoding, None for variable width.

    Raises:
        ValueError: An ``ndarray`` encoding with a value type or shape that MDS does not have.
    """
    if encoding in _SCALAR_ENCODINGS:
        return np.dtype(_SCALAR_ENCODINGS[encoding]), ()
    family, separator, config = encoding.partition(":")
    if family != "ndarray" or not separator:
        return None
    name, separator, text = config.partition(":")
    if name not in NDARRAY_CODES:
        raise ValueError(f"unknown encoding {encoding!r}")
    if not separator:
        return None
    shape = tuple(int(size) for size in text.split(","))
    if min(shape) < 1:
        raise ValueError(f"unknown encoding {encoding!r}")
    return np.dtype(name), shape


@dataclass(frozen=True)
class ShardEntry:
    """What ``index.json`` says of one shard.

    Attributes:
        layout: Column names, encodings and widths.
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
    def from_json(cls, obj: dict[str, Any], index_path: str) -> ShardEntry:
        """Read one element of the index's ``shards``.

        Raises:
            DatasetError: Another version or format than MDS 2, or not an entry of an index.
        """
        if not isinstance(obj, dict):
            raise _unusable(index_path, f"a shard is {obj!r}")
        if obj.get("version") != 2 or obj.get("format") != "mds":
            raise DatasetError(
                f"{index_path} describes a shard of format {obj.get('format')!r} version "
                f"{obj.get('version')!r}; only MDS version 2 can be read."
            )
        try:
            layout = _layout(obj)
            samples, zipped = int(obj["samples"]), obj["zip_data"]
            raw = _file(obj["raw_data"])
            zipped = None if zipped is None else _file(zipped)
            compression = obj["compression"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unusable(index_path, f"{type(error).__name__}: {error}") from error
        if samples < 0 or (zipped is not None and not isinstance(compression, str)):
            raise _unusable(index_path, f"{samples} samples, compression {compression!r}")
        return cls(layout, samples, raw, zipped, compression)

    @property
    def basenames(self) -> tuple[str, ...]:
        """File names under which the shard may be found, the uncompressed one first."""
        names = (str(self.raw["basename"]),)
        return names if self.zip is None else (*names, str(self.zip["basename"]))


def _unusable(index_path: str, found: str) -> DatasetError:
    return DatasetError(
        f"{index_path} is not a usable MDS index ({found}). Convert the DataFrame again."
    )


def _layout(obj: dict[str, Any]) -> ShardLayout:
    """Return the columns of an entry, whose widths must be those of their encodings."""
    return _checked_layout(
        tuple(obj["column_names"]), tuple(obj["column_encodings"]), tuple(obj["column_sizes"])
    )


@lru_cache(maxsize=64)  # the shards of a dataset have the same columns
def _checked_layout(
    names: tuple[str, ...], encodings: tuple[str, ...], widths: tuple[int | None, ...]
) -> ShardLayout:
    layout = ShardLayout(names, encodings, widths)
    if len(set(layout.names)) != len(layout.names):
        raise ValueError(f"columns {list(layout.names)}")
    sizes = []
    for _, encoding in zip(layout.names, layout.encodings, strict=True):
        kind = fixed_encoding(encoding)
        sizes.append(None if kind is None else kind[0].itemsize * math.prod(kind[1]))
    if tuple(sizes) != layout.sizes:
        raise ValueError(f"column sizes {list(layout.sizes)} instead of {sizes}")
    return layout


def _file(obj: Any) -> dict[str, Any]:
    if not (
        isinstance(obj["basename"], str)
        and isinstance(obj["bytes"], int)
        and isinstance(obj["hashes"], dict)
    ):
        raise TypeError(f"file {obj!r}")
    return dict(obj)
