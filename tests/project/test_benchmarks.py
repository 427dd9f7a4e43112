"""The benchmarks run, race what they say they race, and judge correctly. Speed is not tested."""

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY))

from benchmarks import (  # noqa: E402 - no package, run from the root
    _codemod,
    _competitors,
    _far_data,
    _far_reader,
    _growth,
    _materialise,
    _measure,
    _races,
    _report,
    _targets,
    far,
    run,
)
from benchmarks._command import chosen_groups, far_places  # noqa: E402
from benchmarks._settings import FULL, GROUPS, QUICK, RESULTS  # noqa: E402

from petastorm_bridge.mds.access import file_system_type  # noqa: E402

HAS_PETASTORM = importlib.util.find_spec("petastorm") is not None
PACKAGES = {"petastorm", "bridge"} if HAS_PETASTORM else {"bridge"}
# These start processes of their own for each figure, one of them in an environment of its own, or race like one that is
# run; `make test-release` runs them too.
LONG = {
    "torch-shuffled",
    "torch-scalars",
    "native-shuffled",
    "growth-codemod",
    "competitors",
    "first-batch",
    "memory",
    "rows-jpeg",
    "rows-png",
    "rows-memory",
    "opening-time",
    "opening-memory",
    "growth-time",
    "growth-memory",
    "materialise-cluster",
    "first-task",
    *far.GROUPS,
}
SHARE = [group for group in GROUPS if group not in LONG]
RUN = list(GROUPS) if os.environ.get("PETASTORM_BRIDGE_BENCHMARKS") == "all" else SHARE


class Loader:
    """Hands out given ids in batches of two, a different list each time it is opened."""

    def __init__(self, epochs, log=None, name=""):
        self.epochs = iter(epochs)
        self.log = [] if log is None else log
        self.name = name

    def open(self):
        self.log.append(self.name)
        ids = next(self.epochs)
        return nullcontext(np.array(ids[start : start + 2]) for start in range(0, len(ids), 2))


def contestant(epochs, *, rows=3, loses_rows=False, log=None, name="one"):
    loader = Loader(epochs, log, name)
    return _measure.loader_contestant(
        name, rows, loader.open, lambda batch: batch, loses_rows=loses_rows
    )


@pytest.mark.slow
def test_contestants_take_turns():
    log = []
    both = [contestant([[0, 1, 2]] * 8, log=log, name=name) for name in "AB"]
    measurements = _measure.race("group", "rows/s", both, rounds=6, warm_ups=2)
    assert log[:4] == ["A", "B"] * 2
    rounds = [tuple(log[start : start + 2]) for start in range(4, 16, 2)]
    assert set(rounds) == {("A", "B"), ("B", "A")}
    assert [(one.name, one.rows, len(one.samples)) for one in measurements] == [
        ("A", 3, 6),
        ("B", 3, 6),
    ]
    assert all(sample > 0 for one in measurements for sample in one.samples)


def test_incomplete_epochs_are_repeated_and_counted():
    epochs = [[], [2, 1, 0], [0, 1], [0], [0, 1, 2]]
    (measurement,) = _measure.race("group", "rows/s", [contestant(epochs, loses_rows=True)], 1)
    assert measurement.repeated == 3
    assert len(measurement.samples) == 1


@pytest.mark.parametrize("epochs", [[[0, 1]], [[]], [[0, 1, 1]], [[0, 1, 2], [0, 1]]])
def test_who_must_not_lose_rows_ends_the_race(epochs):
    with pytest.raises(_measure.IncompleteEpochError, match="one: "):
        _measure.race("group", "rows/s", [contestant(epochs)], 1)


def test_who_always_loses_rows_ends_the_race():
    with pytest.raises(_measure.IncompleteEpochError, match="no complete epoch in 50"):
        _measure.race("group", "rows/s", [contestant([[0]] * 99, loses_rows=True)], 1)


def test_a_measurement_survives_json():
    measured = _measure.Measurement("images", "bridge", "images/s", 5, (2.0, 1.0, 4.0), 1, "note")
    record = json.loads(json.dumps(measured.as_json()))
    assert (record["median"], record["min"], record["max"]) == (2.0, 1.0, 4.0)
    assert _measure.Measurement.from_json(record) == measured


@pytest.mark.parametrize(
    ("ours", "theirs", "times"),
    [
        ((8.0, 16.0, 4.0), (4.0, 8.0, 2.0), 2.0),  # a machine that changes
        ((8.0, 8.0, 8.0), (4.0, 8.0, 2.0), 2.0),
        ((8.0,), (4.0, 8.0, 8.0), 1.0),
    ],
)
def test_who_ran_in_one_round_is_compared(ours, theirs, times):
    one, other = (_measure.Measurement("group", "", "", 1, each) for each in (ours, theirs))
    assert _measure.ratio(one, other) == times


def test_far_readers_that_are_compared_run_in_one_heat():
    heats = sorted({*map(far._heat, far._contestants(has_store=True))})
    assert len(heats) == 5
    assert heats[1] == far._heat(("columnar", far.DISK))  # between the places
    for place in far.FIRST:
        in_one = [far._heat((reader, place)) for reader in ("plain", "in order", "columnar")]
        assert len({*in_one}) == 1


def test_targets_compare_contestants_the_right_way_round():
    def measured(group, name, *samples):
        return _measure.Measurement(group, name, "", 1, samples)

    measurements = [
        measured("torch-sequential", "bridge DataLoader", 1.0, 400.0, 500.0),
        measured("torch-sequential", "petastorm DataLoader", 4.0, 4.0, 4.0),
        measured("torch-sequential", "petastorm BatchedDataLoader", 50.0, 50.0, 50.0),
        measured("memory", "bridge DataLoader", 10.0),
        measured("memory", "petastorm DataLoader", 30.0),
        measured("memory", "bridge DataLoader, larger table", 20.0),
    ]
    verdicts = {
        (verdict.target.ours, verdict.target.theirs): (verdict.ratio, verdict.met)
        for verdict in _targets.judge(measurements, FULL)
        if verdict.target.group in {"torch-sequential", "memory"}
    }
    ours = "bridge DataLoader"
    assert verdicts[ours, "petastorm DataLoader"] == (3.0, True)  # memory, the later of the two
    assert verdicts[ours, "petastorm BatchedDataLoader"] == (8.0, False)
    assert verdicts[ours, "native StreamingDataLoader, 0 workers"] == (None, None)
    assert verdicts["bridge DataLoader, larger table", ours] == (0.5, False)
    assert not {verdict.target.group for verdict in _targets.judge([], FULL)}


def test_the_image_transform_gives_the_declared_arrays():
    import io

    import pandas as pd

    buffer = io.BytesIO()
    Image.new("RGB", (256, 256), (255, 0, 0)).save(buffer, "JPEG")
    frame = _races._decode_images(pd.DataFrame({"id": [7], "content": [buffer.getvalue()]}))
    assert list(frame.columns) == ["id", "image"]
    (image,) = frame["image"]
    assert image.shape == (3, 224, 224)
    assert image.dtype == np.float32
    assert image[0].min() > 0.9
    assert image[1].max() < 0.1


def test_readers_of_far_places_have_their_rows_checked():
    job = _far_reader.Job("in order", "", "", rows=250, batch_size=50, epochs=1)
    ids = np.random.default_rng(0).permutation(250)
    begins = (ids % _far_reader.FIRST_VALUES).astype("float32")
    _far_reader._check(job, [(ids[:70], begins[:70]), (ids[70:], begins[70:])])
    for wrong in (
        [(ids[1:], begins[1:])],
        [(np.append(ids, 7), np.append(begins, 7))],
        [(ids, np.roll(begins, 1))],
        [(None, begins[1:])],
    ):
        with pytest.raises(_measure.IncompleteEpochError, match="in order"):
            _far_reader._check(job, wrong)
    _far_reader._check(job, [(None, begins)])


@pytest.mark.parametrize("rows", [64, 60])
def test_one_reader_for_all_epochs_has_the_rows_of_each(tmp_path, rows):
    """Also where an epoch ends in the middle of a batch."""
    sizes = replace(QUICK.far, rows=rows, shards=3, batch_size=16)
    _far_data.write_datasets(tmp_path, sizes, [_far_reader.MDS])
    job = _far_reader.Job("in order, one reader", str(tmp_path), "", rows, 16, epochs=3)
    assert len(_far_reader.measure(job).seconds) == 3


def test_local_files_beside_far_ones_come_from_the_disk(tmp_path):
    path = tmp_path / "mds" / "shard.00000.mds"
    path.parent.mkdir()
    path.write_bytes(bytes(1 << 20))

    def is_in_memory():
        with path.open("rb") as file:
            try:
                return os.preadv(file.fileno(), [bytearray(4096)], 0, os.RWF_NOWAIT) == 4096
            except BlockingIOError:
                return False

    if file_system_type(os.stat(path).st_dev) == "tmpfs":
        pytest.skip("files of a tmpfs are always in memory")
    assert is_in_memory()
    far._drop_from_memory(tmp_path)
    assert not is_in_memory()


def test_the_beginning_of_names_stands_for_all_that_begin_so():
    assert chosen_groups("far,memory") == [*far.GROUPS, "memory"]
    assert chosen_groups("") == list(GROUPS)


def test_far_places_can_be_others():
    assert far_places("", FULL.far) == FULL.far
    found = far_places("shards=40, mount_seconds=5e-3", FULL.far)
    assert found == replace(FULL.far, shards=40, mount_seconds=0.005)
    for wrong in (
        "shard=4",
        "shards",
        "shards=x",
        "shards=0",
        "dtype=1",
        "mount_seconds=nan",
        "mount_seconds=inf",
    ):
        with pytest.raises(typer.BadParameter, match=wrong):
            far_places(f"rows=100,{wrong}", FULL.far)
    with pytest.raises(typer.BadParameter, match="40 shards of 39 rows"):
        far_places("shards=40,rows=39", FULL.far)
    with pytest.raises(typer.BadParameter, match="--far is for some of: far-mount"):
        run.run(only="memory", places="shards=4")
    with pytest.raises(typer.BadParameter, match="leave out --far"):
        run.run(only="far-mount", record=True, places="shards=40")


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """What ``--quick`` reports of the races that are run."""
    directory = tmp_path_factory.mktemp("benchmarks")
    figures = directory / "figures.json"
    options = ["--json", str(figures)]
    options += [] if list(GROUPS) == RUN else ["--only", ",".join(RUN)]
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", *options, "--directory", directory],
        cwd=REPOSITORY,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    # Petastorm may abort the interpreter at exit, so the file is what counts.
    assert figures.exists(), process.stderr
    report = json.loads(figures.read_text(encoding="utf-8"))
    return report, process.stdout, directory


@pytest.mark.timeout(1_500)  # whoever comes first waits for the run
@pytest.mark.slow
@pytest.mark.spark
def test_a_quick_run_races_everybody(quick_run):
    report, output, directory = quick_run
    names = {}
    for one in report["measurements"]:
        names.setdefault(one["group"], set()).add(one["name"])
    without = {group for group in far.GROUPS if far.why_skipped(group)}
    assert set(names) | without == set(RUN) | without
    assert all(group in output for group in without & set(RUN))
    native = {f"native StreamingDataLoader, {workers} workers" for workers in (0, 2)}
    loaders = {
        f"{package} {loader}"
        for package in PACKAGES
        for loader in ("DataLoader", "BatchedDataLoader")
    }
    for group in {"torch-sequential", "torch-shuffled", "torch-scalars"} & set(RUN):
        assert names[group] == loaders | native
    assert loaders < names["direct-parquet"]
    assert len(names["direct-parquet"]) == len(loaders) + 2
    assert names["tensorflow"] == {
        f"{package}, batch {size}" for package in PACKAGES for size in (256, 32)
    }
    assert names["images"] == {
        f"{package}, {workers}"
        for package in PACKAGES
        for workers in ("1 worker", "2 workers", "4 workers")
    } | {"bridge, 2 workers, small frames", "the bare function, 2 threads"}
    for group in {"rows-arrays", "rows-jpeg", "rows-png"} & set(RUN):
        readers = {name for name in names[group] if "make_reader" in name}
        assert {name.partition(" ")[0] for name in readers} == PACKAGES
        assert {name.partition(",")[0] for name in names[group] - readers} == {"converted"}
        assert len(names[group]) == 1 + 2 + 3 * HAS_PETASTORM
    assert len(names["materialise"]) == len(PACKAGES) + 3
    if set(RUN) >= LONG:
        assert names["competitors"] > {
            *_competitors.OTHERS,
            _competitors.CONVERTED,
            "bridge DataLoader",
        }
        assert names["materialise-cluster"] == names["materialise"]
        assert len(names["first-task"] - names["materialise"]) == 1
        for group in set(far.FIRST.values()) - without:
            assert {far.CEILING, far.ORDERED, far.SHUFFLED, far.FAST} <= names[group]
        assert names["opening-time"] == names["opening-memory"]
        assert len(names["opening-time"]) == 3 * len(QUICK.openings)
        assert names["growth-time"] == names["growth-memory"]
        assert len(names["growth-time"]) == 2 * (7 * len(PACKAGES) + 2)
    assert "Targets" in output
    assert "…" not in output  # nothing is cut short
    assert {path.name for path in directory.iterdir()} == {"figures.json"}


def _growth_rows():
    each = (QUICK.growth_rows, QUICK.growth_large_rows)
    rows = {rows * n for rows in each for n in (1, _growth.GROWTH)}
    files = {QUICK.growth_files * _growth._FILE_ROWS * n for n in (1, _growth.GROWTH)}
    return rows | files | {_growth._BATCH, _growth._WIDE_ROWS}


@pytest.mark.timeout(1_500)  # whoever comes first waits for the run
@pytest.mark.slow
@pytest.mark.spark
def test_a_quick_run_reports_rows_and_samples(quick_run):
    report, *_ = quick_run
    sizes = {
        "images": {QUICK.images},
        "codemod": {QUICK.codemod_files},
        "growth-codemod": {QUICK.codemod_scripts * n for n in (1, _codemod.GROWTH)},
        "first-task": {_materialise.FIRST_TASK_ROWS},
        **{group: {QUICK.far.rows} for group in far.GROUPS},
        far.LATER_LARGE: {far._GROWTH * QUICK.far.rows},
        far.WRITING_LARGE: {far._GROWTH * QUICK.far.rows},
        far.NOTEBOOK: {QUICK.notebook_images},
        "rows-arrays": {QUICK.stored_rows},
        "rows-jpeg": {QUICK.stored_images},
        "rows-png": {QUICK.stored_images},
        "rows-memory": {QUICK.stored_rows, QUICK.stored_rows * QUICK.memory_growth},
        "memory": {QUICK.rows, QUICK.rows * QUICK.memory_growth, QUICK.native_rows},
        "opening-time": {rows for _, rows in QUICK.openings},
        "opening-memory": {rows for _, rows in QUICK.openings},
        **dict.fromkeys(("growth-time", "growth-memory"), _growth_rows()),
    }
    for one in report["measurements"]:
        assert one["rows"] in sizes.get(one["group"], {QUICK.rows, QUICK.native_rows})
        assert len(one["samples"]) == QUICK.rounds == QUICK.slow_rounds == QUICK.far_rounds
        assert one["min"] <= one["median"] <= one["max"]
    assert report["settings"]["rows"] == QUICK.rows
    assert report["environment"]["versions"]["torch"]
    measured = [target for target in report["targets"] if target["ratio"] is not None]
    assert all(target["met"] == (target["ratio"] >= target["at_least"]) for target in measured)
    skipped = {group for group in far.GROUPS if far.why_skipped(group)}
    everybody = HAS_PETASTORM and not skipped & set(RUN)
    assert (len(measured) == len(report["targets"])) == everybody


@pytest.mark.slow
def test_an_unknown_race_is_refused():
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--only", "torch-sequental"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert "choose from" in process.stderr


def test_a_race_that_is_skipped_stays_as_recorded(tmp_path, monkeypatch):
    recorded = json.loads(RESULTS.read_text())
    (tmp_path / "results.json").write_bytes(RESULTS.read_bytes())
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(_report, "environment", lambda: recorded["environment"])
    monkeypatch.setattr(run, "far", lambda name, settings: [])
    monkeypatch.setattr(run, "why_skipped", lambda group: "no mount: no /dev/fuse")
    monkeypatch.setattr(run, "silence", lambda: None)
    run.run(only="far-mount", record=True)
    after = json.loads((tmp_path / "results.json").read_text())
    assert len(after["measurements"]) == len(recorded["measurements"])
    assert "far-mount" in {one["group"] for one in after["measurements"]}


@pytest.mark.slow
def test_one_race_is_not_recorded_beside_others_of_other_settings():
    recorded = RESULTS.read_bytes()
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", "--quick", "--only", "codemod", "--record"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 2
    assert "other versions or settings" in " ".join(process.stderr.replace("│", "").split())
    assert RESULTS.read_bytes() == recorded
