"""What is built holds both packages and nothing else, and imports on the light base alone."""

import email
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {"petastorm_bridge": ROOT / "bridge", "petastorm_codemods": ROOT / "codemods"}
ENGINES = ("pandas", "petastorm", "pyspark", "streaming", "tensorflow", "torch")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (path,) = folder.iterdir()
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def dist_info(wheel):
    (folder,) = wheel.glob("*.dist-info")
    return folder


def test_the_wheel_holds_the_two_packages(wheel, dist_info):
    assert {entry.name for entry in wheel.iterdir()} == {*SOURCES, dist_info.name}
    for package, root in SOURCES.items():
        wanted = {file.relative_to(root) for file in (root / package).rglob("*.py")}
        wanted.add(Path(package, "py.typed"))
        held = {file.relative_to(wheel) for file in (wheel / package).rglob("*") if file.is_file()}
        assert wanted <= held
        assert {file.suffix for file in held} <= {".py", ".typed", ".json"}


def test_the_metadata_keeps_engines_out_of_the_base(dist_info):
    metadata = email.message_from_string((dist_info / "METADATA").read_text())
    base = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert {line.split(">")[0] for line in base} == {
        "libcst",
        "numpy",
        "pyarrow",
        "rich",
        "tqdm",
        "typer",
    }
    assert set(metadata.get_all("Provides-Extra")) == {"all", "spark", "streaming", "tensorflow"}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert (dist_info / "licenses" / "LICENSE").is_file()
    entry_points = (dist_info / "entry_points.txt").read_text()
    assert "petastorm-bridge = petastorm_bridge.cli:main" in entry_points


@pytest.mark.parametrize(
    "module", ["petastorm_bridge", "petastorm_bridge.cli", "petastorm_codemods"]
)
def test_importing_loads_no_engine(wheel, module):
    code = (
        f"import sys, {module} as module\n"
        f"print(module.__file__)\n"
        f"print([name for name in {ENGINES} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        env={"PYTHONPATH": str(wheel)},
    )
    file, loaded = done.stdout.splitlines()
    assert file.startswith(str(wheel))
    assert loaded == "[]"
