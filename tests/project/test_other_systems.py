"""What works without Linux: the command line's part that reads no data. Its absence is imitated in a process.

Modules and functions of POSIX are gone before anything of ours is imported.
"""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastorm_bridge import parity

pytestmark = [pytest.mark.modern, pytest.mark.slow]

WITHOUT = r"""
import os, runpy, signal, sys
# What the standard library itself takes of this system, and what Arrow and NumPy do.
import subprocess, multiprocessing.connection, concurrent.futures.process, tempfile, asyncio, shutil, platform, random
import numpy, pandas, pyarrow, pyarrow.parquet, rich.progress, typer, libcst
for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "syslog"):
    sys.modules[name] = None
for name in ("fork", "getuid", "geteuid", "sched_getaffinity", "killpg", "mkfifo", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("pthread_sigmask", "SIGKILL", "SIG_BLOCK", "SIGALRM"):
    delattr(signal, name)
sys.path.insert(0, os.getcwd())
code, sys.argv = sys.argv[1], sys.argv[1:]
if code == "-c":
    exec(sys.argv[1])
else:
    sys.argv[0] = "petastorm-bridge"
    from petastorm_bridge.cli import main
    main()
"""
READ = """import os  # with worker processes; without, a local Parquet file can be read anywhere
from petastorm_bridge import make_batch_reader
with make_batch_reader(f"file://{os.getcwd()}/data", reader_pool_type="process") as reader:
    print([list(group.x) for group in reader])
"""
OLD = "from petastorm.spark import make_spark_converter\nmake_spark_converter(df)\n"


@pytest.fixture
def run(tmp_path):
    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", WITHOUT, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    return call


def test_the_codemod_moves_a_repository_with_the_line_ends_that_it_has(run, tmp_path):
    names = [f"m{number}.py" for number in range(20)]  # more than are done in one process elsewhere
    for name in names:
        (tmp_path / name).write_bytes(OLD.replace("\n", "\r\n").encode())
    (tmp_path / "deep.py").write_text("import petastorm\nx = " + "[" * 500 + "]" * 500 + "\n")
    shown = run("x", "codemod", ".")
    assert shown.returncode == 1, shown.stderr
    assert "Next: petastorm-bridge codemod . --to bridge" in shown.stdout
    moved = run("x", "codemod", ".", "--to", "bridge", "--write")
    assert moved.returncode == 1, moved.stderr
    assert "deep.py: failed: left alone, because its code is nested so deep" in moved.stdout
    wanted = OLD.replace("petastorm.", "petastorm_bridge.").replace("\n", "\r\n").encode()
    assert {(tmp_path / name).read_bytes() for name in names} == {wanted}


def test_the_commands_that_read_no_data_answer(run, tmp_path):
    (tmp_path / "a.py").write_text(OLD)
    parity.record([{"x": np.arange(5)}], tmp_path / "old")
    parity.record([{"x": np.arange(6)}], tmp_path / "new")
    for code, *arguments in (
        (0, "doctor"),
        (0, "rule", "PM102"),
        (0, "difference"),
        (0, "versions"),
        (1, "parity", "compare", "old", "new", "--html", "parity.html"),
    ):
        done = run("x", *arguments)
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert (tmp_path / "parity.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", READ),
        ("x", "convert", "a", "b"),
    ],
)
def test_what_is_for_linux_says_so(run, tmp_path, arguments):
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "data" / "part.parquet")
    done = run(*arguments)
    assert done.returncode != 0
    assert "petastorm_bridge needs Linux for this (on Windows, WSL)" in done.stderr
