"""What is built holds both packages and nothing else, and imports on the light base alone."""

import email
import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"petastorm_bridge": ROOT / "bridge", "petastorm_codemods": ROOT / "codemods"}
INSTALL = ("install", "-q", "--disable-pip-version-check")
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


@pytest.fixture(scope="module")
def readme():
    """What makes the README of the package page."""
    path = ROOT / "tools" / "package_readme.py"
    spec = importlib.util.spec_from_file_location("package_readme", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.package_readme


def test_the_package_page_has_no_link_that_leads_nowhere(dist_info, readme):
    metadata = email.message_from_string((dist_info / "METADATA").read_text("utf-8"))
    assert metadata["Description-Content-Type"] == "text/markdown"
    page = metadata.get_payload()
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL") or ())
    text = (ROOT / "README.md").read_text("utf-8")
    assert page.strip() == readme(text, urls.get("Source", "")).strip()
    links = re.findall(r"\]\(([^)]+)\)", text)
    for source, wanted in (("", 0), ("https://host.example/us/bridge/", len(links))):
        made = re.findall(r"\]\(([^)]+)\)", readme(text, source))
        relative = [link for link in made if not re.match(r"https?://|#", link)]
        assert not relative
        assert len(made) == wanted or not source
        if source:
            ours = [link.partition("/HEAD/")[2] for link in made if "/HEAD/" in link]
            assert len(ours) > 10
            assert all((ROOT / link.partition("#")[0]).exists() for link in ours)
            assert "/raw/HEAD/migration_guide/images/four_bars.svg" in "".join(made)


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel(wheel, tmp_path):
    """What an index would hold is complete: its tests, its guide, and all that building needs."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, folder=ROOT)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (entry for entry in tmp_path.iterdir() if entry.is_dir())
    for name in ("CHANGELOG.md", "CITATION.cff", "LICENSE", "SECURITY.md", "migration_guide/README.md",
                 "tests/conftest.py", "tools/package_readme.py"):  # fmt: skip
        assert (folder / name).is_file(), name
    assert not (folder / ".ci").exists()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, folder=folder)
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(again) as archive:
        names = {name for name in archive.namelist() if "dist-info" not in name}
    held = {str(file.relative_to(wheel)) for file in wheel.rglob("*") if file.is_file()}
    assert names == {name for name in held if "dist-info" not in name}


def test_versions_and_texts_agree(dist_info):
    metadata = email.message_from_string((dist_info / "METADATA").read_text("utf-8"))
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {metadata['Version']}\n" in citation
    assert f"abstract: {metadata['Summary']}\n" in citation
    changes = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert changes[0] == "Unreleased" or changes[0].startswith(metadata["Version"])


@pytest.fixture(scope="module", params=["3.10", "3.13"])
def other(request, wheel, environment, tmp_path_factory):
    """Commands of a new environment with the base install, on a Python that has no version set: oldest and newest."""
    version = request.param
    python = environment.find_python((version,))
    if python == version:
        pytest.skip(f"there is no Python {version} on this machine")
    folder = tmp_path_factory.mktemp("other")
    run(python, "-m", "venv", folder)
    (file,) = wheel.parent.glob("*.whl")
    run(folder / "bin" / "pip", *INSTALL, file)
    return folder / "bin"


def run(*command, folder=ROOT.anchor):
    command = list(map(str, command))
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
    assert 'tomli>=2; python_version < "3.11"' in [line.replace("'", '"') for line in base]
    assert {line.split(">")[0] for line in base} == {
        "libcst",
        "numpy",
        "packaging",
        "pyarrow",
        "rich",
        "tomli",
        "tqdm",
        "typer",
    }
    extras = {"all", "delta", "iceberg", "images", "spark", "streaming", "tensorflow"}
    assert set(metadata.get_all("Provides-Extra")) == extras
    assert metadata["License-Expression"] == "Apache-2.0"
    assert (dist_info / "licenses" / "LICENSE").is_file()
    entry_points = (dist_info / "entry_points.txt").read_text()
    assert "petastorm-bridge = petastorm_bridge.__main__:main" in entry_points


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


@pytest.mark.slow
def test_other_pythons_read_tables_and_say_what_needs_pandas(other, tmp_path):
    (tmp_path / "read.py").write_text(
        "import sys, pyarrow as pa, pyarrow.parquet as pq, petastorm_bridge as bridge\n"
        "pq.write_table(pa.table({'id': range(10), 'word': ['a'] * 10}), 'table.parquet')\n"
        "spec = bridge.TransformSpec(lambda frame: frame) if 'transform' in sys.argv else None\n"
        "with bridge.make_batch_reader(sys.argv[1], num_epochs=2, transform_spec=spec) as reader:\n"
        "    try:\n"
        "        print(sum(batch[0].sum() for batch in reader))\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    command = (other / "python", "-W", "error", "read.py", (tmp_path / "table.parquet").as_uri())
    assert run(*command, folder=tmp_path) == "90\n"  # columns need none
    assert run(*command, "transform", folder=tmp_path).startswith(
        "pandas is not installed. Install it with: pip"
    )
    run(other / "pip", *INSTALL, "pandas")
    assert run(*command, "transform", folder=tmp_path) == "90\n"


@pytest.mark.slow
def test_other_pythons_rewrite_a_program(other, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        "from petastorm.spark import make_spark_converter\n"
        "conv = make_spark_converter(df)\n"
        "with conv.make_torch_dataloader(num_epochs=1) as loader:\n"
        "    print(loader)\n"
    )
    decided = (
        '[tool.petastorm-bridge]\nto = "streaming"\n'  # the standard library of 3.10 reads no TOML
    )
    (tmp_path / "pyproject.toml").write_text(decided)
    run(other / "petastorm-bridge", "codemod", "--write", ".", folder=tmp_path)
    assert program.read_text() == (
        "from petastorm_bridge.native import write_mds\n"
        "from streaming import StreamingDataLoader, StreamingDataset\n"
        "conv = write_mds(df)\n"
        "loader = StreamingDataLoader(\n"
        "    StreamingDataset(remote=conv.remote, local=conv.local, shuffle=True, batch_size=32),\n"
        "    batch_size=32,\n"
        ")\n"
        "print(loader)\n"
    )
