"""A directory of MDS shards as a small handle that programs store, pass on and pickle."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from typing import Any, ClassVar

import pyarrow.fs

__all__ = ["MdsDirectory", "is_there", "read_shards"]


@dataclasses.dataclass(unsafe_hash=True)
class MdsDirectory:
    """A directory of MDS shards, on a disk or in a store; ``len()`` is the number of rows.

    Attributes:
        path: Absolute path, or the URL in a store.
        dataset_size: Number of rows.
        columns: Names in the order of the DataFrame; samples have them in alphabetical order.
    """

    path: str
    dataset_size: int
    columns: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)

    PARENT_CACHE_DIR_URL_CONF: ClassVar[str] = "petastorm.spark.converter.parentCacheDirUrl"
    """The Spark conf that names the directory in which new ones are made."""

    def __len__(self) -> int:
        return self.dataset_size

    @property
    def remote(self) -> str | None:
        """The URL, for ``StreamingDataset(remote=…)``; None for a directory on a disk."""
        return self.path if "://" in self.path else None

    @property
    def local(self) -> str:
        """The directory itself, or where this machine keeps its copies of what is in a store."""
        if self.remote is None:
            return self.path
        name = hashlib.sha256(self.path.encode()).hexdigest()[:16]
        return os.path.join(tempfile.gettempdir(), f"mds-{name}")

    @property
    def cache_dir_url(self) -> str:
        """The URL of the directory."""
        return self.remote or f"file://{self.path}"

    @property
    def file_urls(self) -> list[str]:
        """The URLs of the shards, in the order of their rows."""
        written = [shard["zip_data"] or shard["raw_data"] for shard in read_shards(self.path)]
        return [f"{self.cache_dir_url}/{file['basename']}" for file in written]

    def delete(self) -> None:
        """Delete the directory; one that is gone already is fine."""
        if is_there(self.path):
            files, path = _opened(self.path)
            files.delete_dir(path)


def read_shards(path: str) -> list[dict[str, Any]]:
    """Return what the index of a directory says of its shards, in the order of their rows."""
    files, place = _opened(path)
    with files.open_input_stream(f"{place}/index.json") as file:
        shards: list[dict[str, Any]] = json.load(file)["shards"]
    return shards


def is_there(path: str) -> bool:
    """Say whether there is anything at a path or URL."""
    files, place = _opened(path)
    return bool(files.get_file_info(place).type != pyarrow.fs.FileType.NotFound)


def _opened(path: str) -> tuple[Any, str]:
    """Return the file system that a path or URL is in, and the path in it.

    A store that stands in for S3 is named by ``S3_ENDPOINT_URL``, as streaming has it.
    """
    if not path.startswith("s3://"):
        files, place = pyarrow.fs.FileSystem.from_uri(path)
        return files, place
    endpoint = os.environ.get("S3_ENDPOINT_URL")
    return pyarrow.fs.S3FileSystem(endpoint_override=endpoint), path.removeprefix("s3://")
