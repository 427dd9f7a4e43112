"""Which files an index may name: only those below its own directory, whoever wrote it.

What an index names is opened, fetched, overwritten by downloads and deleted from caches. Every reader
of an index therefore asks here first, before it touches anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from .errors import DatasetError
from .schema import SIDECAR_NAME

INDEX_NAME = "index.json"

_RESERVED = {INDEX_NAME, SIDECAR_NAME}
# Linux allows 255 bytes; downloads and writers add endings of their own while they are at work.
_LONGEST_PART = 200
_LONGEST_NAME = 1024


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
    """Check that files of these names, written or deleted in a directory, are really in it.

    Raises:
        DatasetError: A folder of them is a link to somewhere else.
    """
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
