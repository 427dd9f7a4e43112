"""The command: trees before and after, reports and exit codes."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from petastorm_bridge.cli import app
from petastorm_codemods._project.distribution import bridge, vendored
from petastorm_codemods._reports.formats import FORMATS
from petastorm_codemods._text.decode import write_atomically

pytestmark = pytest.mark.modern

STREAMING = ("--to", "streaming")
NATIVE = bridge("", frozenset({"streaming"}))
OLD, NEW = "from petastorm import TransformSpec\n", "from petastorm_bridge import TransformSpec\n"


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["codemod", *arguments])


@pytest.fixture
def tree(tmp_path):
    def make(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


def test_plain_run_shows_the_diff_and_writes_nothing(call, tree):
    root = tree(a_dot_py=OLD, b_dot_py="x = 1\n")
    answer = call(".", "--to", "bridge")
    assert answer.exit_code == 1
    assert f"+{NEW}" in answer.stdout
    assert "2 files looked at: 1 to rewrite, 0 need a human, 0 failed" in answer.stdout
    assert (root / "a.py").read_text() == OLD


def test_write_then_nothing_to_do(call, tree):
    root = tree(a_dot_py=OLD, requirements_dot_txt="petastorm==0.12\n")
    answer = call(".", "--to", "bridge", "--write")
    assert (answer.exit_code, "wrote" in answer.stdout) == (0, True)
    assert (root / "a.py").read_text() == NEW
    assert (root / "requirements.txt").read_text() == f"{bridge()}\n"
    again = call(".", "--to", "bridge", "--check")
    assert again.exit_code == 0
    assert "0 to rewrite" in again.stdout


def test_check_names_files_only(call, tree):
    tree(a_dot_py=OLD)
    answer = call(".", "--to", "bridge", "--check")
    assert answer.exit_code == 1
    assert "would change" in answer.stdout
    assert NEW not in answer.stdout


def test_diff_can_be_applied(call, tree):
    root = tree(sub__a_dot_py=OLD + "x = 1", b_dot_py=OLD)
    answer = call(".", "--to", "bridge", "--diff")
    assert answer.exit_code == 1
    command = ["git", "apply", "--unsafe-paths", "--directory", str(root), "-"]
    subprocess.run(command, input=answer.stdout, text=True, check=True, cwd=root)
    assert (root / "sub/a.py").read_text() == NEW + "x = 1"
    assert (root / "b.py").read_text() == NEW


@pytest.mark.parametrize(
    "text",
    ["import os\n\f\n" + OLD, "x = 'a\u2028b'\n" + OLD, (OLD + "x = 1\n").replace("\n", "\r")],
    ids=["form feed", "line separator", "carriage returns"],
)
def test_a_diff_has_the_lines_of_git(call, tree, text):
    root = tree()
    (root / "a.py").write_text(text, newline="")
    patch = call(".", "--to", "bridge", "--diff").stdout_bytes
    command = ["git", "apply", "--unsafe-paths", "--directory", str(root), "-"]
    subprocess.run(command, input=patch, check=True, cwd=root)
    after = (root / "a.py").read_bytes().decode()
    assert after == text.replace("from petastorm", "from petastorm_bridge")


@pytest.mark.parametrize("name", ["tox.ini", "lists.toml", "data.json"])
def test_what_is_too_long_for_a_list_is_data_and_stays(call, tree, name):
    begin = {
        "tox.ini": "[testenv]\ndeps =\n    petastorm\n",
        "lists.toml": 'deps = ["petastorm"]\n',
    }
    root = tree(a_dot_py=OLD)
    text = begin.get(name, '{"b": "petastorm", "a": "') + "\u00e9#\n" * 400_000
    (root / name).write_text(text)
    answer = call(".", "--to", "bridge", "--write")
    assert (answer.exit_code, name in answer.stdout) == (0, False)
    assert (root / name).read_text() == text


def test_failures_and_leftovers_give_1_and_stop_nothing(call, tree):
    root = tree(
        a_dot_py="petastorm = = 1\n", b_dot_py="import petastorm.local_disk_cache\n", c_dot_py=OLD
    )
    answer = call(".", "--to", "bridge", "--write")
    assert answer.exit_code == 1
    assert "a.py: failed: line 1" in answer.stdout
    assert "b.py:1:1: PM003 petastorm_bridge has no local_disk_cache" in answer.stdout
    assert (root / "a.py").read_text() == "petastorm = = 1\n"
    assert (root / "b.py").read_text() == "import petastorm.local_disk_cache\n"
    assert (root / "c.py").read_text() == NEW
    assert call("c.py", "--to", "bridge").exit_code == 0


def test_requirements_stay_while_petastorm_is_imported(call, tree):
    root = tree(a_dot_py="import petastorm.local_disk_cache\n", requirements_dot_txt="petastorm\n")
    answer = call(".", "--to", "bridge", "--write")
    assert answer.exit_code == 1
    assert (root / "requirements.txt").read_text() == "petastorm\n"


def test_a_notebook_that_installs_for_others_installs_both(call, tree):
    """Others have its packages by ``%run``."""
    install = "# Databricks notebook source\n# MAGIC %pip install petastorm=={}\n"
    files = {"a_dot_py": "import petastorm.local_disk_cache\n", "b_dot_py": OLD}
    root = tree(first_dot_py=install.format("0.12 x"), **files)
    for _ in range(2):
        assert call(".", "--to", "bridge", "--write").exit_code == 1
        after = (root / "first.py").read_text()
        assert after == install.format(f"0.12 {bridge()} x")
    root = tree(first_dot_py=install.format("0.12 x"), a_dot_py="")
    assert call(".", "--to", "bridge", "--write").exit_code == 0
    assert f"pip install {bridge()} x" in (root / "first.py").read_text()


def test_select_and_ignore(call, tree):
    tree(a_dot_py=OLD, requirements_dot_txt="petastorm\n")
    assert "1 to rewrite" in call(".", "--to", "bridge", "--select", "PM001,PM002").stdout
    assert "1 to rewrite" in call(".", "--to", "bridge", "--ignore", "PM01,PM003").stdout
    answer = call(".", "--to", "bridge", "--select", "XX")
    assert answer.exit_code == 2
    assert "no rule has the code 'XX'" in answer.output


@pytest.mark.parametrize(
    ("options", "cell"),
    [((), True), (("--select", "PM000"), True), (("--select", "PM001"), False), (("--ignore", "PM000"), False)],
)  # fmt: skip
def test_cells_that_do_not_parse_obey_a_selection_and_files_are_always_named(
    call, tree, options, cell
):
    cells = (
        "# Databricks notebook source\nimport petastorm\n\n# COMMAND ----------\nif petastorm(:\n"
    )
    tree(nb_dot_py=cells, bad_dot_py="import petastorm\nx = = 2\n")
    answer = call(".", "--to", "bridge", *options)
    assert ("nb.py:5:1: PM000 cell left alone, it does not parse" in answer.stdout) is cell
    assert ("rule PM000 says what to do" in answer.output) is cell
    assert "bad.py: failed: line 2" in answer.stdout
    assert answer.exit_code == 1


def test_cells_of_other_languages_are_named_with_what_they_are(call, tree):
    cells = [
        "# MAGIC %python\n# MAGIC import petastorm",
        "# MAGIC %scala\n# MAGIC import petastorm",
    ]
    tree(nb_dot_py="\n\n# COMMAND ----------\n".join(["# Databricks notebook source", *cells]))
    answer = call(".", "--to", "bridge")
    assert "it is Python in comments: take '# MAGIC' away" in answer.stdout
    assert "cell left alone, it is in scala" in answer.stdout


def test_without_a_destination_it_says_how_petastorms_own_datasets_get_to_streaming(call, tree):
    tree(a_dot_py='from petastorm import make_reader\n\nreader = make_reader("file:///data/x")\n')
    lines = call(".").stdout.splitlines()
    assert lines[0] == "1 file looked at, nothing changed; 0 loaders of converters"
    assert "1 place with datasets in Petastorm's own format" in lines[3]
    assert "petastorm-bridge convert SRC DST" in lines[3]


def test_without_a_destination_loaders_that_stay_are_counted(call, tree):
    tree(a_dot_py=MAKES + "run(c.make_torch_dataloader(num_epochs=1))\n")
    lines = call(".").stdout.splitlines()
    assert lines[0] == "1 file looked at, nothing changed; 1 loader of converters"
    assert lines[2].endswith("1 loader on the bridge still")


def test_without_a_destination_it_says_what_either_would_do_and_changes_nothing(call, tree):
    loader = "with c.make_torch_dataloader(num_epochs=1) as batches:\n    fit(batches)\n"
    root = tree(a_dot_py=MAKES + loader, b_dot_py="import petastorm.local_disk_cache\n")
    before = {path: path.read_bytes() for path in root.iterdir()}
    answer = call(".")
    first, bridge, streaming, next_command, decide = answer.stdout.splitlines()
    assert answer.exit_code == 1
    assert first == "2 files looked at, nothing changed; 1 loader of converters"
    for line, to in ((bridge, "bridge"), (streaming, "streaming")):
        counts = json.loads(call(".", "--to", to, "--report", "json").stdout)["counts"]
        rewritten, left = counts["sites rewritten"], counts["sites left"]
        assert line.startswith(f"--to {to}")
        assert f" {rewritten} place{'s' * (rewritten != 1)} in 1 file, {left} left to you" in line
    assert next_command == "Next: petastorm-bridge codemod . --to bridge"
    assert 'to = "bridge"' in decide
    assert call(*next_command.split()[3:], "--write").exit_code == 1  # b.py is left
    moved = call(".").stdout
    assert "Next: petastorm-bridge codemod . --to streaming\n" in moved
    assert 'to = "bridge" (it may stay there)' in moved
    assert before[root / "b.py"] == (root / "b.py").read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ("--check",),
        ("--write",),
        ("--diff",),
        ("--report", "json"),
        ("--statistics",),
        ("--fast",),
        ("--vendor",),
        ("--converted", "a=b"),
    ],
)
def test_an_option_that_needs_a_destination_asks_for_it(call, tree, options):
    """Also where nothing would change: a hook without a destination is never green by chance."""
    tree(a_dot_py="x = 1\n")
    answer = call(".", *options)
    assert answer.exit_code == 2
    assert f"{options[0]} needs a destination: --to bridge" in answer.output
    assert call(".").exit_code == 0
    assert "Nothing to do: nothing here needs Petastorm." in call(".").stdout


def test_options_for_streaming_wait_until_that_is_the_destination(call, tree):
    table = '[tool.petastorm-bridge]\nto = "{}"\nfast = true\n'
    loader = "with c.make_torch_dataloader(num_epochs=1) as batches:\n    fit(batches)\n"
    root = tree(a_dot_py=MAKES + loader, pyproject_dot_toml=table.format("bridge"))
    assert call(".", "--write").exit_code == 0
    (root / "pyproject.toml").write_text(table.format("streaming"))
    assert call(".", "--write").exit_code == 0
    assert "ColumnarStreamingDataset(" in (root / "a.py").read_text()


def test_configuration(call, tree):
    table = "[tool.petastorm-bridge]\n"
    root = tree(a_dot_py=OLD, b_dot_py=OLD)
    (root / "pyproject.toml").write_text(table + "to = 'bridge'\nexclude = ['b.py']\n")
    assert "1 to rewrite" in call(".").stdout
    (root / "pyproject.toml").write_text(table + "to = 'bridge'\ntoo = 1\n")
    answer = call(".")
    assert answer.exit_code == 2
    assert "cannot use too = 1" in answer.output
    (root / "pyproject.toml").write_text(table + "select = 'PM001'\n")
    assert "select is a list of strings" in call(".").output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[tool]\npetastorm-bridge = 3\n", "[tool.petastorm-bridge] is a table, not 3"),
        (b"# petastorm-bridge\na = \xff\n", "pyproject.toml: 'utf-8' codec can't decode byte 0xff"),
        (b"petastorm-bridge = " + b"[" * 50000, "pyproject.toml"),
    ],
)
def test_odd_configuration_is_one_sentence(call, tree, text, said):
    (tree(a_dot_py=OLD) / "pyproject.toml").write_bytes(text)
    for command in ("codemod", "doctor"):
        answer = CliRunner().invoke(app, [command, "."])
        assert answer.exit_code == 2
        assert said in answer.output
        assert len(answer.output.splitlines()) == 1


def test_what_tool_is_none_of_ours(call, tree):
    (tree(a_dot_py=OLD) / "pyproject.toml").write_text("tool = 'petastorm-bridge'\n")
    assert call(".", "--to", "bridge").exit_code == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes among the files here")
@pytest.mark.parametrize(
    "name",
    [
        "ruff.toml",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("pyproject.toml", "petastorm/b.py")
        ),
    ],
)
def test_pipes_are_not_waited_for(tree, name):
    """The formatter's configuration is looked for, and a package that hides Petastorm is looked through."""
    root = tree(a_dot_py=OLD, petastorm__a_dot_py="")
    (root / "petastorm" / "__init__.py").touch()
    os.mkfifo(root / name)
    command = [
        sys.executable,
        "-m",
        "petastorm_bridge",
        "codemod",
        "--to",
        "streaming",
        "--write",
        "a.py",
    ]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("options", [(), ("--write",)])
def test_output_in_an_encoding_that_has_not_all_of_it(tree, options):
    root = tree(a_dot_py=f"# データ\n{OLD}", requirements_dot_txt="petastorm\n")
    command = [sys.executable, "-m", "petastorm_bridge", "codemod", "--to", "bridge", *options, "."]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    answer = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, check=False, timeout=60
    )
    assert answer.returncode == (options != ("--write",)), answer.stderr
    assert (rb"# \u30c7" in answer.stdout) == (options != ("--write",))


def test_git_takes_a_diff_whatever_the_encoding_of_the_output(tree):
    root = tree(a_dot_py=f"# データ\n{OLD}")
    command = [sys.executable, "-m", "petastorm_bridge", "codemod", "--to", "bridge", "--diff", "."]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    patch = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, check=False, timeout=60
    ).stdout
    subprocess.run(["git", "apply"], cwd=root, input=patch, check=True, timeout=60)
    assert (root / "a.py").read_text(encoding="utf-8").startswith("# データ\nfrom petastorm_bridge")


def test_json(call, tree):
    tree(a_dot_py=OLD + "from petastorm import local_disk_cache\n", b_dot_py="petastorm (\n")
    answer = call(".", "--to", "bridge", "--report", "json")
    report = json.loads(answer.stdout)
    assert report["counts"]["failed"] == 1
    a, b = report["files"]
    assert (a["status"], b["status"]) == ("needs a human", "failed")
    assert [(site["code"], site["line"], site["state"]) for site in a["sites"]] == [
        ("PM001", 1, "rewritten"),
        ("PM003", 2, "needs a human"),
    ]


def test_markdown(call, tree):
    tree(a_dot_py=OLD)
    answer = call("a.py", "--to", "bridge", "--report", "markdown")
    assert "| a.py | 1 | PM001 | rewritten | high |" in answer.stdout


def test_cells_are_named(call, tree):
    source = '{"cells":[{"cell_type":"code","source":"import petastorm.local_disk_cache"}]}'
    tree(n_dot_ipynb=source)
    assert "n.ipynb:cell 1:1:1: PM003" in call("n.ipynb", "--to", "bridge").stdout
    report = json.loads(call("n.ipynb", "--to", "bridge", "--report", "sarif").stdout)
    (result,) = report["runs"][0]["results"]
    assert result["message"]["text"].startswith("cell 1, line 1: ")


@pytest.mark.parametrize(
    "options",
    [
        ("--to", "bridge", "--exclude", "b.py"),
        ("--to", "bridge", "--select", "PM001,PM010", "--ignore", "PM002"),
        ("--to", "bridge", "--lift-pyarrow"),
        ("--to", "streaming", "--fast", "--unsafe", "--converted", "a=b", "--converted", "c=d"),
        ("--exclude", "b.py", "--unsafe"),
    ],
)
def test_the_next_command_does_what_was_shown(call, tree, options):
    root = tree(a_dot_py=OLD, b_dot_py=OLD, requirements_dot_txt="petastorm\npyarrow<10\n")
    (line,) = [line for line in call(".", *options).stdout.splitlines() if "Next: " in line]
    command = shlex.split(line.partition(" to write")[0])[3:]
    shown = json.loads(call(".", "--to", "bridge", *options, "--report", "json").stdout)
    call(*command, *([] if "--write" in command else ["--write"]))
    changed = {each["path"] for each in shown["files"] if each["status"] != "unchanged"}
    assert ((root / "b.py").read_text() == OLD) == ("b.py" not in changed)
    assert (
        "pyarrow<10" not in (root / "requirements.txt").read_text()
        or "--lift-pyarrow" not in options
    )
    assert {word for word in options if word.startswith("--")} <= {*command}


def test_patterns_of_the_configuration_count_from_its_folder(call, tree):
    table = '[tool.petastorm-bridge]\nto = "bridge"\nexclude = ["legacy/*", "*_pb2.py"]\n'
    root = tree(repo__legacy__a_dot_py=OLD, repo__b_dot_py=OLD, repo__legacy_dot_py=OLD)
    (root / "repo" / "pyproject.toml").write_text(table)
    (root / "repo" / "c_pb2.py").write_text(OLD)
    for path in ("repo", str(root / "repo")):
        would = [line for line in call(path, "--check").stdout.splitlines() if "would" in line]
        assert would == [f"would change {path}/b.py", f"would change {path}/legacy.py"]


def test_the_nearest_table_counts_not_the_nearest_file(call, tree):
    root = tree(pyproject_dot_toml='[tool.petastorm-bridge]\nto = "bridge"\n', svc__b_dot_py=OLD)
    (root / "svc" / "pyproject.toml").write_text('[project]\nname = "petastorm-bridge"\n')
    assert "1 to rewrite" in call("svc", "--check").stdout


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_list_in_an_encoding_that_pip_reads(call, tree, encoding):
    """PowerShell writes one with ``pip freeze > requirements.txt``."""
    root = tree(a_dot_py=OLD)
    before = "\ufeffpetastorm==0.12\r\nsix\r\n"
    (root / "requirements.txt").write_bytes(before.encode(encoding))
    assert "+petastorm-bridge" in call(".", "--to", "bridge").stdout
    assert call(".", "--to", "bridge", "--write").exit_code == 0
    after = (root / "requirements.txt").read_bytes().decode(encoding)
    assert after == before.replace("petastorm==0.12", str(bridge()))


def test_what_is_written_belongs_to_whom_it_did_and_is_as_open_as_others(call, tree):
    root = tree(a_dot_py=OLD)
    before = os.umask(0o077)
    try:
        call(".", "--to", "bridge", "--report", "json", "--output-file", "r.json")
    finally:
        os.umask(before)
    assert (root / "r.json").stat().st_mode & 0o777 == 0o600
    if os.getuid() == 0:
        os.chown(root / "a.py", 1234, 1235)
    (root / "a.py").chmod(0o640)
    owned = (root / "a.py").stat()
    assert call(".", "--to", "bridge", "--write").exit_code == 0
    after = (root / "a.py").stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        owned.st_uid,
        owned.st_gid,
        owned.st_mode,
    )


def test_a_read_only_report_is_refused_before_anything_is_done(call, tree):
    root = tree(a_dot_py=OLD, r_dot_json="{}")
    (root / "r.json").chmod(0o444)
    answer = call(".", "--to", "bridge", "--write", "--report", "json", "--output-file", "r.json")
    assert (answer.exit_code, (root / "a.py").read_text()) == (2, OLD)


def test_a_path_that_does_not_exist(call):
    answer = call("nowhere", "--to", "bridge")
    assert answer.exit_code == 2
    assert "no such file or directory: nowhere" in answer.output
    # As of a variable of the shell that is not set.
    assert "no such file or directory: ''" in call("", "--to", "bridge").output
    empty = call(".", "--to", "bridge", "--requirement", "")
    assert (empty.exit_code, empty.output.count("--requirement is empty")) == (2, 1)


def test_a_file_that_cannot_be_written_fails_alone(call, tree, monkeypatch):
    root = tree(a__a_dot_py=OLD, b_dot_py=OLD)
    replace = os.replace

    def refuse(source, target):
        if target.endswith("a.py"):
            raise PermissionError("read-only file system")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    answer = call(".", "--to", "bridge", "--write")
    assert answer.exit_code == 2
    assert "cannot be written: read-only file system" in answer.stdout
    assert (root / "a/a.py").read_text() == OLD
    assert (root / "b.py").read_text() == NEW


def test_read_only_files_stay(call, tree):
    root = tree(a_dot_py=OLD, b_dot_py=OLD)
    (root / "a.py").chmod(0o444)
    answer = call(".", "--to", "bridge", "--write")
    assert answer.exit_code == 2
    assert "a.py is read-only" in answer.stdout
    assert "1 failed; 1 place rewritten, 0 left to you" in answer.stdout
    assert [(root / name).read_text() for name in ("a.py", "b.py")] == [OLD, NEW]
    assert not [path.name for path in root.iterdir() if path.name.endswith(".tmp")]


def test_processes_in_a_program_of_its_own(tree):
    root = tree(**{f"m{number}_dot_py": OLD for number in range(20)}, bad_dot_py="petastorm (\n")
    command = [sys.executable, "-m", "petastorm_bridge", "codemod", ".", "--to", "bridge"]
    done = subprocess.run(
        [*command, "--write", "--jobs", "2"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 1, done.stderr
    assert {path.read_text() for path in root.glob("m*.py")} == {NEW}
    assert "20 rewritten, 0 need a human, 1 failed" in done.stdout


def test_methods_of_that_name_without_petastorm_are_not_ours(call, tree):
    tree(a_dot_py="recorder.make_tf_dataset()\n")
    answer = call(".", "--check", *STREAMING)
    assert answer.exit_code == 0, answer.stdout


def test_loaders_in_files_without_imports(call, tree):
    root = tree(
        a_dot_py="from petastorm.spark import make_spark_converter\nc = make_spark_converter(df)\n",
        b_dot_py="def f(conv):\n    return conv.make_torch_dataloader(batch_size=2).__enter__()\n",
    )
    assert call(".", "--write", *STREAMING).exit_code == 0
    assert "remote=conv.remote,\n" in (root / "b.py").read_text()
    assert call(".", "--check", *STREAMING).exit_code == 0


MAKES = "from petastorm.spark import make_spark_converter\nc = make_spark_converter(df)\n"
READS = "def f(conv):\n    with conv.{method}(batch_size=2) as batches:\n        fit(batches)\n"


def test_fast(call, tree):
    root = tree(a_dot_py=MAKES, b_dot_py=READS.format(method="make_torch_dataloader"))
    assert call(".", "--write", "--fast", *STREAMING).exit_code == 0
    text = (root / "b.py").read_text()
    assert "from petastorm_bridge.streaming import ColumnarStreamingDataset" in text
    assert "ColumnarStreamingDataset(" in text
    assert call(".", "--check", "--fast", *STREAMING).exit_code == 0


def test_vendored_beside_scripts(call, tree):
    root = tree(
        a_dot_py=MAKES,
        b_dot_py=READS.format(method="make_torch_dataloader"),
        requirements_dot_txt="petastorm[torch]>=0.11\n",
    )
    answer = call(".", "--write", "--vendor", *STREAMING)
    assert answer.exit_code == 0, answer.stdout
    assert (root / "a.py").read_text().startswith("from mds_support import write_mds\n")
    assert (root / "requirements.txt").read_text() == f"{vendored()}\npandas\n"
    support = (root / "mds_support.py").read_text()
    assert "def write_mds" in support
    assert "import petastorm_bridge" not in support
    assert "from petastorm_bridge" not in support
    assert call(".", "--check", "--vendor", *STREAMING).exit_code == 0
    assert (root / "mds_support.py").read_text() == support


def test_vendored_into_a_package_and_used_by_more_files_later(call, tree):
    root = tree(
        src__pkg__data_dot_py=MAKES,
        src__pkg__sub__fit_dot_py=READS.format(method="make_torch_dataloader"),
    )
    (root / "src/pkg/__init__.py").touch()
    assert call(".", "--write", "--vendor", *STREAMING).exit_code == 0
    assert "from pkg.mds_support import" in (root / "src/pkg/data.py").read_text()
    first = (root / "src/pkg/mds_support.py").read_text()
    tree(src__pkg__more_dot_py=READS.format(method="make_tf_dataset") + "c.file_urls\n")
    assert call(".", "--write", "--vendor", *STREAMING).exit_code == 0
    assert "from pkg.mds_support import" in (root / "src/pkg/more.py").read_text()
    assert (root / "src/pkg/mds_support.py").read_text() == first


def test_install_lines_of_vendored_code(call, tree):
    """A reader needs the bridge; converters do not."""
    install = "# Databricks notebook source\n# MAGIC %pip install petastorm\n# COMMAND ----------\n"
    reader = "from petastorm import make_batch_reader\nr = make_batch_reader(url)\n"
    root = tree(a_dot_py=install + MAKES, b_dot_py=install + reader)
    assert call(".", "--write", "--vendor", *STREAMING).exit_code == 0
    assert f"%pip install '{vendored()}'\n" in (root / "a.py").read_text()
    assert f"%pip install {bridge()}\n" in (root / "b.py").read_text()


def test_vendored_files_are_new_in_the_diff(call, tree):
    root = tree(a_dot_py=MAKES)
    answer = call(".", "--vendor", "--diff", *STREAMING)
    assert "--- /dev/null" in answer.stdout
    command = ["git", "apply", "--unsafe-paths", "--directory", str(root), "-"]
    subprocess.run(command, input=answer.stdout, text=True, check=True, cwd=root)
    compile((root / "mds_support.py").read_text(), "mds_support.py", "exec")


def test_a_file_of_the_support_modules_name_is_kept(call, tree):
    root = tree(a_dot_py=MAKES, mds_support_dot_py="x = 1\n")
    answer = call(".", "--write", "--vendor", *STREAMING)
    assert answer.exit_code == 1
    assert "exists and is something else" in answer.stdout
    assert (root / "mds_support.py").read_text() == "x = 1\n"


def test_readers_keep_the_bridge_required(call, tree):
    root = tree(
        a_dot_py=MAKES + "from petastorm import make_batch_reader\n",
        requirements_dot_txt="petastorm\n",
    )
    assert call(".", "--write", "--vendor", *STREAMING).exit_code == 0
    assert (root / "requirements.txt").read_text() == f"{NATIVE}\n"


def test_other_classes_of_the_project_are_left_alone(call, tree):
    root = tree(
        a_dot_py=MAKES,
        b_dot_py=READS.format(method="make_tf_dataset"),
        c_dot_py="class Corpus:\n    def make_tf_dataset(self, batch_size):\n"
        "        return self.converter.make_tf_dataset(batch_size)\n",
    )
    assert call(".", "--write", *STREAMING).exit_code == 0
    assert (root / "b.py").read_text() == READS.format(method="make_tf_dataset")


def test_one_file_is_seen_in_its_repository(call, tree):
    root = tree(a_dot_py=MAKES, b_dot_py=READS.format(method="make_tf_dataset"))
    assert "0 to rewrite" in call("b.py", "--check", *STREAMING).stdout
    (root / ".git").mkdir()
    assert "1 to rewrite" in call("b.py", "--check", *STREAMING).stdout


@pytest.mark.parametrize("to", ["bridge", "streaming"])
def test_an_import_that_nothing_uses_stays_and_is_said_to_be_unused(call, tree, to):
    root = tree(a_dot_py="import petastorm\n", requirements_dot_txt="petastorm\n")
    answer = call(".", "--to", to, "--write")
    assert "unused, remove the import: petastorm [needs a human]" in answer.stdout
    assert (root / "a.py").read_text() == "import petastorm\n"
    assert (root / "requirements.txt").read_text() == "petastorm\n"


CONVERTER = """from petastorm.spark import SparkDatasetConverter, make_spark_converter
spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, url)
spark.conf.set("petastorm.spark.converter.parentCacheDirUrl", url)
converter = make_spark_converter(df)
"""


@pytest.mark.parametrize("to", ["bridge", "streaming"])
def test_reports_name_calls_and_keys_that_need_no_edit_of_their_own(call, tree, to):
    tree(a_dot_py=CONVERTER)
    report = json.loads(call(".", "--to", to, "--report", "json").stdout)
    (file,) = report["files"]
    assert [(site["line"], site["state"]) for site in file["sites"]] == [
        (1, "rewritten"),
        (2, "rewritten"),
        (3, "works as it is"),
        (4, "rewritten"),
    ]
    assert (report["counts"]["sites rewritten"], report["counts"]["sites left"]) == (1, 0)
    assert (
        "| a.py | 3 | PM002 | works as it is |"
        in call(".", "--report", "markdown", *STREAMING).stdout
    )
    assert "1 place rewritten, 0 left to you" in call(".", "--to", to, "--write").stdout
    again = call(".", "--to", to, "--report", "json")
    (file,) = json.loads(again.stdout)["files"]
    assert (again.exit_code, file["status"]) == (0, "unchanged")
    assert {site["state"] for site in file["sites"]} == {"works as it is"}


def test_reports_say_how_sure_each_result_is(call, tree):
    key = 'spark.conf.set("SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF", url)\n'
    tree(a_dot_py=MAKES + key + "thing.make_torch_dataloader(2, other=p)\n")
    answer = json.loads(call(".", "--report", "json", *STREAMING).stdout)
    (file,) = answer["files"]
    found = [
        (site["code"], site["safety"], site["state"], site["confidence"]) for site in file["sites"]
    ]
    assert found == [
        ("PM101", "safe", "rewritten", "high"),
        ("PM101", "safe", "rewritten", "high"),
        ("PM106", "behaviour-changing", "needs --unsafe", "none"),
        ("PM102", "manual", "needs a human", "none"),
    ]
    unsafe = call(".", "--report", "markdown", "--unsafe", *STREAMING).stdout
    assert "a.py | 3 | PM106 | rewritten | medium |" in unsafe
    assert "a.py | 4 | PM102 | needs a human | none |" in unsafe
    sarif = json.loads(call(".", "--report", "sarif", *STREAMING).stdout)["runs"][0]
    assert [result["level"] for result in sarif["results"]] == ["note", "note", "warning"]
    assert "--exclude" in sarif["tool"]["driver"]["rules"][0]["help"]["text"]
    assert "migration_guide" not in json.dumps(sarif)  # which is not where the user is


STEERING = "\x1b[2J\x9b1m\u202e"


@pytest.mark.slow
def test_nothing_in_names_and_contents_steers_a_terminal(tree):
    text = f"x = '{STEERING}'\n{OLD}import petastorm.local_disk_cache\n"
    root = tree(**{f"a{STEERING}_dot_py": text, f"b{STEERING}_dot_py": "petastorm = = 1\n"})
    for options in ([], ["--check"], ["--diff"], ["--report", "markdown"], ["--select", STEERING]):
        master, slave = os.openpty()
        subprocess.run(
            [
                sys.executable,
                "-m",
                "petastorm_bridge",
                "codemod",
                ".",
                "--to",
                "bridge",
                *options,
            ],
            stdout=slave,
            stderr=slave,
            cwd=root,
            env={**os.environ, "TERM": "dumb"},
            check=False,
        )
        os.close(slave)
        shown = read_all(master)
        assert "\\x1b[2J\\x9b1m\\u202e" in shown, shown
        assert not any(each in shown for each in STEERING if each not in "[2J1m"), shown


def read_all(descriptor):
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # Linux's way to say that no one writes any more
            part = b""
        if not part:
            os.close(descriptor)
            return b"".join(parts).decode()
        parts.append(part)


@pytest.mark.parametrize(
    "options", [[], ["--check"], ["--statistics"], *(["--report", name] for name in FORMATS)]
)
def test_nothing_steers_a_terminal_behind_a_pipe(call, tree, options):
    text = f"x = '{STEERING}'\n{OLD}import petastorm.local_disk_cache\n"
    tree(**{f"a{STEERING}_dot_py": text, f"b{STEERING}_dot_py": "petastorm = = 1\n"})
    answer = call(".", "--to", "bridge", *options)
    assert not any(each in answer.output for each in "\x1b\x9b\u202e"), answer.output


def test_patches_have_names_and_contents_as_they_are(call, tree):
    """Git could not apply them otherwise."""
    tree(**{f"a{STEERING}_dot_py": f"x = '{STEERING}'\n{OLD}"})
    answer = call(".", "--to", "bridge", "--diff")
    assert f"b/a{STEERING}.py" in answer.stdout
    assert f"'{STEERING}'" in answer.stdout


def test_names_in_no_encoding(call, tree):
    root = tree(a_dot_py=OLD)
    os.rename(root / "a.py", os.path.join(os.fsencode(root), b"\xff.py"))
    for options in ([], ["--diff"], ["--check"], ["--report", "markdown"]):
        answer = call(".", "--to", "bridge", *options)
        assert answer.exit_code == 1, answer.output
        assert "\\udcff.py" in answer.stdout


def test_pipes_and_devices_are_not_waited_for(call, tree):
    root = tree(a_dot_py=OLD)
    os.mkfifo(root / "pipe.py")
    answer = call("pipe.py", "a.py", "--to", "bridge", "--write")
    assert answer.exit_code == 2
    assert "pipe.py: failed: left alone, because it is no regular file" in answer.stdout
    assert (root / "a.py").read_text() == NEW
    assert call(".", "--to", "bridge").exit_code == 0


@pytest.mark.parametrize("name", [".gitignore", "mds_support.py"])
def test_pipes_in_place_of_our_own_files_are_not_waited_for(call, tree, name):
    root = tree(a_dot_py="from petastorm.spark import make_spark_converter\n")
    os.mkfifo(root / name)
    assert call("a.py", ".", "--vendor", *STREAMING).exit_code in {1, 2}
    assert "write_mds" not in (root / "a.py").read_text()


def test_petastorm_itself_is_left_alone(call, tree):
    text = "from petastorm.spark import make_spark_converter\n"
    root = tree(petastorm__unischema_dot_py=text, petastorm__tests__a_dot_py=text, b_dot_py=text)
    (root / "petastorm/__init__.py").write_text(text)
    answer = call(".", "--to", "bridge", "--write")
    assert answer.exit_code == 1
    assert answer.stdout.count("package left alone, it is Petastorm itself") == 1
    assert (root / "petastorm/tests/a.py").read_text() == text
    assert "petastorm_bridge" in (root / "b.py").read_text()


def test_a_notebook_that_runs_another_keeps_the_names_it_uses(call, tree):
    head = "# Databricks notebook source\n"
    first = "from petastorm.spark import make_spark_converter\n# COMMAND ----------\n# MAGIC %run ./lib/second\n"
    root = tree(
        first_dot_py=head + first, lib__second_dot_py=head + "c = make_spark_converter(df)\n"
    )
    assert call(".", "--write", *STREAMING).exit_code == 0
    assert "import write_mds as make_spark_converter" in (root / "first.py").read_text()
    assert call(".", "--check", *STREAMING).exit_code == 0


def test_speed_that_a_rewrite_loses_is_told(call, tree):
    loader = "with c.make_torch_dataloader(num_epochs=1, workers_count=40) as batches:\n    fit(batches)\n"
    tree(a_dot_py=MAKES + loader)
    assert (
        "without workers_count; rows are read one by one" in call(".", "--check", *STREAMING).stdout
    )
    assert "one by one" not in call(".", "--check", "--fast", *STREAMING).stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--check", "--write"),
        ("--diff", "--write"),
        ("--to=bridge", "--fast"),
        ("--to=bridge", "--vendor"),
        ("--to=streaming", "--vendor", "--fast"),
    ],
)
def test_options_that_exclude_each_other(call, tree, options):
    root = tree(a_dot_py=OLD)
    answer = call(".", *options)
    assert (answer.exit_code, "hoose one" in answer.output) == (2, True)
    assert (root / "a.py").read_text() == OLD


def test_a_file_whose_name_is_as_long_as_names_may_be_is_written(tmp_path):
    """What takes its place is first written beside it, under a name of its own."""
    path = tmp_path / f"{'n' * 252}.py"
    path.write_text("old")
    write_atomically(str(path), b"new")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["new"]


def test_a_link_that_is_named_is_not_written_through(call, tree):
    root = tree(outside__a_dot_py=OLD, inside__x_dot_py="")
    (root / "inside/link.py").symlink_to(root / "outside/a.py")
    answer = call("inside/link.py", "--to=bridge", "--write")
    assert (answer.exit_code, "it is a link" in answer.stdout) == (2, True)
    assert (root / "outside/a.py").read_text() == OLD


def test_without_a_path_it_is_here_and_numbers_agree(call, tree):
    tree(a_dot_py=OLD + "import petastorm.local_disk_cache\n")
    answer = call("--to", "bridge")
    assert "--- a/a.py" in answer.stdout
    assert "1 file looked at: 1 to rewrite, 1 needs a human" in answer.stdout
    assert "--write to write" in answer.stdout


def test_help_shows_defaults_and_no_types_of_flags(call):
    text = " ".join(call("-h").output.split())
    assert '[default: "to" of [tool.petastorm-bridge] in pyproject.toml]' in text
    assert "[default: all cores]" in text
    assert "bool" not in text


@pytest.mark.parametrize("arguments", [["--version"], ["codemod", "--help"]])
def test_neither_rich_nor_libcst_is_loaded_for_help(arguments):
    code = (
        "import sys; from petastorm_bridge.cli import app\n"
        f"try: app({arguments!r})\n"
        "except SystemExit: print([n for n in "
        "('libcst', 'rich', 'pydantic', 'importlib.resources') if n in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.endswith("[]\n")


def test_only_what_changes_is_coloured(call, tree, monkeypatch):
    """The rest has the terminal's own colour, which can be read on a light one, too."""
    tree(a_dot_py=f"import os\n\n{OLD}\nprint(os)\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = call(".", "--to", "bridge").stdout.splitlines()
    assert [line for line in lines if line.startswith(" ")] == [
        " import os",
        " ",
        " ",
        " print(os)",
    ]
    coloured = [line.partition("m")[2] for line in lines if line.startswith("\x1b[3")]
    assert [line[:1] for line in coloured] == ["@", "-", "+"]
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR")
    assert "\x1b" not in call(".", "--to", "bridge").output
