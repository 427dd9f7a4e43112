"""The guide: generated pages are current, links lead somewhere, and its code runs."""

import html
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import warm
from guide import blocks, commands, named

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks._settings import SUBJECTS, TITLES  # noqa: E402 - no package, run from the root

GUIDE = ROOT / "migration_guide"
PAGES = sorted(GUIDE.glob("*.md"))
LAYOUT = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]


def anchors(page):
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.slow
@pytest.mark.smoke
def test_generated_pages_are_current():
    command = [sys.executable, str(ROOT / "tools" / "build_docs.py"), "--check"]
    # It imports no engine: a new Python is there sooner than one that forks, if there is none yet.
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name) if name else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize("page", LAYOUT, ids=lambda page: page.name)
def test_files_and_folders_are_where_the_layout_says(page):
    there = "\n".join(
        path.relative_to(ROOT).as_posix() + ("/" if path.is_dir() else "")
        for top in (
            "bridge",
            "codemods",
            "tests",
            "tools",
            "requirements",
            "benchmarks",
            "examples",
        )
        for path in (ROOT / top).rglob("*")
    )
    named = set(re.findall(r"[\w./-]*\w(?:\.py|/)(?=[\s`,;:)]|$)", page.read_text("utf-8")))
    named -= {"codemods/petastorm_codemods/rules/pm0xx_name.py"}
    assert len(named) > 20
    for name in named:
        assert re.search(rf"(?:^|/){re.escape(name)}(?:$|\w)", there, re.MULTILINE), name


@pytest.mark.parametrize("page", [*PAGES, *LAYOUT], ids=lambda page: page.name)
def test_each_page_says_for_whom_it_is(page):
    if page.name.startswith("api-"):  # a module's docstring
        return
    text = re.sub("<!--.*?-->", "", page.read_text("utf-8"), flags=re.DOTALL)
    title, first, *_ = text.strip().split("\n\n")
    assert title.startswith("# ")
    assert first.startswith("For ")


def test_messages_name_what_users_have():
    """A command that explains more, and no page of a folder that is not installed."""
    from petastorm_bridge._tables.differences import DIFFERENCES

    sources = [*(ROOT / "bridge").rglob("*.py"), *(ROOT / "codemods").rglob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    assert "migration_guide" not in text
    explained = set(re.findall(r"petastorm-bridge difference ([\w-]+)`", text))
    assert "tf-null-warning" in explained
    assert explained <= {each.name for each in DIFFERENCES}


def test_versions_of_the_policy_are_those_that_are_tested():
    text = (GUIDE / "policy.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    table = {row[0]: row[1:] for row in rows if len(row) == 3 and row[0] != "---"}
    names = {
        "Spark": "pyspark",
        "pyarrow": "pyarrow",
        "NumPy": "numpy",
        "pandas": "pandas",
        "torch": "torch",
        "TensorFlow": "tensorflow-cpu",
        "mosaicml-streaming": "mosaicml-streaming",
        "Petastorm": "petastorm",
    }
    assert set(table) - {""} - set(names) == {"Python"}
    for column, stack in enumerate(("legacy", "modern")):
        pins = (ROOT / "requirements" / f"{stack}.txt").read_text("utf-8")
        for name, package in names.items():
            (version, *_) = re.findall(
                rf"^{package}(?:\[\w+\])?==(\S+?);?(?: |$)", pins, re.MULTILINE
            ) or [""]
            shown = table[name][column].split(",")[0]
            assert version == shown or version.startswith(f"{shown}.") or not version, name
            assert version or shown == "cannot be imported"


def test_every_option_has_an_anchor():
    from petastorm_bridge._tables.options import OPTIONS

    known = anchors(GUIDE / "options.md")
    for option in OPTIONS:
        assert f"{option.api}-{option.name}" in known


def programs(page):
    """The programs of a page by their names; each has one."""
    found = blocks(f"migration_guide/{page}.md")
    found = {name: code for name, language, code in found if language == "python"}
    assert found
    assert None not in found
    return found


def finished(code, folder, **environment):
    """Run a program in a folder to its end; return what it prints."""
    program = folder / "program.py"
    program.write_text(f"{code}\nprint('complete')\n")
    result = warm.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **environment},
    )
    assert result.stdout.strip().endswith("complete"), result.stdout + result.stderr
    return result.stdout


@pytest.mark.modern
@pytest.mark.spark
@pytest.mark.slow
def test_code_of_the_swap_page_runs(tmp_path):
    finished("\n".join(programs("swap-the-import").values()), tmp_path)


# Runs the blocks of each page in names of their own; one Spark session serves them all.
RUN_PAGES = """
import json
for name, code in json.load(open("pages.json")).items():
    print("page", name, flush=True)
    exec(compile(code, name, "exec"), {"__name__": name})
"""


@pytest.mark.modern
@pytest.mark.spark
@pytest.mark.slow
def test_code_of_the_shorter_pages_runs(tmp_path):
    names = ("spark-connect", "keras", "storage")  # the first is without a cache directory's conf
    pages = {name: "\n".join(programs(name).values()) for name in names}
    (tmp_path / "pages.json").write_text(json.dumps(pages))
    printed = finished(RUN_PAGES, tmp_path)
    texts = [
        code for _, language, code in blocks("migration_guide/storage.md") if language == "text"
    ]
    (shown,) = (text for text in texts if text.startswith("Parquet"))
    (found,) = re.findall(r"page storage\n(.*)complete", printed, re.DOTALL)
    for line, measured in zip(shown.splitlines(), found.splitlines(), strict=True):
        what, size = line.rsplit("  ", 1)
        assert measured.startswith(what)
        # Versions of the codecs differ a little.
        assert float(measured.split()[-2]) == pytest.approx(float(size.split()[0]), rel=0.15)


@pytest.mark.modern
@pytest.mark.slow
def test_code_of_the_pages_without_spark_runs(tmp_path):
    """And the program for torchrun: over an odd number of rows its ranks take as many steps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pages = {
        name: named(f"migration_guide/{name}.md")
        for name in ("distributed", "tuning", "where-your-data-lies")
    }
    train = pages["distributed"].pop("train.py")
    del pages["distributed"]["torchrun"]
    pages = {name: "\n".join(found.values()) for name, found in pages.items()}
    (tmp_path / "pages.json").write_text(json.dumps(pages))
    finished(RUN_PAGES, tmp_path, PYTHONWARNINGS="ignore")
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "data").mkdir()
    table = pa.table({"id": range(1025), "feature": [0.5] * 1025})
    pq.write_table(table, tmp_path / "data" / "part.parquet")
    (command,) = (c for c in commands("migration_guide/distributed.md") if "train.py" in c)
    words = command.replace("file:///data/train", f"file://{tmp_path}/data").split()
    result = warm.run(
        [sys.executable, "-m", "torch.distributed.run", *words[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert sorted(re.findall(r"rank \d: \d+ steps", result.stdout)) == [
        "rank 0: 9 steps",
        "rank 1: 9 steps",
    ]


@pytest.mark.slow
def test_code_of_the_parity_page_runs(tmp_path):
    """Its commands too: recorded with Petastorm where there is one, compared after swapping the import."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"id": range(200)}), tmp_path / "data" / "part.parquet")
    page = {
        name: code.replace("file:///data/train", f"file://{tmp_path}/data")
        for name, code in named("migration_guide/parity.md").items()
    }
    new = page["loaders.py"].replace("from petastorm", "from petastorm_bridge")
    old = page["loaders.py"] if find_spec("petastorm") else new
    shutil.copy(ROOT / "bridge" / "petastorm_bridge" / "parity" / "recorder.py", tmp_path)

    def run(*arguments):
        return warm.run(
            [sys.executable, "-W", "ignore", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )

    recording, compared = (
        command.split()
        for command in commands("migration_guide/parity.md")
        if "loaders:train" in command
    )
    assert recording[0] == "python"
    for _ in range(
        5
    ):  # Petastorm sometimes loses rows or all of them, and sometimes aborts afterwards
        (tmp_path / "loaders.py").write_text(old)
        first = run(*recording[1:], "--overwrite")
        (tmp_path / "loaders.py").write_text(new)
        second = run("-m", "petastorm_bridge", *compared[1:])
        if second.returncode == 0:
            break
    assert second.returncode == 0, first.stderr + second.stdout + second.stderr
    (tmp_path / "compare.py").write_text(page["python"])
    assert run("compare.py").stdout == "True None\n"
    (tmp_path / "failure.py").write_text(page["failure.py"])
    assert run("failure.py").returncode == 0
    command, _, said = page["failure"].partition("\n")
    different = run("-m", "petastorm_bridge", *command.split()[2:])
    assert different.returncode == 1
    assert [line.rstrip() for line in different.stdout.splitlines()] == said.splitlines()
    same = run("-m", "petastorm_bridge", *page["accepted"].split()[2:])
    assert same.returncode == 0, same.stdout
    (tmp_path / "test_loaders.py").write_text(page["test_loaders.py"])
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_loaders.py")
    assert run(*tests, "--parity-record").returncode == 0
    again = run(*tests)
    assert "2 passed" in again.stdout, again.stdout + again.stderr


MESSAGES_OF_OTHERS = {
    "File exists: '/000000_locals'": "streaming",
    "AF_UNIX path too long": "python",
    "terminate called without an active exception": "the C++ runtime",
    "No module named 'pyarrow.filesystem'": "petastorm",
    "default auth: cannot configure default credentials": "databricks",
    "Your input ran out of data": "keras",
    "Reused local directory": "streaming",
    "Too many open files": "the system",
    "Bus error, exit status 135": "the system's shell",
}


def test_the_page_of_trouble_quotes_messages_that_there_are():
    text = (GUIDE / "trouble.md").read_text(encoding="utf-8")
    messages = re.findall(r"^### (.+)$", text[: text.index("## What one sees")], re.MULTILINE)
    assert len(messages) > 10
    sources = [path.read_text("utf-8") for path in (ROOT / "bridge").rglob("*.py")]
    # A message that goes over lines stands in several literals.
    joined = [re.sub(r'"\s*\n\s*f?"', "", source) for source in sources]
    for message in messages:
        if message in MESSAGES_OF_OTHERS:
            continue
        wanted = message.removesuffix(" float32")
        assert any(wanted in source for source in joined), message


@pytest.mark.modern
@pytest.mark.spark
@pytest.mark.slow
def test_code_of_the_page_on_datasets_runs(tmp_path):
    """With its command, which prints what the page says."""
    pytest.importorskip("streaming", reason="needs the extra [streaming]")
    found = {
        name: code.replace("/tmp/", f"{tmp_path}/")
        for name, _, code in blocks("migration_guide/petastorm-datasets.md")
    }
    # The last two are tests/codemods/test_converted.py's.
    assert list(found) == ["write", "convert", "read", "option", "codemod"]
    finished(f"{found['write']}\n{found['read']}", tmp_path)
    command, _, said = found["convert"].partition("\n")
    arguments = command.removeprefix("$ petastorm-bridge ").split()
    result = warm.run(
        [sys.executable, "-m", "petastorm_bridge", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    size = r"[\d,]+ bytes"  # what zstd of another release makes of it
    assert re.sub(size, "", result.stdout) == re.sub(size, "", said)


@pytest.mark.modern
@pytest.mark.spark
@pytest.mark.slow
def test_code_of_the_native_page_runs(tmp_path):
    """Of its part on rewritten code; and what that says of ranks and of resumption."""
    pytest.importorskip("streaming", reason="needs the extra [streaming]")
    pieces = programs("native-streaming")
    train = tmp_path / "train.py"
    train.write_text(pieces.pop("train.py"))
    finished("\n".join(pieces.values()), tmp_path)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    both = ranks_of([*launcher, str(train)], tmp_path)
    assert [len(rows) for rows in both.values()] == [500, 500]
    assert sorted(both[0] + both[1]) == list(range(1000))
    begun = ranks_of([str(train)], tmp_path, STEPS="3")[0]
    went_on = ranks_of([*launcher, str(train)], tmp_path)
    assert len(begun) == 192
    assert sorted(begun + went_on[0] + went_on[1]) == list(range(1000))


def ranks_of(command, folder, **environment):
    """The rows that each rank of a program prints."""
    result = warm.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found, left, decoder = {}, result.stdout.strip(), json.JSONDecoder()
    while left:  # the ranks share a pipe, into which one may write between a text and its newline
        (rank, rows), end = decoder.raw_decode(left)
        found.setdefault(rank, []).extend(rows)
        left = left[end:].lstrip()
    return dict(sorted(found.items()))


# Pages with programs, and the tests that run each of their blocks.
RUN_BY = {
    "swap-the-import": "test_code_of_the_swap_page_runs",
    "keras": "test_code_of_the_shorter_pages_runs",
    "storage": "test_code_of_the_shorter_pages_runs",
    "spark-connect": "test_code_of_the_shorter_pages_runs",
    "distributed": "test_code_of_the_pages_without_spark_runs",
    "tuning": "test_code_of_the_pages_without_spark_runs",
    "where-your-data-lies": "test_code_of_the_pages_without_spark_runs",
    "parity": "test_code_of_the_parity_page_runs",
    "petastorm-datasets": "test_code_of_the_page_on_datasets_runs",
    "native-streaming": "test_code_of_the_native_page_runs",
    "many-repositories": "tests/project/test_five_people.py",
}


def test_no_program_of_a_page_is_left_unrun():
    for page in PAGES:
        for name, language, code in blocks(f"migration_guide/{page.name}"):
            if language == "python":
                assert name, f"{page.name}: {code}"
                assert page.stem in RUN_BY, page.name
    for test in RUN_BY.values():
        assert test in globals() or (ROOT / test).exists(), test


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_commands_have_the_options_that_pages_give_them(page):
    """Each `petastorm-bridge` command of a page is parsed by the command line itself, and not run."""
    from typer.main import get_command

    from petastorm_bridge.cli import app

    text = page.read_text("utf-8")
    found = commands(page.relative_to(ROOT))
    found += re.findall(r"(?:run:|entry:|- ) (petastorm-bridge .+)", text)
    for command in found:
        words = re.sub(r" (?:\|\|) .*|\)$", "", command).split()
        while words and words[0] != "petastorm-bridge":
            words = words[1:]
        group = get_command(app)
        words = [word.strip('"') for word in words[1:]]
        while words and hasattr(group, "commands"):
            group = group.commands[words.pop(0)]
        if words:
            group.make_context("petastorm-bridge", words, resilient_parsing=False)


# Commands of the pages that no test runs as they stand: which test runs them in which way, or why none does.
RUN_OTHERWISE = {
    "pip install .": "tools/ten_minutes.py installs it with extras, test_packaging.py without",
    "pip install '.[delta]'": "an extra of pyproject.toml as those that tools/ten_minutes.py installs",
    "pip install '.[all]'": "an extra of pyproject.toml as those that tools/ten_minutes.py installs",
    "pip wheel --no-deps --wheel-dir dist .": "test_packaging.py builds the wheel",
    "pip download --dest wheels dist/*.whl": "needs a package index, which tests do without",
    "pip install --no-index --find-links wheels petastorm-bridge": "needs what the one before downloads",
    "make demo": "test_examples.py runs its program",
    "make test-all": "runs the tests",
    "torchrun --standalone --nproc-per-node=2 train.py file:///data/train": "test_code_of_the_pages_without_spark_runs",
    "torchrun --standalone --nproc-per-node=2 train.py": "test_code_of_the_native_page_runs",
    "python recorder.py loaders:train --out golden/": "test_code_of_the_parity_page_runs",
    "petastorm-bridge parity compare golden/ loaders:train": "test_code_of_the_parity_page_runs",
    "petastorm-bridge parity compare old new": "test_code_of_the_parity_page_runs",
    "petastorm-bridge parity compare old new --tolerance float32=2e-07": "test_code_of_the_parity_page_runs",
    "petastorm-bridge convert file:///tmp/digits /tmp/digits-mds --compression zstd:3 --quiet": (
        "test_code_of_the_page_on_datasets_runs"
    ),
    "petastorm-bridge parity run --data /data/train --batch-size 64 --petastorm-python /old/env/bin/python "
    "--html parity.html": "tests/parity/test_live.py, with paths of its own",
    "petastorm-bridge codemod . --to streaming --converted file:///data/strokes=/data/strokes-mds": (
        "tests/codemods/test_converted.py, with a folder of its own"
    ),
}


def test_no_command_of_a_page_is_left_unrun():
    tests = (
        "".join(
            path.read_text("utf-8")
            for path in [*(ROOT / "tests").rglob("test_*.py"), ROOT / "tools" / "ten_minutes.py"]
            if path != pathlib.Path(__file__)
        )
        + pathlib.Path(__file__).read_text("utf-8").partition("RUN_OTHERWISE")[0]
    )
    left = set(RUN_OTHERWISE)
    for page in ["README.md", *(f"migration_guide/{page.name}" for page in PAGES)]:
        # A block with a name is run whole, by the test that asks for it.
        whole = [code for name, code in named(page).items() if f'"{name}"' in tests]
        for command in commands(page):
            if command in RUN_OTHERWISE:
                left.discard(command)
            elif not any(command in " ".join(code.split()) for code in whole):
                assert command in tests, f"{page}: {command}"
    assert not left
    for why in RUN_OTHERWISE.values():
        for place in re.findall(r"\S+\.py", why):
            assert (ROOT / place).exists() or (ROOT / "tests" / "project" / place).exists(), place


def test_questions_lead_to_headings():
    """What a stranger asks is answered one click from the first page."""
    text = (GUIDE / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+\?) \| .*\]\(([^)]+)\) \|$", text, re.MULTILINE)
    asked = " ".join(question for question, _ in rows)
    for word in ("nulls", "float32", "never end", "shard", "hang", "JVM", "disk", "undo"):
        assert word in asked, word
    for question, target in rows:
        name, _, anchor = target.partition("#")
        page = GUIDE / name if name else GUIDE / "README.md"
        lines = page.read_text("utf-8").splitlines()
        if not anchor:
            assert lines, question
            continue
        if f'<a id="{anchor}"></a>' in lines:
            heading = lines[lines.index(f'<a id="{anchor}"></a>') + 1]
        else:
            slugs = {
                re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-"): h
                for h in lines
                if h.startswith("#")
            }
            heading = slugs[anchor]
        assert heading.startswith("#"), (question, heading)


def test_what_to_do_now_is_said_of_every_rule_that_only_marks():
    from petastorm_codemods._model import Safety
    from petastorm_codemods._registry import all_rules
    from petastorm_codemods._reports.guide import NOW

    marking = {rule.code for rule in all_rules() if rule.safety is Safety.MANUAL}
    assert marking <= set(NOW) <= {rule.code for rule in all_rules()}


def test_every_environment_variable_is_explained():
    text = (GUIDE / "tuning.md").read_text("utf-8")
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "bridge").rglob("*.py"))
    named_there = set(re.findall(r"PETASTORM_BRIDGE_[A-Z_]+[A-Z]", sources))
    assert named_there
    for variable in named_there:
        assert f"`{variable}`" in text, variable


def test_figures_of_the_tuning_page_are_those_of_the_code():
    import inspect

    from petastorm_bridge import make_batch_reader
    from petastorm_bridge._sources._far import limits
    from petastorm_bridge.reader import _pool as pool
    from petastorm_bridge.spark._writing.codecs import DEFAULT_ROW_GROUP_SIZE_BYTES

    text = (GUIDE / "tuning.md").read_text("utf-8")
    assert f"The default is {DEFAULT_ROW_GROUP_SIZE_BYTES >> 20} MiB" in text
    defaults = inspect.signature(make_batch_reader).parameters
    assert f"{pool._AHEAD_BYTES >> 20} MiB" in text
    assert f"`results_queue_size` ({defaults['results_queue_size'].default})" in text
    assert f"and {defaults['workers_count'].default} in `make_batch_reader`" in text
    assert re.search(rf"REMOTE_ATTEMPTS` \|.*\| {limits.attempts()} \|", text)
    assert re.search(rf"REMOTE_TIMEOUT` \|.*\| {limits.timeout():.0f} \|", text)


@pytest.mark.slow  # it imports TensorFlow
@pytest.mark.smoke
def test_the_reference_has_every_public_name_with_its_arguments():
    import importlib
    import inspect

    pages = [path.read_text("utf-8") for path in sorted(GUIDE.glob("api-*.md"))]
    assert len(pages) == (GUIDE / "api.md").read_text("utf-8").count("| [`")
    text = "\n".join([*pages, (GUIDE / "api.md").read_text("utf-8")])
    shown = dict(
        re.findall(
            r"^## (\w+)\n\n```text\n\1\((.*?)\)(?: ->.*?)?\n```", text, re.MULTILINE | re.DOTALL
        )
    )
    compared = 0
    for module in re.findall(r"^# (petastorm_bridge[\w.]*)$", text, re.MULTILINE):
        try:
            there = importlib.import_module(module)
        except ImportError:  # an engine that is not installed here
            continue
        for name in there.__all__:
            if name.startswith("__"):
                continue
            assert f"`{name}`" in text, f"{module}.{name}"
            thing = getattr(there, name)
            if inspect.isfunction(thing) and name in shown:
                wanted = [p.name for p in inspect.signature(thing).parameters.values()]
                given = re.findall(r"(?:^|[,(]\s*|\n\s*)\*{0,2}(\w+)(?==|,|$)", shown[name])
                assert [n for n in given if n in wanted] == wanted, name
                compared += 1
    assert compared > 10


def test_each_race_is_in_the_picture_of_one_subject():
    assert sorted(itertools.chain(*SUBJECTS.values())) == sorted(TITLES)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_bars_of_a_subject_are_as_long_as_the_recorded_figures_say(subject):
    recorded = json.loads((ROOT / "benchmarks" / "results.json").read_text("utf-8"))["measurements"]
    page = (GUIDE / "speed.md").read_text("utf-8")
    (picture,) = re.findall(rf"## {subject}\n\n!\[[^]]*\]\((.*?)\)", page)
    text = html.unescape((GUIDE / picture).read_text("utf-8"))
    drawn = re.findall(r'end">(.*?)</text>\n<rect class="[^"]*" .*? width="([\d.]+)"', text)
    full = max(float(length) for _, length in drawn)
    wanted = []
    for group in SUBJECTS[subject]:
        race = [(one["median"], one["name"]) for one in recorded if one["group"] == group]
        if not race:  # not recorded yet, and not on the page
            continue
        longest = max(race)[0]
        wanted += [(name, max(1, full * median / longest)) for median, name in race]
    assert len(drawn) == len(wanted)
    lengths = sorted((name, float(length)) for name, length in drawn)
    for found, (name, length) in zip(lengths, sorted(wanted), strict=True):
        assert found == (name, pytest.approx(length, abs=0.06))


def test_the_four_bars_are_as_long_as_the_recorded_figures_say():
    recorded = json.loads((ROOT / "benchmarks" / "results.json").read_text("utf-8"))["measurements"]
    medians = {one["name"]: one["median"] for one in recorded if one["group"] == "torch-sequential"}
    wanted = [
        medians["bridge DataLoader"],
        medians["petastorm BatchedDataLoader"],
        medians["petastorm DataLoader"],
        medians["native StreamingDataLoader, 0 workers"],
    ]
    text = (GUIDE / "images" / "four_bars.svg").read_text("utf-8")
    lengths = [float(n) for n in re.findall(r'<rect class="bar[^>]* width="([\d.]+)"', text)]
    full = lengths[0]
    assert lengths == pytest.approx([max(1, full * n / wanted[0]) for n in wanted], abs=0.06)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # nothing from elsewhere
