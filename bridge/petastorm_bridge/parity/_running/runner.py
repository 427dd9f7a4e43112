"""Run loaders in processes of their own and open the recordings that they leave."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from petastorm_bridge.parity import recorder
from petastorm_bridge.parity._recordings.manifest import CannotCompareError
from petastorm_bridge.parity._recordings.recording import Recording, open_recording

from . import recording_program
from .recorder_processes import RecorderProcesses

PETASTORM, BRIDGE, STREAMING = "petastorm", "bridge", "streaming"
_MODULES = {PETASTORM: "petastorm", BRIDGE: "petastorm_bridge", STREAMING: "streaming"}
# What to do where a package is missing.
_REMEDIES = {
    PETASTORM: "Name an interpreter in which Petastorm works with --petastorm-python",
    STREAMING: "Install petastorm-bridge[streaming]",
}
PACKAGES = (PETASTORM, BRIDGE, STREAMING)
LOADERS = ("torch", "batched", "tf")
# Options under which the number of rows cannot be told from the files.
FILTERS = {"predicate", "filters", "rowgroup_selector"}
_SHUFFLES = {"shuffle_rows", "shuffle_row_groups", "shuffling_queue_capacity"}
# Options that say how many rows, ranks and visits of row groups there are.
_COUNTS = {"num_epochs", "shard_count", "shuffle_row_drop_partitions"}
_MOST_WORKERS = 32
_LEFT_BEHIND = "ignore::UserWarning:multiprocessing.resource_tracker"


@dataclass(frozen=True)
class Request:
    """What to run.

    Attributes:
        data: Parquet directory, or name of a Spark table.
        batch_size: Rows in a batch.
        loader: ``torch``, ``batched`` (`BatchedDataLoader`) or ``tf``.
        options: Further options of ``make_batch_reader`` and the loader, for every package.
        transform: ``module:function``; the function gets the package's ``TransformSpec`` class and
            returns an instance of it.
        petastorm_python: Interpreter in which Petastorm is installed; this one by default.
        attempts: How often Petastorm is run at most.
        limit: Stop after about so many rows.
        timeout: Seconds that one run may take.
        only: The packages to run.
        keep: Directory for the recordings; by default they are not kept.
    """

    data: str
    batch_size: int
    loader: str = "torch"
    options: Mapping[str, Any] = field(default_factory=dict)
    transform: str | None = None
    petastorm_python: str | None = None
    attempts: int = 10
    limit: int | None = None
    timeout: float = 3600
    only: Sequence[str] = PACKAGES
    keep: str | None = None

    def __post_init__(self) -> None:
        for name, given, known in (
            ("loader", (self.loader,), LOADERS),
            ("package", self.only, PACKAGES),
        ):
            for value in given:
                if value not in known:
                    raise CannotCompareError(
                        f"there is no {name} {value!r}; there are {', '.join(known)}"
                    )
        if len(set(self.only)) < 2:
            raise CannotCompareError(
                f"{self.only[0]} alone cannot be compared; name another package"
            )
        if self.transform is not None and not all(self.transform.partition(":")):
            raise CannotCompareError(f"{self.transform!r} is not of the form module:function")
        if self.limit is not None and self.limit < 1:
            raise CannotCompareError(f"limit is {self.limit}; it must be at least 1")
        for name in _COUNTS & self.options.keys():
            value = self.options[name]
            endless = name == "num_epochs" and value is None
            if not endless and (not isinstance(value, int) or value < 0):
                raise CannotCompareError(f"{name} is {value!r}; it must be a whole number")
        if self.options.get("num_epochs", 1) is None and not self.limit:
            raise CannotCompareError("endless epochs never end; give a limit of rows")


class Runner:
    """Runs packages over a Parquet directory, each in processes of its own.

    Attributes:
        request: What to run.
        data: The directory.
        scratch: Temporary directory.
        folder: Directory of the recordings.
        files: The path of each file, and the rows of its row groups.
    """

    def __init__(self, request: Request, data: str, scratch: str) -> None:
        self.request, self.data, self.scratch = request, data, scratch
        self.folder = request.keep or scratch
        self.files = _parquet_files(data)
        for script in (recorder.__file__, recording_program.__file__):
            shutil.copy(script, scratch)

    def expected_rows(self) -> int | None:
        """How many rows a complete run has, if the files alone tell."""
        options = self.request.options
        if self.request.transform or FILTERS & options.keys() or self.request.limit:
            return None
        groups = [rows for _, of_file in self.files for rows in of_file]
        if "cur_shard" in options:
            if options.get("shard_seed") is not None or not options.get("shard_count"):
                return None
            groups = groups[options["cur_shard"] :: options["shard_count"]]  # Petastorm's shards
        return sum(groups) * (options.get("num_epochs", 1) or 1)

    @property
    def ranks(self) -> int:
        """How many shards are run, one after the other; 0 if only one, or none, was asked for."""
        options = self.request.options
        return 0 if "cur_shard" in options else options.get("shard_count", 0)

    def options(self, package: str) -> dict[str, Any]:
        """The options of one package; as many workers as keep Petastorm's order stable."""
        options = dict(self.request.options)
        if package == PETASTORM and "workers_count" not in options and not self.shuffled:
            options["workers_count"] = self._workers_in_order()
        return options

    def _workers_in_order(self) -> int:
        """How many of Petastorm's workers give its rows in order.

        Four visits of row groups per worker are handed out at once (``_VENTILATE_EXTRA_ROWGROUPS``
        in ``reader.py``); those handed out later may be swapped, unless there is one worker.
        """
        options = self.request.options
        if options.get("num_epochs", 1) is None:
            return 1
        visits = sum(len(of_file) for _, of_file in self.files)
        for times in ("num_epochs", "shuffle_row_drop_partitions"):
            visits *= options.get(times, 1)
        needed = max(4, -(-visits // 4))
        return needed if needed <= _MOST_WORKERS else 1

    @property
    def shuffled(self) -> bool:
        """Whether the options ask for any shuffling."""
        return any(self.request.options.get(name) for name in _SHUFFLES)

    def run(self, package: str, attempt: int = 0) -> Recording:
        """Run one package once; with ranks, all of them.

        Raises:
            CannotCompareError: It left no recording, or something else is where one is to be kept.
        """
        out = os.path.join(self.folder, f"{package}-{attempt}")
        _remove_recording(out)
        port = _free_port()
        with RecorderProcesses(self.scratch, package, self.request.timeout) as processes:
            for rank in range(self.ranks) if self.ranks else (None,):
                processes.start(*self._command(package, out, rank, port))
                if package != STREAMING:  # its ranks wait for each other, the others need not
                    processes.wait()
            processes.wait()
            try:
                return open_recording(out)
            except CannotCompareError:
                last = processes.said or "it printed nothing"
                if "No module named" in last and package in _REMEDIES:
                    last += f". {_REMEDIES[package]}, or leave it out with --only."
                raise CannotCompareError(f"{package} could not be recorded: {last}") from None

    def _urls(self) -> list[str] | str:
        """The files' URLs; the directory's if its ``key=value`` parts hold columns."""
        folder = Path(self.data).absolute()
        if any(Path(path).parent != folder for path, _ in self.files):
            return folder.as_uri()
        return [Path(path).as_uri() for path, _ in self.files]

    def _command(
        self, package: str, out: str, rank: int | None, port: int
    ) -> tuple[list[str], dict[str, str]]:
        """The command line and the environment of one process."""
        request = self.request
        options = self.options(package)
        environment = {k: v for k, v in os.environ.items() if k not in {"RANK", "WORLD_SIZE"}}
        if not request.transform or options.get("reader_pool_type") != "process":
            # Processes that a loader starts would look for modules in the working directory first. Petastorm's
            # worker processes are left to: it is the only place where they find a transform that is there.
            environment["PYTHONSAFEPATH"] = "1"
        # What streaming leaves in shared memory is said after the last words of the program.
        ignored = f"{environment.get('PYTHONWARNINGS', '')},{_LEFT_BEHIND}"
        environment["PYTHONWARNINGS"] = ignored.removeprefix(",")
        if rank is not None and package == STREAMING:
            environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            environment |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(self.ranks))
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        elif rank is not None:
            options["cur_shard"] = rank
        spec = {
            "package": _MODULES[package],
            "urls": self._urls(),
            "mds": os.path.join(self.scratch, "mds"),
            "loader": request.loader,
            "batch_size": request.batch_size,
            "options": options,
            "transform": request.transform,
            "limit": request.limit,
            "out": out,
            "rank": rank,
            "world_size": self.ranks or None,
        }
        path = os.path.join(self.scratch, f"{os.path.basename(out)}-{rank or 0}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(spec, file)
        python = request.petastorm_python if package == PETASTORM else None
        if python:  # this process's own paths must not reach another interpreter
            environment.pop("PYTHONPATH", None)
        command = [
            python or sys.executable,
            os.path.join(self.scratch, "recording_program.py"),
            path,
        ]
        return command, environment


def _parquet_files(data: str) -> list[tuple[str, list[int]]]:
    from pyarrow import fs, parquet

    from petastorm_bridge._sources.parquet_files import find_files
    from petastorm_bridge._sources.table_formats import refuse_table_formats

    folder = os.path.abspath(data)
    try:
        refuse_table_formats(fs.LocalFileSystem(), folder)
        paths = [file.path for file in find_files(fs.LocalFileSystem(), [folder])]
        footers = [parquet.read_metadata(path) for path in paths]
    except (OSError, ValueError, IndexError) as error:
        raise CannotCompareError(f"{data} is no directory of Parquet files: {error}") from error
    return [
        (path, [footer.row_group(i).num_rows for i in range(footer.num_row_groups)])
        for path, footer in zip(paths, footers, strict=True)
    ]


def _remove_recording(folder: str) -> None:
    """Remove what an earlier run has kept, with ranks or without, and nothing else.

    Raises:
        CannotCompareError: There is something else.
    """
    if not os.path.lexists(folder):
        return
    names = os.listdir(folder) if os.path.isdir(folder) else []
    of_ranks = [os.path.join(folder, name) for name in names if name.startswith("rank-")]
    recordings = of_ranks if len(of_ranks) == len(names) > 0 else [folder]
    are_links = any(map(os.path.islink, (folder, *recordings)))
    if are_links or not all(map(recorder.is_replaceable, recordings)):
        raise CannotCompareError(f"{folder} is there already, and is no recording; remove it")
    shutil.rmtree(folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
