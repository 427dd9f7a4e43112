"""``petastorm-bridge parity run``: the real Petastorm, the bridge and streaming over one directory."""

import json
import os
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from petastorm_bridge.cli import app
from petastorm_bridge.cli._parity import parse_options
from petastorm_bridge.parity._running.recorder_processes import RecorderProcesses
from petastorm_bridge.parity._running.runner import Request, Runner

ROWS = 91

# Stands before the interpreter: cuts the first two runs short and aborts after each, as Petastorm
# does now and then by itself.
UNRELIABLE = """#!{python}
import json, os, subprocess, sys
count = {count!r}
run = len(open(count).read()) if os.path.exists(count) else 0
open(count, "a").write("x")
with open(sys.argv[2]) as file:
    spec = json.load(file)
if run < 2:
    spec["limit"] = 20
with open(sys.argv[2], "w") as file:
    json.dump(spec, file)
subprocess.run([sys.executable, *sys.argv[1:]])
os.abort()
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Two files, one of which has nulls: Petastorm's dtype of that column flips between them.
    (tmp_path / "plain").mkdir()
    (tmp_path / "nulls").mkdir()
    ids = np.arange(ROWS)
    for part in range(2):
        here = ids[part * ROWS // 2 : (part + 1) * ROWS // 2]
        columns = {"id": here, "x": here / 3, "vector": [[float(i), 1.0] for i in here]}
        pq.write_table(pa.table(columns), tmp_path / "plain" / f"part-{part}.parquet")
        some = pa.array([None if part and i % 9 == 0 else int(i) for i in here], pa.int32())
        columns = {"id": here, "some": some}
        pq.write_table(pa.table(columns), tmp_path / "nulls" / f"part-{part}.parquet")

    def run(*arguments):
        answer = CliRunner().invoke(
            app, ["parity", "run", *arguments, "--json", str(tmp_path / "report.json")]
        )
        report = tmp_path / "report.json"
        return answer, json.loads(report.read_text()) if report.exists() else None

    return run


def pairs(report):
    return {(r["a"]["label"], r["b"]["label"]): r for r in report["results"]}


@pytest.mark.modern
@pytest.mark.slow
def test_a_package_that_is_missing_is_told_with_the_remedy(call, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import petastorm_of_nobody'\n")
    python.chmod(0o755)
    flags = ["--data", "plain", "--batch-size", "9", "--only", "petastorm", "--only", "bridge"]
    answer, _ = call(*flags, "--attempts", "1", "--petastorm-python", str(python))
    assert answer.exit_code == 2
    assert (
        "petastorm could not be recorded: ModuleNotFoundError: No module named 'petastorm_of_nobody'. Name an "
        "interpreter in which Petastorm works with --petastorm-python, or leave it out with --only.\n"
    ) in answer.stdout


@pytest.mark.slow
def test_all_three_agree_although_petastorm_loses_rows_and_aborts(call, tmp_path):
    pytest.importorskip("petastorm", reason="compares with the real package")
    python = tmp_path / "python"
    python.write_text(UNRELIABLE.format(python=sys.executable, count=str(tmp_path / "count")))
    python.chmod(python.stat().st_mode | stat.S_IEXEC)
    flags = ["--data", "plain", "--batch-size", "16", "--petastorm-python", str(python)]
    answer, report = call(*flags, "--keep", "kept", "--html", "page.html")
    assert answer.exit_code == 0, answer.output
    facts = dict(report["facts"])
    assert facts["petastorm's runs"] == (
        "3, with 32, 32, 91 rows of 91; 2 of them incomplete (no-lost-rows)"
    )
    found = pairs(report)
    assert list(found) == [
        ("petastorm", "bridge"),
        ("petastorm", "streaming"),
        ("bridge", "streaming"),
    ]
    assert {p["state"] for p in found["petastorm", "bridge"]["promises"]} == {"same"}
    schema = found["petastorm", "streaming"]["promises"][0]
    assert schema["findings"] == []
    assert sorted(os.listdir("kept")) == [
        "bridge-0",
        "petastorm-0",
        "petastorm-1",
        "petastorm-2",
        "streaming-0",
    ]
    assert "The batches are the same." in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.slow
def test_a_known_difference_shows_and_can_be_allowed(call):
    pytest.importorskip("petastorm", reason="compares with the real package")
    flags = ["--data", "nulls", "--batch-size", "15", "--only", "petastorm", "--only", "bridge"]
    answer, report = call(*flags, "--keep", "kept")
    assert answer.exit_code == 1, answer.output
    failure = report["results"][0]["first_failure"]
    assert (failure["promise"], failure["column"]) == ("schema", "some")
    assert failure["a"] == "int32"
    assert failure["b"] == "float64"
    sides = [f"kept/petastorm-{len(os.listdir('kept')) - 2}", "kept/bridge-0"]
    allow = ["--allow", "one-dtype-per-column"]
    assert CliRunner().invoke(app, ["parity", "compare", *sides]).exit_code == 1
    assert CliRunner().invoke(app, ["parity", "compare", *sides, *allow]).exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ({}, 5),
        ({"num_epochs": 3}, 15),
        ({"num_epochs": 2, "shuffle_row_drop_partitions": 3}, 30),
        ({"num_epochs": 7}, 1),  # would take more than 32
        ({"num_epochs": None}, 1),
        ({"workers_count": 2}, 2),
    ],
)
def test_petastorm_gets_workers_that_keep_its_order(tmp_path, options, workers):
    table = pa.table({"id": np.arange(20)})
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    data.mkdir()
    scratch.mkdir()
    pq.write_table(table, data / "part.parquet", row_group_size=1)
    request = Request(str(data), 4, options=options, limit=100)

    runner = Runner(request, str(data), str(scratch))

    assert runner.options("petastorm")["workers_count"] == workers
    assert runner.options("bridge") == options


@pytest.mark.modern
@pytest.mark.slow
def test_the_padding_of_streaming_is_recognised(call):
    pytest.importorskip("streaming", reason="compares with it")
    flags = ["--data", "plain", "--batch-size", "8", "--only", "bridge", "--only", "streaming"]
    options = ["--option", "shard_count=2", "--allow", "equal-shards", "--batches", "any"]
    answer, report = call(*flags, *options)
    assert answer.exit_code == 0, answer.output
    (result,) = report["results"]
    assert sorted(result["a"]["ranks"]) == [[45, 6], [46, 6]]
    assert result["b"]["ranks"] == [[46, 6]] * 2
    count = result["promises"][1]
    assert (count["state"], count["findings"][0]["allowed"]) == ("allowed", "streaming-padding")
    assert any("'streaming' repeats 1 row," in note for note in result["notes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "no/where"], "there is no directory no/where"),
        (["--data", "plain", "--loader", "keras"], "there is no loader 'keras'"),
        (["--data", "plain", "--only", "spark"], "there is no package 'spark'"),
        (["--data", "plain", "--option", "shuffle"], "not of the form NAME=VALUE"),
        (["--data", "plain", "--option", "num_epochs=None"], "give a limit of rows"),
        (["--data", "plain", "--option", "num_epochs=null"], "give a limit of rows"),
        (
            ["--data", "plain", "--option", "num_epochs=abc"],
            "num_epochs is 'abc'; it must be a whole",
        ),
        (
            ["--data", "plain", "--option", "num_epochs=2.5"],
            "num_epochs is 2.5; it must be a whole",
        ),
        (
            ["--data", "plain", "--option", "shard_count=-2"],
            "shard_count is -2; it must be a whole",
        ),
        (
            ["--data", "plain", "--option", "shuffle_row_drop_partitions=None"],
            "shuffle_row_drop_partitions is None; it must be a whole",
        ),
        (["--data", "."], "no directory of Parquet files"),
        (["--data", "plain", "--only", "bridge"], "bridge alone cannot be compared"),
        (["--data", "plain", "--transform", "double"], "'double' is not of the form module:"),
        (["--data", "plain", "--limit", "0"], "limit is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_run_is_exit_code_2(call, arguments, message):
    answer, _ = call("--batch-size", "4", *arguments)
    assert answer.exit_code == 2
    assert message in " ".join(answer.output.split())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("False", False),
        ("false", False),
        ("FALSE", False),
        ("true", True),
        ("none", None),
        ("7", 7),
        ("['a', 1]", ["a", 1]),
        ("tail", "tail"),
        ("'false'", "false"),
    ],
)
def test_values_of_options_are_python_s_or_json_s(text, value):
    assert parse_options([f"name={text}"]) == {"name": value}


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("table", ["partitions", "dtypes"])
def test_streaming_gets_the_columns_of_the_whole_table(call, tmp_path, table):
    pytest.importorskip("streaming", reason="compares with it")
    for part in range(2):
        folder = tmp_path / table / (f"part={part}" if table == "partitions" else ".")
        folder.mkdir(parents=True, exist_ok=True)
        ids = pa.array(range(part * 10, part * 10 + 10), [pa.int64(), pa.int32()][part])
        if table == "partitions":
            ids = ids.cast(pa.int64())
        pq.write_table(pa.table({"id": ids}), folder / f"{part}.parquet")
    flags = ["--data", table, "--batch-size", "4", "--only", "bridge", "--only", "streaming"]
    answer, report = call(*flags)
    assert answer.exit_code == 0, answer.output
    columns = ["id", "part"] if table == "partitions" else ["id"]
    assert sorted(c["name"] for c in report["results"][0]["columns"]) == columns


@pytest.mark.modern
@pytest.mark.slow
def test_endless_epochs_are_compared_up_to_the_limit(call):
    pytest.importorskip("streaming", reason="compares with it")
    flags = ["--data", "plain", "--batch-size", "8", "--only", "bridge", "--only", "streaming"]
    _, report = call(*flags, "--option", "num_epochs=None", "--limit", "150")
    # The bridge's batches go on across the end of an epoch, streaming's do not.
    assert not report["problems"]
    assert [report["results"][0][side]["rows"] >= 150 for side in "ab"] == [True, True]


@pytest.mark.modern
@pytest.mark.slow
def test_the_last_words_are_the_loader_s(call):
    pytest.importorskip("streaming", reason="its shared memory is missed after that")
    flags = ["--data", "plain", "--batch-size", "4", "--only", "bridge", "--only", "streaming"]
    answer, report = call(*flags, "--option", "num_epochs=0")
    assert answer.exit_code == 2
    assert "epochs is 0; it must be at least 1" in report["problems"][-1]


@pytest.mark.slow
def test_what_goes_wrong_is_told_in_the_loader_s_own_words(call):
    flags = ["--data", "plain", "--batch-size", "4", "--only", "bridge", "--only", "petastorm"]
    answer, report = call(*flags, "--option", "colour='red'", "--petastorm-python", "/no/python")
    assert answer.exit_code == 2
    assert "unexpected keyword argument 'colour'" in report["problems"][0]
    assert "/no/python cannot be run" in report["problems"][1]


@pytest.mark.smoke
@pytest.mark.slow
@pytest.mark.spark
def test_a_spark_table(call, spark):
    pytest.importorskip("petastorm", reason="compares with the real package")
    table = spark.range(40, numPartitions=2).selectExpr("id", "id / 7 as x")
    table.createOrReplaceTempView("parity_table")
    flags = ["--batch-size", "9", "--only", "petastorm", "--only", "bridge"]
    answer, report = call("--data", "parity_table", *flags)
    assert answer.exit_code == 0, answer.output
    assert dict(report["facts"])["data"].startswith("parity_table: 40 rows in 2 files")
    answer, _ = call("--data", "no_such_table", *flags)
    assert answer.exit_code == 2
    assert "the table no_such_table cannot be read" in " ".join(answer.output.split())


@pytest.mark.modern
@pytest.mark.slow
def test_a_rank_that_dies_ends_the_run_at_once(tmp_path):
    processes = RecorderProcesses(str(tmp_path), "streaming", timeout=300)
    python = [sys.executable, "-c"]
    with processes:
        processes.start([*python, "import time; time.sleep(300)"], dict(os.environ))
        waiting = processes._running[0][0]
        # More than a pipe holds, then the reason.
        processes.start(
            [*python, "import sys; print('x' * 200_000, file=sys.stderr); sys.exit('out of luck')"],
            dict(os.environ),
        )
        processes.wait()
    assert processes.said == "out of luck"
    assert waiting.returncode < 0


def test_a_rank_that_dies_without_a_word(tmp_path):
    with RecorderProcesses(str(tmp_path), "streaming", timeout=300) as processes:
        processes.start([sys.executable, "-c", "import os; os._exit(3)"], dict(os.environ))
        processes.wait()
    assert processes.said == "it ended with code 3 and no word"


def test_a_run_that_takes_too_long_is_ended(tmp_path):
    with RecorderProcesses(str(tmp_path), "streaming", timeout=0.5) as processes:
        processes.start([sys.executable, "-c", "import time; time.sleep(300)"], dict(os.environ))
        waiting = processes._running[0][0]
        processes.wait()
    assert processes.said == "it did not end within 0.5 seconds"
    assert waiting.returncode < 0


def test_an_interrupted_run_leaves_no_process(tmp_path):
    waiting = []

    def interrupted():
        with RecorderProcesses(str(tmp_path), "streaming", timeout=300) as processes:
            processes.start(
                [sys.executable, "-c", "import time; time.sleep(300)"], dict(os.environ)
            )
            waiting.append(processes._running[0][0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert waiting[0].returncode < 0


WRAPPER = """#!/bin/sh
sleep 300 &
echo $! > {children}
{after}
"""


@pytest.fixture
def wrapper(tmp_path):
    """A script that starts `sleep`, as one that wraps an interpreter would; and who that sleeper is."""

    def make(after):
        script, children = tmp_path / "wrapper", tmp_path / "children"
        script.write_text(WRAPPER.format(children=children, after=after))
        script.chmod(0o755)
        return str(script), children

    return make


def sleeper(children):
    end = time.monotonic() + 20
    while not (children.exists() and children.read_text().strip()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return psutil.Process(int(children.read_text()))


def is_gone(process):
    """Whether a process has ended; nobody may be left to wait for it."""
    gone, _ = psutil.wait_procs([process], timeout=10)
    return bool(gone) or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
@pytest.mark.parametrize("after", ["wait", "exit 0"])
def test_what_a_wrapper_script_started_ends_with_it(tmp_path, wrapper, after):
    script, children = wrapper(after)
    with RecorderProcesses(str(tmp_path), "petastorm", timeout=1) as processes:
        processes.start([script], dict(os.environ))
        left = sleeper(children)
        processes.wait()
    assert is_gone(left)


INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests in the background may have it ignored
from petastorm_bridge.parity._running.recorder_processes import RecorderProcesses
with RecorderProcesses(sys.argv[1], "petastorm", timeout=300) as processes:
    processes.start([sys.argv[2]], dict(os.environ))
    processes.wait()
"""


@pytest.mark.modern
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_no_process_either(tmp_path, wrapper, number):
    script, children = wrapper("wait")
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), script]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        left = sleeper(children)
        running.send_signal(number)
        running.wait(20)
    assert is_gone(left)
