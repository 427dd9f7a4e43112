"""Run Petastorm, the bridge and native streaming over the same Parquet files, and compare all three.

Each runs in a process of its own and is judged by the recording that it leaves: Petastorm sometimes
aborts after its last row, and sometimes loses rows, so it is run again until its epoch is complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._compare import compare_recordings
from ._recording import CannotCompareError, Recording, open_recording
from ._result import Report, Result
from ._rules import KEY_ORDER, PADDING, Rules
from ._walk import Progress

__all__ = ["Request", "run"]

PETASTORM, BRIDGE, STREAMING = "petastorm", "bridge", "streaming"
_PACKAGES = {PETASTORM: "petastorm", BRIDGE: "petastorm_bridge", STREAMING: "streaming"}
LEGS = (PETASTORM, BRIDGE, STREAMING)
LOADERS = ("torch", "batched", "tf")
# Options under which the number of rows cannot be told from the files.
_FILTERS = {"predicate", "filters", "rowgroup_selector"}
_SHUFFLES = {"shuffle_rows", "shuffle_row_groups", "shuffling_queue_capacity"}
_MOST_WORKERS = 32


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
        label: What to call the data.
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
    only: Sequence[str] = LEGS
    label: str = ""
    keep: str | None = None

    def __post_init__(self) -> None:
        for name, given, known in (
            ("loader", (self.loader,), LOADERS),
            ("package", self.only, LEGS),
        ):
            for value in given:
                if value not in known:
                    raise CannotCompareError(
                        f"there is no {name} {value!r}; there are {', '.join(known)}"
                    )
        if self.options.get("num_epochs", 1) is None and not self.limit:
            raise CannotCompareError("endless epochs never end; give a limit of rows")


@dataclass
class _Attempts:
    """The rows of each run, and what the last failure said."""

    rows: list[int] = field(default_factory=list)
    problem: str = ""


class _Runner:
    def __init__(self, request: Request, scratch: str, say: Callable[[str], None]) -> None:
        self.request, self.scratch, self.say = request, scratch, say
        self.folder = request.keep or scratch
        self.files = _parquet_files(request.data)
        for name in ("recorder.py", "_leg.py"):
            shutil.copy(Path(__file__).parent / name, scratch)

    def expected_rows(self) -> int | None:
        """How many rows a complete run has, if the files alone tell."""
        options = self.request.options
        if self.request.transform or _FILTERS & options.keys() or self.request.limit:
            return None
        groups = [rows for _, of_file in self.files for rows in of_file]
        if "cur_shard" in options:
            if options.get("shard_seed") is not None or not options.get("shard_count"):
                return None
            groups = groups[options["cur_shard"] :: options["shard_count"]]  # Petastorm's shards
        return sum(groups) * int(options.get("num_epochs", 1) or 1)

    @property
    def ranks(self) -> int:
        """How many shards are run, one after the other; 0 if only one, or none, was asked for."""
        options = self.request.options
        return 0 if "cur_shard" in options else int(options.get("shard_count") or 0)

    def options(self, package: str) -> dict[str, Any]:
        """The options of one package; as many workers as keep Petastorm's order stable."""
        found = dict(self.request.options)
        if package == PETASTORM and "workers_count" not in found and not self.shuffled:
            groups = sum(len(of_file) for _, of_file in self.files)
            groups *= int(found.get("num_epochs", 1) or 1)
            needed = max(4, -(-groups // 4))
            found["workers_count"] = needed if needed <= _MOST_WORKERS else 1
        return found

    @property
    def shuffled(self) -> bool:
        """Whether the options ask for any shuffling."""
        return any(self.request.options.get(name) for name in _SHUFFLES)

    def run(self, package: str, attempt: int = 0) -> Recording:
        """Run one package once; with ranks, all of them.

        Raises:
            CannotCompareError: It left no recording.
        """
        out = os.path.join(self.folder, f"{package}-{attempt}")
        shutil.rmtree(out, ignore_errors=True)
        if not self.ranks:
            return _result_of(package, out, [self._start(package, out)], self.request.timeout)
        port = _free_port()
        running, said = [], ""
        for rank in range(self.ranks):
            running.append(self._start(package, out, rank, port))
            if package != STREAMING:  # its ranks wait for each other, the others need not
                said = _wait(running.pop(), self.request.timeout) or said
        return _result_of(package, out, running, self.request.timeout, said)

    def _start(
        self, package: str, out: str, rank: int | None = None, port: int = 0
    ) -> subprocess.Popen[str]:
        request = self.request
        options = self.options(package)
        environment = {k: v for k, v in os.environ.items() if k not in {"RANK", "WORLD_SIZE"}}
        if rank is not None and package == STREAMING:
            environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            environment |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(self.ranks))
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        elif rank is not None:
            options["cur_shard"] = rank
        spec = {
            "package": _PACKAGES[package],
            "urls": _urls(request.data, [path for path, _ in self.files]),
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
        command = [python or sys.executable, os.path.join(self.scratch, "_leg.py"), path]
        return _popen(command, environment, package)

    def run_petastorm(self, expected: int | None) -> tuple[Recording | None, _Attempts]:
        """Run Petastorm until it has all rows; gives the fullest recording."""
        attempts = _Attempts()
        best: Recording | None = None
        for attempt in range(self.request.attempts):
            self.say(f"petastorm, run {attempt + 1}")
            try:
                recording = self.run(PETASTORM, attempt)
            except CannotCompareError as error:
                attempts.problem = str(error)
                break
            attempts.rows.append(recording.rows)
            if best is None or recording.rows > best.rows:
                best = recording
            if expected is None or recording.rows >= expected:
                break
        return best, attempts


def run(
    request: Request,
    rules: Rules,
    folder: str,
    *,
    profile: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Run what was asked for and compare each two.

    Args:
        request: What to run.
        rules: How to compare.
        folder: Temporary directory.
        profile: Gather histograms.
        progress: Is called while rows are compared.
        say: Is called with what is being done.

    Raises:
        CannotCompareError: The data or an option makes no sense.
    """
    runner = _Runner(request, folder, say)
    if runner.shuffled:
        rules = dataclasses.replace(rules, order="shuffled")
    found: dict[str, Recording] = {}
    problems: list[str] = []
    for package in (BRIDGE, STREAMING):
        if package not in request.only or (package == STREAMING and _unfit(request, problems)):
            continue
        say(package)
        try:
            if package == STREAMING:
                _write_mds(runner.files, os.path.join(folder, "mds"))
            found[package] = runner.run(package)
        except CannotCompareError as error:
            problems.append(str(error))
    facts = [("data", _describe_data(runner)), ("loader", _describe_loader(runner))]
    if PETASTORM in request.only:
        expected = runner.expected_rows()
        if expected is None and BRIDGE in found:
            expected = found[BRIDGE].rows
        best, attempts = runner.run_petastorm(expected)
        facts.append(("petastorm's runs", _describe_attempts(attempts, expected)))
        if attempts.problem and best is None:
            problems.append(attempts.problem)
        if best is not None:
            found = {PETASTORM: best, **found}
    results = list(_compare_all(found, rules, profile=profile, progress=progress))
    notes = [("note", problem) for problem in problems if problem.startswith("streaming was not")]
    broken = [problem for problem in problems if not problem.startswith("streaming was not")]
    title = f"{_listed(found)} over {request.label or request.data}"
    return Report(title, tuple(results), (*facts, *notes), tuple(broken))


def _listed(found: Mapping[str, Recording]) -> str:
    names = list(found) or ["nothing"]
    text = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return text[0].upper() + text[1:]


def _compare_all(
    found: Mapping[str, Recording], rules: Rules, *, profile: bool, progress: Progress | None
) -> Sequence[Result]:
    names = list(found)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    results = []
    for a, b in pairs:
        allow = tuple(rules.allow)
        if STREAMING in {a, b}:
            # What StreamingDataset does by design: reported, but no failure.
            allow = (*allow, *(n for n in (PADDING, KEY_ORDER) if n not in allow))
        chosen = dataclasses.replace(rules, allow=allow)
        results.append(
            compare_recordings(
                found[a], found[b], chosen, labels=(a, b), profile=profile, progress=progress
            )
        )
    return results


def _unfit(request: Request, problems: list[str]) -> bool:
    """Say whether native streaming has no counterpart of what was asked for."""
    reasons = [f"no {n}" for n in sorted((_FILTERS | {"cur_shard"}) & request.options.keys())]
    reasons += ["no transform"] if request.transform else []
    reasons += ["no tf.data.Dataset"] if request.loader == "tf" else []
    if reasons:
        problems.append(f"streaming was not run: it has {', '.join(reasons)} of its own")
    return bool(reasons)


def _popen(command: list[str], environment: dict[str, str], package: str) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(  # noqa: S603 - the interpreter is the user's choice
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
    except OSError as error:
        raise CannotCompareError(f"{package}: {command[0]} cannot be run: {error}") from error


def _wait(process: subprocess.Popen[str], timeout: float) -> str:
    """Wait for a process and return its last words."""
    try:
        said = process.communicate(timeout=timeout)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"it did not end within {timeout:g} seconds"
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _result_of(
    package: str, out: str, running: list[subprocess.Popen[str]], timeout: float, said: str = ""
) -> Recording:
    """Open the recording of processes that have been started; how they end says nothing."""
    words = list(filter(None, [said, *(_wait(process, timeout) for process in running)]))
    try:
        return open_recording(out)
    except CannotCompareError:
        last = words[0] if words else "it said nothing"
        raise CannotCompareError(f"{package} could not be recorded: {last}") from None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def find_data(data: str, folder: str) -> str:
    """Return the Parquet directory for a directory or a Spark table, which is written there.

    Raises:
        CannotCompareError: It is neither.
    """
    if os.path.isdir(data):
        return data
    if os.sep in data or not all(part.isidentifier() for part in data.split(".")):
        raise CannotCompareError(f"there is no directory {data}, and no table can have that name")
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise CannotCompareError(
            f"there is no directory {data}; to read a table, install petastorm-bridge[spark]"
        ) from None
    try:
        session = SparkSession.builder.getOrCreate()
        place = os.path.join(folder, "table")
        session.table(data).write.parquet(Path(place).as_uri())
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CannotCompareError(f"the table {data} cannot be read: {first}") from error
    return place


def _parquet_files(data: str) -> list[tuple[str, list[int]]]:
    """Return the path of each file of a table, and the rows of its row groups."""
    from pyarrow import fs, parquet

    from petastorm_bridge._parquet_files import find_files

    folder = os.path.abspath(data)
    try:
        paths = [file.path for file in find_files(fs.LocalFileSystem(), [folder])]
        footers = [parquet.read_metadata(path) for path in paths]
    except (OSError, ValueError, IndexError) as error:
        raise CannotCompareError(f"{data} is no directory of Parquet files: {error}") from error
    return [
        (path, [footer.row_group(i).num_rows for i in range(footer.num_row_groups)])
        for path, footer in zip(paths, footers, strict=True)
    ]


def _urls(data: str, paths: Sequence[str]) -> list[str] | str:
    """Return the files' URLs; the directory's if its ``key=value`` parts hold columns."""
    folder = Path(data).absolute()
    if any(Path(path).parent != folder for path in paths):
        return folder.as_uri()
    return [Path(path).as_uri() for path in paths]


def _write_mds(files: Sequence[tuple[str, list[int]]], folder: str) -> None:
    """Write Parquet files as MDS shards.

    Raises:
        CannotCompareError: A column's type cannot be stored.
    """
    from pyarrow import parquet

    from petastorm_bridge.mds.dataset import commit_dataset
    from petastorm_bridge.mds.writer import ShardWriter

    os.makedirs(folder)
    schema = parquet.read_schema(files[0][0])
    try:
        writer = ShardWriter(schema, folder)
        for path, _ in files:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    writer.write(batch.cast(schema) if hasattr(batch, "cast") else batch)
        commit_dataset(folder, schema, writer.finish())
    except (TypeError, ValueError) as error:
        raise CannotCompareError(
            f"streaming: the data cannot be written as MDS: {error}"
        ) from error


def _describe_data(runner: _Runner) -> str:
    rows = sum(sum(of_file) for _, of_file in runner.files)
    groups = sum(len(of_file) for _, of_file in runner.files)
    count = len(runner.files)
    return f"{runner.request.label or runner.request.data}: {rows:,} rows in {count} file(s), {groups} row group(s)"


def _describe_loader(runner: _Runner) -> str:
    request = runner.request
    options = {**request.options}
    if request.transform:
        options["transform"] = request.transform
    names = {"torch": "DataLoader", "batched": "BatchedDataLoader", "tf": "tf.data.Dataset"}
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"{names[request.loader]}, batch_size={request.batch_size}{given}"


def _describe_attempts(attempts: _Attempts, expected: int | None) -> str:
    if not attempts.rows:
        return "none that left a recording"
    counts = ", ".join(f"{rows:,}" for rows in attempts.rows)
    text = f"{len(attempts.rows)}, with {counts} rows"
    if expected is not None:
        lost = sum(rows < expected for rows in attempts.rows)
        text += f" of {expected:,}"
        text += f"; {lost} of them incomplete (no-lost-rows)" if lost else ""
    return text
