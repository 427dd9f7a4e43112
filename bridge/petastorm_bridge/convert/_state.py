"""The directory that is being written: whose it is, what is finished in it, and when it is a dataset.

Whenever a run ends, the next one can tell what there is. Without an index it is an unfinished conversion of
what ``plan.json`` says, and each note of a finished part says of which plan it is. With an index it is a
dataset, and what it was converted from stands in its sidecar; notes mean nothing then.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from petastorm_bridge._sources.parquet_files import CONVERSION_NAME
from petastorm_bridge._workers.file_lock import fcntl, is_at
from petastorm_bridge._workers.threads import each_at_once
from petastorm_bridge.mds.access import is_far
from petastorm_bridge.mds.dataset import MdsDataset, open_dataset
from petastorm_bridge.mds.entry import INDEX_NAME, ShardEntry, check_file_names
from petastorm_bridge.mds.errors import DatasetError
from petastorm_bridge.mds.files import NO_RENAMING, final_name, open_regular, write_whole
from petastorm_bridge.mds.schema import SIDECAR_NAME, content_digest
from petastorm_bridge.mds.verified import checked_bytes

from ._parts import Part

PLAN_KEY = "conversion"
"""Where a sidecar has what the dataset was converted from, among what its writer wanted to keep."""

_PLAN = "plan.json"
_LOCK = "lock"
_PART = re.compile(r"part-(\d{5,})\.json", re.ASCII)
_SHARD = re.compile(r"shard\.\d{5,}\.\d+(\.flags)?\.mds(\.[a-z0-9]+)?", re.ASCII)
# Also how mounts that rename nothing refuse to remove what is open, the lock.
_IS_KEPT = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, *NO_RENAMING)


class State(enum.Enum):
    """What a directory holds of a conversion."""

    NOTHING = "nothing"
    BEGUN = "its plan, and perhaps some parts"
    FINISHED = "the dataset"


@dataclass(frozen=True)
class Destination:
    """A directory that a conversion fills.

    Besides the shards there is a directory of notes, which goes when the dataset is whole: what is being
    converted and how, and for every part that was written the entries of its shards.

    Attributes:
        path: Absolute.
        plan: What decides on every byte of the dataset (as JSON reads it back).
    """

    path: str
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _notes(self) -> str:
        return os.path.join(self.path, CONVERSION_NAME)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[State]:
        """Hold the directory for this process in the block; it is made, or an earlier run's is taken on.

        Gives what an earlier run of the same plan has left in it.

        Raises:
            FileExistsError: There is something else, or a conversion of something else.
            BlockingIOError: Another process is at work in it.
            OSError: It cannot be made.
        """
        self._look()
        os.makedirs(self.path, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._notes)
        with self._open_notes() as notes, self._lock(notes):
            try:
                state = self._look()  # others may have finished, or begun, since the first one
            except FileExistsError:
                if self._noted_plan() is None:
                    self._remove_notes(notes)
                raise
            if state is State.NOTHING:
                text = json.dumps(self.plan, indent=1).encode()
                write_whole(_PLAN, [text], is_durable=True, folder=notes)
            yield state
        # All is done. Mounts keep a file that is removed, here the lock, until it is closed.
        with contextlib.suppress(OSError), self._open_notes() as notes:
            self._remove_notes(notes)

    def note(self, part: Part, infos: list[dict[str, Any]]) -> None:
        """Note what the shards of a part are, which are there or on their way: hashes tell the next run."""
        content = {"plan": content_digest(self.plan), "part": asdict(part), "shards": infos}
        text = json.dumps({**content, "sha256": content_digest(content)})
        with self._open_notes() as notes:
            # One that is cut off has another hash.
            write_whole(
                _note_name(part),
                [text.encode()],
                is_durable=True,
                folder=notes,
                in_place=is_far(self.path),
            )

    def noted(self) -> set[int]:
        """Return the numbers of the parts that an earlier run has noted."""
        with self._open_notes() as notes:
            matches = map(_PART.fullmatch, os.listdir(notes))
            return {int(match[1]) for match in matches if match}

    def finished(self, part: Part) -> list[dict[str, Any]] | None:
        """Return what was noted of a part, if its shards are there and are what was noted."""
        try:
            with open_regular(os.path.join(self._notes, _note_name(part))) as file:
                noted = json.loads(file.read())
            if noted.pop("sha256") != content_digest(noted):
                return None
            if (noted["plan"], noted["part"]) != (content_digest(self.plan), asdict(part)):
                return None
            infos: list[dict[str, Any]] = noted["shards"]
            for info in infos:
                entry = ShardEntry.from_json(info["index"], self.path)
                file_info = entry.stored
                check_file_names(entry.basenames, self.path)
                if not file_info["hashes"]:
                    return None  # written anew: nothing tells whether they are what was written
                path = os.path.join(self.path, file_info["basename"])
                checked_bytes(path, file_info["bytes"], file_info["hashes"], mapped=False)
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
            DatasetError,
        ):
            return None  # written anew: never noted, or not as it was noted
        return infos

    def forget_notes(self, dataset: MdsDataset) -> None:
        """Remove the notes and what killed processes left beside a dataset, and nothing that is not ours."""
        kept = {name for shard in dataset.shards for name in shard.basenames}
        kept |= {INDEX_NAME, SIDECAR_NAME}
        for name in set(os.listdir(self.path)) - kept:
            final = final_name(name)
            if final in kept or _SHARD.fullmatch(final):
                _remove(os.path.join(self.path, name))
        with self._open_notes() as notes:
            self._remove_notes(notes)

    def _remove_notes(self, notes: int) -> None:
        # The lock last: whoever comes in between finds the dataset, or what the rest belongs to.
        names = os.listdir(notes)
        written = [n for n in names if final_name(n) == _PLAN or _PART.fullmatch(final_name(n))]
        remove = functools.partial(_remove, folder=notes)
        try:
            each_at_once(remove, written, is_far=is_far(self.path))
            if _LOCK in names:
                remove(_LOCK)
            os.rmdir(self._notes)
        except OSError as error:  # somebody has put something there, or waits for the lock
            if error.errno not in _IS_KEPT:
                raise

    def _look(self) -> State:
        """Return what is there of this plan.

        Raises:
            FileExistsError: There is something else.
        """
        try:
            names = set(os.listdir(self.path))
        except FileNotFoundError:
            if not os.path.lexists(self.path):
                return State.NOTHING
            names = {self.path}  # a link to nothing
        except NotADirectoryError:
            names = {self.path}
        if INDEX_NAME in names:
            differing = self._differing(self._converted_from())
            if differing:
                raise FileExistsError(
                    f"{self.path} holds a dataset already, made with other {differing}. Give another "
                    "directory, or delete it first."
                )
            return State.FINISHED
        noted = self._noted_plan() if CONVERSION_NAME in names else None
        if noted is None:
            if names - {CONVERSION_NAME}:
                raise FileExistsError(
                    f"{self.path} is there already, and no unfinished conversion. Give a directory that "
                    "does not exist, or an empty one."
                )
            return State.NOTHING
        differing = self._differing(noted)
        if differing:
            raise FileExistsError(
                f"{self.path} holds an unfinished conversion with other {differing}. Repeat that command "
                "to finish it, or delete the directory to start anew."
            )
        return State.BEGUN

    def _differing(self, other: Mapping[str, Any]) -> str:
        return ", ".join(key for key in self.plan if other.get(key) != self.plan[key])

    def _converted_from(self) -> Mapping[str, Any]:
        """Return the plan of the dataset that is there; nothing if it is not one of a conversion."""
        try:
            plan = open_dataset(self.path).schema.extra.get(PLAN_KEY)
        except DatasetError:
            return {}
        return plan if isinstance(plan, dict) else {}

    def _noted_plan(self) -> Mapping[str, Any] | None:
        """Return the plan of an unfinished conversion; None if there is none, or none was begun.

        Raises:
            DatasetError: It cannot be read.
        """
        path = os.path.join(self._notes, _PLAN)
        try:
            with open_regular(path) as file:
                plan = json.loads(file.read())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            plan = None
        if not isinstance(plan, dict):
            raise DatasetError(
                f"{path}, which says what is converted into {self.path}, is damaged. Delete the directory "
                "to start anew."
            )
        return plan

    @contextlib.contextmanager
    def _open_notes(self) -> Iterator[int]:
        """Open the directory of notes itself, and never what a link leads to.

        Raises:
            FileExistsError: It is something else.
            BlockingIOError: Another process, which has just finished, has removed it.
        """
        try:
            notes = os.open(
                self._notes, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except FileNotFoundError:
            raise self._taken() from None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise FileExistsError(
                f"{self._notes} is a link or a file, where a conversion keeps its notes. Nothing was "
                "touched. Give another directory."
            ) from None
        try:
            yield notes
        finally:
            os.close(notes)

    @contextlib.contextmanager
    def _lock(self, notes: int) -> Iterator[None]:
        # Freed by the system when the process ends in whatever way.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(_LOCK, flags, 0o666, dir_fd=notes)
        except FileNotFoundError:
            raise self._taken() from None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise FileExistsError(
                f"{os.path.join(self._notes, _LOCK)} is a link. Nothing was touched. Give another "
                "directory."
            ) from None
        try:
            self._take(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._taken() from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
        # Who had the lock has removed its file, and there may be another one by now.
        if not is_at(descriptor, os.path.join(self._notes, _LOCK)):
            raise self._taken()

    def _taken(self) -> BlockingIOError:
        return BlockingIOError(
            f"Another process is converting into {self.path}. Wait for it, or give another directory."
        )


def _note_name(part: Part) -> str:
    return f"part-{part.number:05}.json"


def _remove(name: str, folder: int | None = None) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.remove(name, dir_fd=folder)
