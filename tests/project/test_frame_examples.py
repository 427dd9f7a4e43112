"""The programs around Petastorm's own datasets see every row, with its values, and learn."""

import importlib
import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import warm

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EPOCHS = 10

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def frames():
    """The frames as they are made, by id."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        data = importlib.import_module("frame_data")
    finally:
        sys.path.remove(str(EXAMPLES))
    return [data.frame(i) for i in range(data.COUNT)]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The dataset that the first of the programs writes."""
    folder = tmp_path_factory.mktemp("frames")
    seen, printed = run(EXAMPLES / "write_frames.py", folder, f"file://{folder}/dataset")
    assert seen == {}
    assert "240 frames" in printed
    return f"file://{folder}/dataset"


def run(script, folder, *arguments):
    """What each part of a program reports, and what it prints."""
    report = folder / "seen"
    report.unlink(missing_ok=True)
    scripts = str(Path(sys.executable).parent)  # of the command petastorm-bridge
    done = warm.run(
        [sys.executable, str(script), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,
        env={
            **os.environ,
            "SEEN_ROWS": str(report),
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
    )
    # Petastorm's threads may abort the interpreter after the last line (exit code -6 or 134).
    assert done.returncode in {0, -6, 134}, done.stdout + done.stderr[-5000:]
    lines = report.read_text().splitlines() if report.exists() else []
    return dict(map(json.loads, lines)), done.stdout


def assert_accurate(printed):
    (accuracy,) = re.findall(r"accuracy ([\d.]+)", printed)
    assert float(accuracy) > 0.9


def assert_epochs(seen, ids):
    """All of these frames are there as often as there are epochs, in no order that the files have."""
    assert sorted(seen["frame_id"]) == sorted(ids * EPOCHS)
    assert seen["frame_id"] != ids * EPOCHS


def assert_features(seen, frames):
    """The images are those of their frames, decoded and scaled, and so is the nearest point."""
    chosen = [frames[i] for i in seen["frame_id"]]
    nearest = [np.linalg.norm(frame["points"], axis=1).min() for frame in chosen]
    brightness = [frame["image"].mean() / 255 for frame in chosen]
    assert np.allclose(seen["nearest"], nearest, rtol=1e-6, atol=0)
    assert np.allclose(seen["image"], brightness, rtol=1e-6, atol=0)


@pytest.mark.modern
def test_torch(url, frames, tmp_path):
    seen, printed = run(EXAMPLES / "train_frames_torch.py", tmp_path, url)
    assert_epochs(seen["trained"], [i for i in range(len(frames)) if i % 5])
    # A single epoch of few row groups may come in the order of the files by chance.
    assert sorted(seen["held out"]["frame_id"]) == list(range(0, len(frames), 5))
    assert_features(seen["trained"], frames)
    assert_accurate(printed)


@pytest.mark.modern
@pytest.mark.slow
def test_tensorflow(url, frames, tmp_path):
    seen, printed = run(EXAMPLES / "train_frames_tensorflow.py", tmp_path, url)
    trained = seen["trained"]
    assert_epochs(trained, list(range(len(frames))))
    chosen = [frames[i] for i in trained["frame_id"]]
    assert trained["image"] == [int(frame["image"].sum()) for frame in chosen]
    assert trained["time"] == [round(frame["time"].timestamp() * 1e6) for frame in chosen]
    assert_accurate(printed)


def pairs_of(frames):
    """What the program of sequences has to see: neighbours of one drive of 30 frames."""
    ids = [i for i in range(len(frames)) if i % 30]
    return {
        "frame_id": ids,
        "before": [i - 1 for i in ids],
        "faster": [float(frames[i]["speed"] - frames[i - 1]["speed"]) for i in ids],
        "image": [int(frames[i]["image"].sum()) for i in ids],
    }


def in_order(seen):
    """Columns sorted by frame: Spark names its files, and with them the order of row groups."""
    order = np.argsort(seen["frame_id"], kind="stable")
    return {name: [values[i] for i in order] for name, values in seen.items()}


@pytest.mark.modern
def test_sequences(url, frames, tmp_path):
    seen, _ = run(EXAMPLES / "read_frame_sequences.py", tmp_path, url)
    assert in_order(seen["pairs"]) == pairs_of(frames)


@pytest.mark.skipif(find_spec("petastorm") is None, reason="the original needs Petastorm itself")
def test_sequences_with_petastorms_imports(url, frames, tmp_path):
    for name in ("read_frame_sequences.py", "frame_data.py"):
        source = (EXAMPLES / name).read_text("utf-8")
        assert "petastorm_bridge" in source
        (tmp_path / name).write_text(source.replace("petastorm_bridge", "petastorm"), "utf-8")
    seen, _ = run(tmp_path / "read_frame_sequences.py", tmp_path, url)
    assert in_order(seen["pairs"]) == pairs_of(frames)


@pytest.mark.modern
def test_converting_and_training_with_streaming_alone(url, frames, tmp_path):
    seen, printed = run(EXAMPLES / "convert_frames.py", tmp_path, url, str(tmp_path / "mds"))
    assert "Checked: every value compared with the source." in printed
    assert_epochs(seen["trained"], list(range(len(frames))))
    assert_features(seen["trained"], frames)
    assert_accurate(printed)
    index = json.loads((tmp_path / "mds" / "index.json").read_text("utf-8"))
    shard = index["shards"][0]
    encodings = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
    assert encodings["image"] == "png"
    assert encodings["points"] == "ndarray:float32"
