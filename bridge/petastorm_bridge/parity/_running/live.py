"""Run Petastorm, the bridge and native streaming over the same Parquet files, and compare all three.

Each runs in a process of its own and is judged by the recording that it leaves: Petastorm sometimes
aborts after its last row, and sometimes loses rows, so it is run again until its epoch is complete.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from petastorm_bridge.parity._comparing.compare import compare_recordings
from petastorm_bridge.parity._comparing.comparison import Progress
from petastorm_bridge.parity._comparing.rules import PADDING, Rules
from petastorm_bridge.parity._recordings.manifest import CannotCompareError
from petastorm_bridge.parity._recordings.recording import Recording
from petastorm_bridge.parity._result import Report
from petastorm_bridge.parity.recorder import counted

from .runner import BRIDGE, FILTERS, PETASTORM, STREAMING, Request, Runner

_MDS_ROWS = 4096  # written at a time


def run(
    request: Request,
    rules: Rules,
    folder: str,
    *,
    profile: bool,
    progress: Progress,
) -> Report:
    """Run what was asked for and compare each two.

    Args:
        request: What to run.
        rules: How to compare.
        folder: Temporary directory.
        profile: Gather histograms.
        progress: Is called with what is being done, and how many rows of how many are compared.

    Raises:
        CannotCompareError: The data or an option makes no sense.
    """
    data = _find_data(request.data, folder)
    runner = Runner(request, data, folder)
    if runner.shuffled:
        rules = dataclasses.replace(rules, order="shuffled")
    recordings: dict[str, Recording] = {}
    problems: list[str] = []
    unfit = _why_no_streaming(request)
    for package in (BRIDGE, STREAMING):
        if package not in request.only or (package == STREAMING and unfit):
            continue
        progress(package, 0, 0)
        try:
            if package == STREAMING:
                _write_mds(data, os.path.join(folder, "mds"))
            recordings[package] = runner.run(package)
        except CannotCompareError as error:
            problems.append(str(error))
    facts = [("data", _describe_data(runner)), ("loader", _describe_loader(runner))]
    if PETASTORM in request.only:
        expected = runner.expected_rows()
        if expected is None and BRIDGE in recordings:
            expected = recordings[BRIDGE].rows
        runs, problem = _run_petastorm(runner, expected, progress)
        facts.append(("petastorm's runs", _describe_runs(runs, expected)))
        if runs:
            recordings = {PETASTORM: max(runs, key=lambda run: run.rows), **recordings}
        elif problem:
            problems.append(problem)
    results = []
    for a, b in itertools.combinations(recordings, 2):
        allow = tuple(rules.allow)
        if STREAMING in {a, b} and PADDING not in allow:
            allow = (*allow, PADDING)  # what it does by design: reported, but no failure
        results.append(
            compare_recordings(
                recordings[a],
                recordings[b],
                dataclasses.replace(rules, allow=allow),
                labels=(a, b),
                profile=profile,
                progress=progress,
            )
        )
    if unfit and STREAMING in request.only:
        facts.append(("note", unfit))
    title = f"{_listed(recordings) if recordings else 'No loader ran'} over {request.data}"
    return Report(title, tuple(results), tuple(facts), tuple(problems))


def _find_data(data: str, folder: str) -> str:
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


def _write_mds(data: str, folder: str) -> None:
    """Write a Parquet directory as MDS shards, with the columns of its ``key=value`` parts.

    What Petastorm's ``materialize_dataset`` has encoded stays so, as in ``make_batch_reader``; that is
    why this is not `convert_dataset`.

    Raises:
        CannotCompareError: It cannot be read in whole, or a column's type cannot be stored.
    """
    import pyarrow as pa

    from petastorm_bridge._sources.parquet import ParquetSource
    from petastorm_bridge.mds.commit import commit_dataset
    from petastorm_bridge.mds.errors import DatasetError
    from petastorm_bridge.mds.types import plain_type
    from petastorm_bridge.mds.writer import ShardWriter

    os.makedirs(folder)
    try:
        with warnings.catch_warnings():
            # Columns that readers leave out are written, or refused by name.
            warnings.simplefilter("ignore")
            source = ParquetSource([os.path.abspath(data)], listed=False)
        types = {name: plain_type(kind) for name, kind in source.types_of(source.columns).items()}
        schema = pa.schema(list(types.items()))
        writer = ShardWriter(schema, folder)
        for row_group in range(len(source.row_counts)):
            for batch in source.batches(row_group, types, _MDS_ROWS):
                writer.write(batch)
        commit_dataset(folder, schema, writer.finish())
    except (DatasetError, TypeError, ValueError) as error:
        raise CannotCompareError(
            f"streaming: the data cannot be written as MDS: {error}"
        ) from error


def _listed(recordings: Mapping[str, Recording]) -> str:
    names = list(recordings)
    text = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return text[0].upper() + text[1:]


def _run_petastorm(
    runner: Runner, expected: int | None, progress: Progress
) -> tuple[list[Recording], str]:
    """Run Petastorm until it has all rows; gives what each run left, and why there were no more."""
    runs: list[Recording] = []
    for attempt in range(runner.request.attempts):
        progress(f"petastorm, run {attempt + 1}", 0, 0)
        try:
            runs.append(runner.run(PETASTORM, attempt))
        except CannotCompareError as error:
            return runs, str(error)
        if expected is None or runs[-1].rows >= expected:
            break
    return runs, ""


def _why_no_streaming(request: Request) -> str:
    """Say why native streaming is not run, where it has no counterpart of what was asked for."""
    reasons = [f"no {n}" for n in sorted((FILTERS | {"cur_shard"}) & request.options.keys())]
    reasons += ["no transform"] if request.transform else []
    reasons += ["no tf.data.Dataset"] if request.loader == "tf" else []
    return f"streaming was not run: it has {', '.join(reasons)} of its own" if reasons else ""


def _describe_data(runner: Runner) -> str:
    rows = sum(sum(of_file) for _, of_file in runner.files)
    groups = sum(len(of_file) for _, of_file in runner.files)
    count = len(runner.files)
    parts = counted(count, "file"), counted(groups, "row group")
    return f"{runner.request.data}: {counted(rows, 'row')} in {', '.join(parts)}"


def _describe_loader(runner: Runner) -> str:
    request = runner.request
    options = {**request.options}
    if request.transform:
        options["transform"] = request.transform
    names = {"torch": "DataLoader", "batched": "BatchedDataLoader", "tf": "tf.data.Dataset"}
    given = "".join(f", {name}={value!r}" for name, value in options.items())
    return f"{names[request.loader]}, batch_size={request.batch_size}{given}"


def _describe_runs(runs: list[Recording], expected: int | None) -> str:
    if not runs:
        return "none that left a recording"
    rows = [run.rows for run in runs]
    counts = ", ".join(f"{number:,}" for number in rows)
    text = f"{len(rows)}, with {counts} {'row' if rows == [1] else 'rows'}"
    if expected is not None:
        lost = sum(number < expected for number in rows)
        text += f" of {expected:,}"
        text += f"; {lost} of them incomplete (no-lost-rows)" if lost else ""
    return text
