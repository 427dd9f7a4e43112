"""The directory that is being written: whose it is, what is finished in it, and when it is a dataset."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from petastorm_bridge._sources.unfinished import CONVERSION_NAME
from petastorm_bridge.mds.entry import ShardEntry
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.files import open_regular, write_whole
from petastorm_bridge.mds.names import INDEX_NAME
from petastorm_bridge.mds.shard_file import checked_bytes

from .parts import Part

__all__ = ["Destination"]

_PLAN = "plan.json"
_LOCK = "lock"


@dataclass(frozen=True)
class Destination:
    """A directory that a conversion fills.

    Besides the shards there is a directory of notes, which goes when the dataset is whole: what is being
    converted and how, and for every finished part the entries of its shards.

    Attributes:
        path: Absolute.
    """

    path: str

    @property
    def _notes(self) -> str:
        return os.path.join(self.path, CONVERSION_NAME)

    @contextlib.contextmanager
    def claimed(self, plan: Mapping[str, Any]) -> Iterator[None]:
        """Hold the directory for this process in the block; it is made, or an earlier run's is taken on.

        Args:
            plan: What decides on every byte of the dataset (JSON-able).

        Raises:
            FileExistsError: There is something else, or a conversion of something else.
            BlockingIOError: Another process is at work in it.
            OSError: It cannot be made.
        """
        self._refuse_others()
        os.makedirs(self._notes, exist_ok=True)
        with self._lock():
            self._note_plan(json.loads(json.dumps(plan)))
            yield

    def is_complete(self) -> bool:
        """Return whether there is an index: a run may have been killed right after it wrote one."""
        return os.path.lexists(os.path.join(self.path, INDEX_NAME))

    def note(self, part: Part, infos: list[dict[str, Any]]) -> None:
        """Note that a part is finished, with what the writer says of its shards."""
        text = json.dumps({"rows": part.rows, "shards": infos}).encode()
        write_whole(self._note_path(part), [text], is_durable=True)

    def finished(self, part: Part) -> list[dict[str, Any]] | None:
        """Return what was noted of a part, if its shards are there and are what was noted."""
        try:
            with open_regular(self._note_path(part)) as file:
                noted = json.loads(file.read())
            infos: list[dict[str, Any]] = noted["shards"]
            entries = [ShardEntry.from_json(info["index"], self.path) for info in infos]
            for entry in entries:
                file_info = entry.zip or entry.raw
                path = os.path.join(self.path, file_info["basename"])
                checked_bytes(path, file_info["bytes"], file_info["hashes"], mapped=False)
        except (OSError, ValueError, LookupError, TypeError, DatasetError):
            return None  # written anew: never noted, or not as it was noted
        return infos if sum(entry.samples for entry in entries) == part.rows else None

    def forget_notes(self) -> None:
        """Remove the notes and what killed processes left, and nothing that is not ours."""
        kept = {info["basename"] for info in self._listed_files()}
        for name in os.listdir(self.path):
            if name.startswith("shard.") and ".mds" in name and name not in kept:
                os.remove(os.path.join(self.path, name))
        for name in os.listdir(self._notes):
            os.remove(os.path.join(self._notes, name))
        os.rmdir(self._notes)

    def _listed_files(self) -> list[dict[str, Any]]:
        with open_regular(os.path.join(self.path, INDEX_NAME)) as file:
            shards = json.loads(file.read())["shards"]
        return [info for shard in shards for info in (shard["raw_data"], shard["zip_data"]) if info]

    def _note_path(self, part: Part) -> str:
        return os.path.join(self._notes, f"part-{part.number:05}.json")

    def _refuse_others(self) -> None:
        if not os.path.lexists(self.path) or os.path.isdir(self._notes):
            return
        if self.is_complete():
            raise FileExistsError(
                f"{self.path} holds a dataset already. Give another directory, or delete it first."
            )
        if not os.path.isdir(self.path) or os.listdir(self.path):
            raise FileExistsError(
                f"{self.path} is there already, and no unfinished conversion. Give a directory that "
                "does not exist, or an empty one."
            )

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        # Freed by the system when the process ends in whatever way.
        descriptor = os.open(
            os.path.join(self._notes, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BlockingIOError(
                f"Another process is converting into {self.path}. Wait for it, or give another directory."
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                os.close(descriptor)
                raise
        try:
            yield
        finally:
            os.close(descriptor)

    def _note_plan(self, plan: dict[str, Any]) -> None:
        path = os.path.join(self._notes, _PLAN)
        try:
            with open_regular(path) as file:
                noted = json.loads(file.read())
        except FileNotFoundError:
            write_whole(path, [json.dumps(plan, indent=1).encode()], is_durable=True)
            return
        except ValueError:
            noted = {}
        differing = [
            key for key in plan if not isinstance(noted, dict) or noted.get(key) != plan[key]
        ]
        if differing:
            raise FileExistsError(
                f"{self.path} holds an unfinished conversion with other {', '.join(differing)}. Repeat "
                "that command to finish it, or delete the directory to start anew."
            )
