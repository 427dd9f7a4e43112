"""A dataset directory as the converter needs it: on mounted storage or in a remote store."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Protocol

from petastorm_bridge.fs_utils import existing_local_path

from .mounted import MountedStore
from .remote import RemoteStore


class Store(Protocol):
    """One dataset directory. Pickles."""

    def creating(self) -> contextlib.AbstractContextManager[None]:
        """Make the directory, its parents and its marker, and show in the block that somebody is at work."""

    def is_there(self) -> bool:
        """Return whether there is anything under the directory's name."""

    def is_ours(self) -> bool:
        """Return whether the marker is there and was written for this directory."""

    def writing(self) -> contextlib.AbstractContextManager[str]:
        """Give a local directory; the files written to it are in the store after the block.

        Raises:
            FileNotFoundError: The directory was deleted meanwhile; nothing is left there.
        """

    def fetch(self, names: list[str], directory: str) -> None:
        """Make files of the store available in a directory that :meth:`writing` gave."""

    def reading(self) -> contextlib.AbstractContextManager[str]:
        """Give a local directory that holds the index and the sidecar."""

    def exists(self, name: str) -> bool:
        """Return whether a file is there."""

    def sizes(self, known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the names of all files and their sizes in bytes.

        Args:
            known: Sizes of files that do not change any more, which need not be asked for.
        """

    def names(self) -> list[str]:
        """Return the names of all files."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone is fine."""

    def remove_ours(self) -> list[str]:
        """Remove all files of ours, and the directory if that leaves it empty.

        One that is gone is fine.

        Returns:
            The names of what is still there, which others have put there.

        Raises:
            OSError: Something of ours cannot be removed.
        """


def store_at(url: str) -> Store:
    """Return the store behind a directory's URL; ValueError if it is unusable, ImportError for a package."""
    path = existing_local_path(url)
    return RemoteStore(url) if path is None else MountedStore(path)
