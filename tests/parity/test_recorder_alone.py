"""The recorder's file alone, beside an old Python that has only NumPy and pyarrow."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from petastorm_bridge.parity import compare, recorder
from petastorm_bridge.parity._recordings.recording import open_recording

SOURCE = Path(recorder.__file__)
ROOT = Path(__file__).parent.parent.parent
OLD = ("3.8", "3.9", "3.10")

LOADERS = """
import numpy as np


def small():
    text = np.array(["a", None, "é"] * 4, object)
    lists = np.empty(12, object)
    lists[:] = [np.arange(i % 3) for i in range(12)]
    for start in range(0, 12, 5):
        ids = np.arange(start, min(start + 5, 12))
        yield {
            "id": ids,
            "x": ids / 3,
            "image": np.outer(ids, [1, 2]).astype("uint8"),
            "text": text[ids],
            "list": lists[ids],
            "when": np.datetime64("2020-01-01") + ids,
        }


def broken():
    yield from small()
    raise OSError("the disk is gone")
"""


def test_it_is_written_for_python_3_8():
    for name in ("recorder.py", "_running/recording_program.py"):
        tree = ast.parse((SOURCE.parent / name).read_text("utf-8"), feature_version=(3, 8))
        imported = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, "it imports a neighbour"
                imported.add(node.module.partition(".")[0])
        others = imported - sys.stdlib_module_names
        allowed = {"recorder.py": {"numpy", "pyarrow"}}
        assert others == allowed.get(name, {"recorder", "streaming", "tensorflow"})


def uv():
    """The command line of uv: on the path, or what `make setup` installed."""
    found = shutil.which("uv")
    own = ROOT / ".bootstrap" / "bin" / "python"
    command = [found] if found else [str(own), "-m", "uv"]
    try:
        subprocess.run([*command, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return command


def old_python(command):
    """The oldest Python on this machine from 3.8 on, else the present one."""
    for version in OLD:
        options = ["--no-python-downloads", "--no-project", "--offline"]
        found = subprocess.run(
            [*command, "python", "find", *options, version],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode == 0:
            return found.stdout.strip()
    return sys.executable


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """An environment with NumPy and pyarrow only, and a directory with the recorder's copy."""
    folder = tmp_path_factory.mktemp("old")
    command = uv()
    if command is None:
        pytest.skip("uv, which makes the environment, is not installed")
    environment = folder / "environment"
    python = environment / "bin" / "python"
    subprocess.run(
        [*command, "venv", "--quiet", "--python", old_python(command), str(environment)], check=True
    )
    subprocess.run(
        [*command, "pip", "install", "--quiet", "--python", str(python), "numpy", "pyarrow"],
        check=True,
    )
    shutil.copy(SOURCE, folder / "recorder.py")
    (folder / "loaders.py").write_text(LOADERS, "utf-8")
    return python, folder


def run(old, *arguments):
    python, folder = old
    return subprocess.run(
        [str(python), "-I", "-c", _START, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


# -I keeps the environment's variables and the user's packages out.
_START = """
import runpy, sys
sys.argv[0] = "recorder.py"
sys.path.insert(0, ".")
runpy.run_path("recorder.py", run_name="__main__")
"""


@pytest.mark.slow
def test_it_records_there_what_is_compared_here(old, tmp_path, monkeypatch):
    done = run(old, "loaders:small", "--out", str(tmp_path / "golden"))
    assert done.returncode == 0, done.stderr
    assert "12 rows in 3 batches, 6 columns: id int64" in done.stdout
    versions = open_recording(tmp_path / "golden").manifest["versions"]
    assert "petastorm-bridge" not in versions
    monkeypatch.syspath_prepend(old[1])
    import loaders

    result = compare(tmp_path / "golden", loaders.small)
    assert result.same, result.first_failure


@pytest.mark.slow
def test_it_says_what_is_wrong(old, tmp_path):
    for function, message in (
        ("loaders", "not of the form module:function"),
        ("nothing:small", "no module 'nothing'"),
        ("loaders:nothing", "has no 'nothing'"),
        ("loaders:broken", "the disk is gone"),
    ):
        done = run(old, function, "--out", str(tmp_path / "golden"))
        assert done.returncode == 2
        assert message in done.stderr
        assert not (tmp_path / "golden").exists()
