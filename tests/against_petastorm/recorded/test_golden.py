"""The bridge gives what was recorded from the real Petastorm, also where that cannot be installed.

Where it can, it is held to the recordings too; `--parity-record` makes them.
"""

from pathlib import Path

import pytest
from golden_scenarios import (
    SCENARIOS,
    is_shuffled,
    not_in_streaming,
    open_loader,
    open_streaming,
    rows_of,
    write,
)

pytestmark = [
    # What the bridge says of nulls, and what Petastorm says of strings, in TensorFlow.
    pytest.mark.filterwarnings("ignore:Column .* holds nulls"),
    pytest.mark.filterwarnings("ignore:Tensorflow will convert all unicode strings"),
]

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
ATTEMPTS = 10


def directory(scenario):
    return scenario.name.replace(" ", "-")


def recorded(parity, package, scenario, urls):
    """Record a scenario; Petastorm, which loses rows now and then, until all are there."""
    from petastorm_bridge.parity._recordings.recording import open_recording

    if scenario.loader == "tf":
        pytest.importorskip("tensorflow", reason="the loader is TensorFlow's")
    for _ in range(ATTEMPTS):
        folder = parity.record(
            lambda: open_loader(package, scenario, urls), package, overwrite=True
        )
        if package != "petastorm" or open_recording(folder).rows == rows_of(scenario):
            return folder
    pytest.fail(f"Petastorm lost rows in {ATTEMPTS} runs")


marked = [
    pytest.param(s, id=s.name, marks=[pytest.mark.slow] if s.loader == "tf" else [])
    for s in SCENARIOS
]


@pytest.mark.smoke
@pytest.mark.parametrize("scenario", marked)
def test_the_bridge(parity, scenario, tmp_path):
    if parity.recording:
        pytest.skip("the recordings are made from the original")
    found = recorded(parity, "petastorm_bridge", scenario, write(scenario.table, tmp_path))
    parity.assert_same(GOLDEN / directory(scenario), found, containers="exact", **scenario.rules)


@pytest.mark.parametrize("scenario", marked)
def test_the_original(parity, scenario, tmp_path):
    pytest.importorskip("petastorm", reason="the recordings stand for it where it is missing")
    found = recorded(parity, "petastorm", scenario, write(scenario.table, tmp_path))
    if parity.recording:
        import shutil

        shutil.rmtree(GOLDEN / directory(scenario), ignore_errors=True)
        shutil.copytree(found, GOLDEN / directory(scenario))
    parity.assert_same(GOLDEN / directory(scenario), found, containers="exact", **scenario.rules)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize(
    "scenario", [s for s in SCENARIOS if not not_in_streaming(s)], ids=lambda s: s.name
)
def test_native_streaming(parity, scenario, tmp_path):
    """Plain streaming on the bridge's files, which repeats rows to fill ranks."""
    pytest.importorskip("streaming", reason="is what is compared")
    if parity.recording:
        pytest.skip("the recordings are made from the original")
    found = parity.record(lambda: open_streaming(scenario, tmp_path), "streaming")
    order = {"order": "shuffled"} if is_shuffled(scenario) else {}
    parity.assert_same(
        GOLDEN / directory(scenario),
        found,
        **{**scenario.rules, **order, "allow": ["streaming-padding"]},
    )


def test_what_streaming_lacks_has_a_reason():
    compared = [s.name for s in SCENARIOS if not not_in_streaming(s)]
    assert len(compared) >= 8
    assert {"numbers torch", "arrays batched", "seeded rows", "shuffle buffer"} <= set(compared)


def test_no_recording_is_stale():
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(map(directory, SCENARIOS))


def test_recordings_are_the_original_s_and_small():
    from petastorm_bridge.parity._recordings.recording import open_recording

    for path in GOLDEN.iterdir():
        manifest = open_recording(path).manifest
        assert manifest["source"].startswith(("petastorm.", "tensorflow."))
        assert manifest["versions"]["petastorm"] == "0.13.1"
    assert sum(file.stat().st_size for file in GOLDEN.rglob("*")) < 500_000
