"""No command runs what lies in the working directory, whatever it is called."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow

# What `python -m` and this package's `__init__` import before the package can say where to look; Python's own
# `-m` has them from the working directory, in every program.
_BEFORE_MAIN = """
    collections contextlib copy copyreg dataclasses enum errno functools importlib inspect io keyword
    operator os pickle pkgutil platform re reprlib runpy struct sre_compile sre_constants sre_parse token tokenize
    types typing warnings weakref zipimport zipfile threading
"""
_OTHERS = """
    petastorm pyarrow numpy pandas torch streaming tensorflow pyspark sitecustomize usercustomize conftest setup
    libcst typer click rich yaml tomli fsspec tqdm packaging matplotlib jinja2 ruff pytest attr dill
    psutil zstd filelock recorder recording_program helpers
"""
_LOADERS = """
import json
import numpy as np


def make():
    assert json.dumps([1]) == "[1]"
    return ({"x": np.arange(4) + i} for i in range(3))


def transform(spec_class):
    return spec_class(lambda frame: frame)
"""
_MARK = "import os\nopen(os.environ['RAN'] + '/' + __name__, 'w').close()\n"


def shadow(folder, names):
    for name in names:
        (folder / f"{name}.py").write_text(_MARK)
    for name in ("torch", "streaming"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(_MARK)


@pytest.fixture(params=["script", pytest.param("module", marks=pytest.mark.slow)])
def call(request, tmp_path):
    """Run a command in a directory full of modules that note that they were run; return exit code and output."""
    here, ran = tmp_path / "here", tmp_path / "ran"
    here.mkdir()
    ran.mkdir()
    names = {*sys.stdlib_module_names, *_OTHERS.split()} - set(sys.builtin_module_names)
    script = tmp_path / "bin" / "petastorm-bridge"
    script.parent.mkdir()
    script.write_text("from petastorm_bridge.cli import main\nmain()\n")
    command = [sys.executable, str(script)]
    if request.param == "module":
        names -= {*_BEFORE_MAIN.split(), *(name for name in names if name.startswith("_"))}
        command = [sys.executable, "-m", "petastorm_bridge"]
    shadow(here, names)
    (here / "loaders.py").write_text(_LOADERS)
    for number in range(14):
        (here / f"job{number}.py").write_text("from petastorm.spark import make_spark_converter\n")
    (here / "pyproject.toml").write_text("[tool.ruff]\nline-length = 80\n")
    data = tmp_path / "data"
    data.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"x": np.arange(20) + 20 * number}), data / f"{number}.parquet")
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONSAFEPATH"}}

    def run(*arguments):
        done = subprocess.run(
            [*command, *map(str, arguments)],
            cwd=here,
            env={**environment, "RAN": str(ran)},
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert sorted(path.name for path in ran.iterdir()) == [], said
        return done.returncode, said

    def only_installed():
        """What is nowhere else is taken from here once a function of a module here was named."""
        for name in names:
            if find_spec(name) is None:
                (here / f"{name}.py").unlink()

    run.data, run.ran, run.here, run.only_installed = data, ran, here, only_installed
    return run


@pytest.mark.modern
def test_commands_that_only_tell(call):
    for arguments in (["versions"], ["rule", "PM003"], ["difference", "values-have-a-limit"]):
        code, said = call(*arguments)
        assert code == 0, said
    code, said = call("doctor", ".")
    assert "petastorm" in said
    assert "cannot be imported" not in said


@pytest.mark.modern
@pytest.mark.parametrize("options", [["--jobs", "1"], ["-j", "2", "--write", "--report", "sarif"]])
def test_codemod(call, options):
    # One of them is worked on in a process of its own.
    deep = "from petastorm.spark import make_spark_converter\nx=" + "+(" * 3000 + "1" + ")" * 3000
    (call.here / "deep.py").write_text(deep)
    code, said = call("codemod", "--to", "bridge", *options, *call.here.glob("job*.py"), "deep.py")
    assert code in {0, 1}, said
    assert "make_spark_converter" in said
    if "--write" in options:
        assert "petastorm_bridge" in (call.here / "job3.py").read_text()


@pytest.mark.modern
@pytest.mark.slow
def test_convert(call):
    code, said = call("convert", call.data, "made", "--workers", "2", "--quiet")
    assert code == 0, said


@pytest.mark.modern
@pytest.mark.slow
def test_recording_and_comparing_what_is_named(call):
    call.only_installed()
    code, said = call("parity", "record", "loaders:make", "--out", "a")
    assert code == 0, said
    reports = ["--html", "r.html", "--junit", "r.xml", "--markdown", "r.md", "--json", "r.json"]
    code, said = call("parity", "compare", "a", "loaders:make", *reports)
    assert code == 0, said
    assert json.loads((call.here / "r.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--transform", "loaders:transform"],
        ["--option", "reader_pool_type=process", "--html", "r.html"],
    ],
)
def test_running_the_loaders(call, options):
    call.only_installed()
    pair = "petastorm" if "--transform" in options else "streaming"
    if not find_spec(pair):
        pytest.skip(f"compares with {pair}, which is not installed; streaming has no transforms")
    only = ["--only", "bridge", "--only", pair]
    code, said = call("parity", "run", "--data", call.data, "--batch-size", 5, *only, *options)
    assert code == 0, said


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.spark
def test_converting_with_spark(call):
    code, said = call("convert", call.data, "made", "--spark", "--quiet")
    assert code == 0, said


@pytest.mark.modern
def test_the_modules_would_run(call):
    """The directory is one in which they do: in Python's own programs."""
    command = [sys.executable, "-c", "import petastorm"]
    subprocess.run(command, cwd=call.here, env={**os.environ, "RAN": str(call.ran)}, check=True)
    assert [path.name for path in call.ran.iterdir()] == ["petastorm"]


@pytest.mark.modern
def test_what_is_named_is_looked_for_here_first(call):
    """And what it imports here last: modules of one's own beside it are found, Python's are Python's."""
    call.only_installed()
    shutil.copy(call.here / "loaders.py", call.here / "beside.py")
    (call.here / "loaders.py").write_text(
        "from beside import make\nimport colorsys\nassert colorsys.hsv_to_rgb\n"
    )
    code, said = call("parity", "record", "loaders:make", "--out", "a")
    assert code == 0, said
    for name in ("nothing:make", "loaders:nothing"):
        code, said = call("parity", "record", name, "--out", "b")
        assert code == 2, said
    assert not Path(call.here / "b").exists()
