"""From what the user names to a source of rows and a directory to fill."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from petastorm_bridge import fs_utils
from petastorm_bridge._sources.open import open_source
from petastorm_bridge._sources.parquet import ParquetSource
from petastorm_bridge.fs_utils import masked
from petastorm_bridge.mds.errors import DatasetError

from ._state import Destination

_DBFS = "/dbfs"  # where Databricks mounts it

_MARKS_OF_TABLES = ("_SUCCESS", "_metadata", "_common_metadata")

Place = str | os.PathLike[str]


def open_parquet(
    source: Place | Sequence[Place], storage_options: Mapping[str, Any] | None
) -> ParquetSource:
    """Open a store of Parquet files.

    Raises:
        ValueError: It is MDS already, or no URL that can be read.
        DatasetError: There is nothing to read, or a table that is more than its files.
    """
    urls = [url_of(place) for place in places_of(source)]
    for url in urls:
        path = fs_utils.existing_local_path(url)
        if path is not None and not os.path.exists(path):
            raise DatasetError(
                f"There is nothing at {path}. Name a Parquet file or directory, or a dataset of Petastorm's."
            )
    is_one = isinstance(source, str | os.PathLike)
    with warnings.catch_warnings():
        # Columns that readers leave out are refused by name, or not asked for.
        warnings.filterwarnings("ignore", message=r"Column .* has an unsupported field")
        warnings.filterwarnings("ignore", message=r"\[ARROW-1644\]")
        opened = open_source(urls[0] if is_one else urls, storage_options)
    if not isinstance(opened, ParquetSource):
        raise ValueError(  # noqa: TRY004 - of what lies there, not of the argument's type
            f"{opened.description} holds MDS shards already; there is nothing to convert."
        )
    return opened


def destination_at(place: Place) -> Destination:
    """Return the directory to fill.

    Raises:
        ValueError: It is not on a file system of this machine.
    """
    url = url_of(place)
    path = fs_utils.existing_local_path(url)
    if path is None:
        raise ValueError(
            f"{masked(url)} is in a store. Convert into a directory of this machine, then copy it there: "
            "the shards first, index.json last."
        )
    if url.lower().startswith("dbfs:") and not os.path.isdir(_DBFS):
        raise ValueError(
            f"{masked(url)} is on DBFS, which is not mounted here: there is no {_DBFS}. Give a directory of "
            "this machine."
        )
    return Destination(os.path.abspath(path))


def refuse_overlap(source: Place | Sequence[Place], destination: Destination) -> None:
    """Raise if one of the two lies in the other, or the destination in the table that a file is of.

    Raises:
        ValueError: They do.
    """
    target = os.path.realpath(destination.path)
    for place in places_of(source):
        path = fs_utils.existing_local_path(url_of(place))
        if path is None:
            continue
        here = os.path.realpath(path)
        if os.path.isdir(here) and os.path.commonpath([here, target]) in (here, target):
            raise ValueError(
                f"{destination.path} and the source {path} overlap. Convert into a directory "
                "beside the source."
            )
        table = os.path.dirname(here)
        if _is_of_a_table(here) and os.path.commonpath([table, target]) == table:
            raise ValueError(
                f"{destination.path} lies in the table that the file {path} is of, which no reader could "
                f"open any more. Convert into a directory beside {table}."
            )


def _is_of_a_table(path: str) -> bool:
    """Return whether a file is one of a table in its directory, by the names that writers of tables give."""
    folder, name = os.path.split(path)
    if name.startswith("part-") or "=" in os.path.basename(folder):
        return True
    return any(os.path.lexists(os.path.join(folder, mark)) for mark in _MARKS_OF_TABLES)


def places_of(source: Place | Sequence[Place]) -> list[Place]:
    """Return the places that a source is made of."""
    if isinstance(source, str):
        return [source]
    return [source] if isinstance(source, os.PathLike) else list(source)


def url_of(place: Place) -> str:
    """Return the URL of a place; paths become ``file://`` URLs."""
    text = os.fspath(place)
    if "://" in text or text.lower().startswith(("dbfs:", "file:")):
        return text
    return f"file://{os.path.abspath(text)}"
