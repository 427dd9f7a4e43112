"""Reports for services, numbers by rule, the file that they are written to, and hooks."""

import json
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from typer.testing import CliRunner

from petastorm_bridge.cli import app
from petastorm_codemods._model import NeedsHuman, Result, Safety, Site, State
from petastorm_codemods._project.listing import is_wanted
from petastorm_codemods._registry import all_rules
from petastorm_codemods._reports import formats
from petastorm_codemods._reports.guide import NOW

pytestmark = pytest.mark.modern

ROOT = Path(__file__).parents[2]
OLD = "from petastorm import TransformSpec\n"
LEFT = "import petastorm.local_disk_cache\n"
CELL = '{"cells":[{"cell_type":"code","source":"import petastorm.local_disk_cache"}]}'


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run the command in a directory with a rewrite, a place for a human, a notebook and a broken file."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a, 100%:b.py").write_text(OLD + LEFT + LEFT)
    (tmp_path / "broken.py").write_text("petastorm = = 1\n")
    (tmp_path / "n.ipynb").write_text(CELL)
    monkeypatch.chdir(tmp_path)
    return lambda *given: CliRunner().invoke(app, ["codemod", "--to", "bridge", *given])


def check_sarif(document):
    """Check what SARIF 2.1.0's schema requires of the objects that we write.

    That is a part of the schema, written down by hand: which properties must be there, of which type,
    and that indices and ids belong together.
    """
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    for run in document["runs"]:
        driver = run["tool"]["driver"]
        assert isinstance(driver["name"], str)
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*", driver["version"])
        assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
        for rule in driver["rules"]:
            texts = (rule[key] for key in ("shortDescription", "fullDescription", "help"))
            assert all(text["text"] for text in texts)
            assert "helpUri" not in rule or urlsplit(rule["helpUri"]).scheme
        for result in run["results"]:
            assert result["message"]["text"]
            assert result["level"] in {"none", "note", "warning", "error"}
            assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
            for location in result["locations"]:
                check_place(location["physicalLocation"])


def check_place(place):
    uri = place["artifactLocation"]["uri"]
    assert re.fullmatch(r"(?!\./)(?:[\w.~!$&'()*+,;=:@/-]|%[0-9A-F]{2})+", uri)
    assert ":" not in uri.split("/")[0]
    region = place.get("region", {"startLine": 1})
    assert all(isinstance(number, int) and number > 0 for number in region.values())


def test_sarif(call):
    answer = call("./", "--report", "sarif")
    document = json.loads(answer.stdout)
    check_sarif(document)
    results = document["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    paths = [unquote(place["artifactLocation"]["uri"]) for place in places]
    assert paths == ["n.ipynb", *["src/a, 100%:b.py"] * 3, "broken.py"]
    assert [place.get("region", {}).get("startLine") for place in places] == [None, 1, 2, 3, None]
    levels = [result["level"] for result in results]
    assert levels == ["warning", "note", "warning", "warning", "error"]
    prints = [result["partialFingerprints"]["petastormBridge/v1"] for result in results]
    assert len(set(prints)) == 5


def test_rules_lead_to_the_guide_where_it_is_published(call, monkeypatch):
    monkeypatch.setattr("petastorm_codemods._registry.GUIDE", "https://guide.example/")
    monkeypatch.setattr(formats, "GUIDE", "https://guide.example/")
    document = json.loads(formats.to_sarif(Result((), 0)))
    check_sarif(document)
    driver = document["runs"][0]["tool"]["driver"]
    assert driver["informationUri"] == "https://guide.example/"
    found = [rule["helpUri"] for rule in driver["rules"]]
    assert found == [f"https://guide.example/rules.md#{r.code.lower()}" for r in all_rules()]


def test_github(call):
    """Decoded as the runner does: https://github.com/actions/toolkit, packages/core/src/command.ts."""
    found = [
        re.fullmatch(r"::(\w+) ([^:]*)::([^\r\n]*)", line)
        for line in call(".", "--report", "github").stdout.splitlines()
    ]
    assert [match[1] for match in found] == ["warning", "notice", "warning", "warning", "error"]
    places = [dict(pair.split("=", 1) for pair in match[2].split(",")) for match in found]
    decoded = [{name: unquote(value) for name, value in place.items()} for place in places]
    assert decoded[0] == {"file": "n.ipynb", "title": "petastorm-bridge (PM003)"}
    assert decoded[2] == {
        "file": "src/a, 100%:b.py",
        "line": "2",
        "col": "1",
        "title": "petastorm-bridge (PM003)",
    }
    assert found[0][3].startswith("PM003 cell 1, line 1: petastorm_bridge has no local_disk_cache")


def test_nothing_in_a_message_ends_a_command_of_github():
    message = "50% of\r\nlines\n::error::"
    site = Site("PM003", 1, 1, None, message, Safety.MANUAL, State.MANUAL)
    text = formats.to_github(Result((NeedsHuman("a\n::b.py", b"", b"", (site,)),), 1))
    assert text == (
        "::warning file=a%0A%3A%3Ab.py,line=1,col=1,title=petastorm-bridge (PM003)"
        "::PM003 50%25 of%0D%0Alines%0A::error::"
    )


def test_gitlab(call, tmp_path):
    found = json.loads(call(".", "--report", "gitlab").stdout)
    assert [(each["check_name"], each["severity"]) for each in found] == [
        ("PM003", "major"),
        ("PM001", "minor"),
        ("PM003", "major"),
        ("PM003", "major"),
        ("PM000", "critical"),
    ]
    assert found[2]["location"] == {"path": "src/a, 100%:b.py", "lines": {"begin": 2}}
    assert all(each["description"].startswith(each["check_name"]) for each in found)
    prints = [each["fingerprint"] for each in found]
    assert len(set(prints)) == 5
    path = tmp_path / "src/a, 100%:b.py"
    path.write_text(f"x = 1\n\n{path.read_text()}")
    again = json.loads(call(str(tmp_path), "--report", "gitlab").stdout)
    assert [each["fingerprint"] for each in again] == prints
    assert again[2]["location"]["lines"] == {"begin": 4}


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("json", "a.json"),
        ("sarif", "a.sarif.json"),
        ("markdown", "a.md"),
        ("github", "a.txt"),
        ("gitlab", "a.json"),
    ],
)
def test_a_report_in_a_file_is_the_one_that_is_printed(call, tmp_path, form, name):
    shown = call(".", "--report", form)
    refused = call(".", "--report", form, "--output-file", f"out/{name}", "--write")
    assert refused.exit_code == 2
    assert "there is no directory" in refused.output
    assert call(".", "--report", form).stdout == shown.stdout  # nothing was written
    (tmp_path / "out").mkdir()
    place = tmp_path / f"out/{name}"
    for _ in range(2):  # the second run does not read what the first has written
        answer = call(".", "--report", form, "--output-file", f"out/{name}")
        assert answer.exit_code == shown.exit_code == 1
        assert place.read_text() == shown.stdout
        assert "3 files looked at" in answer.stdout
        assert "PM003 petastorm_bridge has no" not in answer.stdout
    assert os.listdir(tmp_path / "out") == [name]


def test_a_report_that_cannot_be_written_is_none_at_all(call, tmp_path, monkeypatch):
    (tmp_path / "report.md").write_text("before")
    given = (".", "--report", "markdown", "--output-file")
    answer = call(*given, "src", "--write")
    assert (answer.exit_code, "src is no regular file" in answer.output) == (2, True)
    assert (tmp_path / "src/a, 100%:b.py").read_text().startswith(OLD)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert call(*given, "report.md").exit_code == 2
    assert (tmp_path / "report.md").read_text() == "before"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


@pytest.mark.parametrize(
    "options",
    [
        ("--output-file", "x"),
        ("--report", "json", "--statistics"),
        ("--diff", "--statistics"),
        ("--report", "xml"),
    ],
)
def test_wrong_options_are_exit_code_2(call, tmp_path, options):
    assert call(".", *options).exit_code == 2
    assert not (tmp_path / "x").exists()


def test_a_fault_of_ours_is_exit_code_2(call, monkeypatch):
    def fault(*_, **__):
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("petastorm_codemods._terminal.run", fault)
    answer = call(".")
    assert answer.exit_code == 2
    assert "a fault of this tool: ZeroDivisionError: of ours" in answer.output


def test_statistics_count_what_is_left_by_rule(call):
    answer = call(".", "--statistics")
    lines = answer.stdout.splitlines()
    names = {rule.code: rule.name for rule in all_rules()}
    assert lines[:4] == [
        f"3\tPM003\t[ ] {names['PM003']}",
        f"1\tPM000\t[ ] {names['PM000']}",
        f"1\tPM001\t[*] {names['PM001']}",
        "[*] rewritten with --write",
    ]
    assert lines[4].startswith("3 files looked at: ")
    after = call(".", "--statistics", "--write")
    assert "PM001" not in after.stdout.split(" looked at")[0]
    assert (answer.exit_code, after.exit_code) == (1, 1)


def test_hooks_see_every_kind_of_file():
    """They name no files and no types, as the command takes files by names of many kinds."""
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    hooks = text.split("- id: ")[1:]
    assert len(hooks) == 2
    for hook in hooks:
        options = dict(re.findall(r"^  (\w+): (.*)$", hook, re.MULTILINE))
        assert not {"types", "types_or", "files", "exclude"} & options.keys()
        given = [options[name] for name in ("pass_filenames", "always_run", "require_serial")]
        assert given == ["false", "true", "true"]
    names = "a.py n.ipynb requirements-dev.txt pyproject.toml setup.cfg environment.yml Dockerfile Makefile"
    assert all(is_wanted(name) for name in names.split())


def test_sentences_on_several_names_agree_and_texts_of_rules_are_not_indented(call, tmp_path):
    (tmp_path / "two.py").write_text("from petastorm import TransformSpec, make_batch_reader\n")
    driver, results = (
        json.loads(call(".", "--report", "sarif").stdout)["runs"][0][key]
        for key in ("tool", "results")
    )
    said = [each["message"]["text"] for each in results if each["ruleId"] == "PM001"]
    assert sorted({each.partition(" from ")[0].rpartition(" ")[2] for each in said}) == [
        "come",
        "comes",
    ]
    texts = [rule["fullDescription"]["text"] for rule in driver["driver"]["rules"]]
    items = re.compile(r"^- .*(?:\n  \S.*)+", re.MULTILINE)  # of lists, with the lines that go on
    assert not [text for text in texts if "\n " in items.sub("", text)]


LOADER = "with conv.make_torch_dataloader({}) as loader:\n    {}\n"
MAKER = "from petastorm.spark import make_spark_converter\nconv = make_spark_converter(df)\n"


@pytest.mark.parametrize(
    ("arguments", "body", "said"),
    [
        ("num_epochs=1", "fit(loader)", set()),
        ("num_epochs=3", "fit(loader)", {"Short batches"}),
        ("num_epochs=3 if train else None", "fit(loader)", {"Short batches"}),
        ("num_epochs=1 if train else None", "fit(loader)", set()),
        ("", "fit(loader)", set()),
        ("shuffle_row_groups=False", "fit(loader)", {"Rows left out"}),
        ("num_epochs=1, shuffle_row_groups=False", "fit(loader)", set()),
        ("num_epochs=1", "x, y = next(iter(loader)).values()", set()),
        ("num_epochs=1, transform_spec=spec", "x, y = next(iter(loader)).values()", set()),
        ("num_epochs=1, cur_shard=hvd.rank(), shard_count=hvd.size()", "fit(loader)", {"Horovod"}),
        (
            "num_epochs=1, cur_shard=trainer.global_rank, shard_count=trainer.world_size",
            "fit(loader)",
            {"Ranks"},
        ),
    ],
)
def test_a_run_says_what_concerns_this_repository_and_nothing_else(
    call, tmp_path, arguments, body, said
):
    (tmp_path / "train.py").write_text(MAKER + 2 * LOADER.format(arguments, body))
    words = {"Short batches", "Rows left out", "columns", "Horovod", "Ranks"}
    lines = call("train.py", "--to", "streaming", "--check").stdout.splitlines()
    closing = lines[next(n for n, line in enumerate(lines) if "looked at" in line) :]
    found = [line for line in closing if any(word in line for word in words)]
    assert {word for word in words if any(word in line for line in found)} == said
    assert len(found) == len(said)
    assert all("2 calls" in line for line in found)


def test_loaders_without_a_shard_are_counted_where_other_files_take_one(call, tmp_path):
    """In a file that takes one they stay on the bridge."""
    sharded = LOADER.format(
        "num_epochs=1, cur_shard=trainer.global_rank, shard_count=trainer.world_size", "fit(loader)"
    )
    whole = LOADER.format("num_epochs=1", "validate(loader)")
    for one, other, said in (
        (sharded, 2 * whole, "2 calls"),
        (sharded, sharded, None),
        (whole, whole, None),
    ):
        (tmp_path / "train.py").write_text(MAKER + one)
        (tmp_path / "validate.py").write_text(MAKER + other)
        lines = call(".", "--to", "streaming", "--check").stdout.splitlines()
        found = [line for line in lines if line.startswith("Whole datasets:")]
        assert len(found) == bool(said)
        assert all(said in line for line in found)


def test_a_run_says_that_loaders_in_files_that_were_not_given_would_break(call, tmp_path):
    (tmp_path / "maker.py").write_text(MAKER)
    (tmp_path / "train.py").write_text(
        "from maker import conv\n" + LOADER.format("", "fit(loader)")
    )
    for given, says in (("maker.py", True), (".", False)):
        lines = call(given, "--to", "streaming", "--check").stdout.splitlines()
        assert any(line.startswith("No loaders:") for line in lines) == says
    assert "No loaders:" not in call("maker.py", "--to", "bridge", "--check").stdout


def test_a_run_says_nothing_of_loaders_elsewhere_where_nothing_is_made(call, tmp_path):
    (tmp_path / "setting.py").write_text(
        "from petastorm.spark import SparkDatasetConverter, make_spark_converter\n"
        "spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, url)\n"
    )
    assert "No loaders:" not in call("setting.py", "--to", "streaming", "--check").stdout


def test_places_are_printed_as_they_are(call, tmp_path):
    """Rich takes ``:100:`` for the name of a picture."""
    (tmp_path / "long.py").write_text("\n" * 99 + LEFT)
    assert "long.py:100:1: PM003" in call("long.py", "--check").stdout


def test_a_run_says_no_such_thing_of_loaders_that_it_leaves_to_somebody(call, tmp_path):
    shape = "class Shape:\n    def make_torch_dataloader(self): ...\n"
    open_one = "def train(conv):\n    with conv.make_torch_dataloader(num_epochs=1) as loader:\n        fit(loader)\n"
    (tmp_path / "maker.py").write_text(MAKER + shape + open_one)
    said = call(".", "--to", "streaming", "--check").stdout
    assert "may be another class's" in said
    assert "No loaders:" not in said


def test_a_run_says_which_texts_show_code_that_imports_petastorm(call, tmp_path):
    (tmp_path / "train.py").write_text(
        "from petastorm import TransformSpec\n\nspec = TransformSpec(func)\n"
    )
    texts = {
        "README.md": "# Training\n\n```python\nfrom petastorm.spark import SparkDatasetConverter\n```\n",
        "docs/usage.rst": ">>> import petastorm\n>>> import petastorm.spark\n",
        "notebooks/etl.sql": "-- Databricks notebook source\n-- MAGIC %python\n-- MAGIC from petastorm import x\n",
        "CHANGES.md": "Data moved\nfrom petastorm to MDS.\n\nfrom petastorm_bridge import x\n",
        "notes.md": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for destination in ("bridge", "streaming"):
        ran = call(".", "--to", destination, "--write")
        lines = [line for line in ran.stdout.splitlines() if line.startswith("Texts:")]
        places = "README.md:4, docs/usage.rst:1, notebooks/etl.sql:3"
        told = f"Texts: code that imports petastorm stands in {places} too, where nothing is rewritten."
        assert lines == [told]
        assert call("docs", "--to", destination, "--check").exit_code == 0
    assert {name: (tmp_path / name).read_text() for name in texts} == texts


def test_a_run_names_some_texts_where_many_import_petastorm(call, tmp_path):
    for number in range(8):
        (tmp_path / f"page{number}.md").write_text("    import petastorm\n")
    (line,) = [
        line
        for line in call(".", "--to", "bridge", "--check").stdout.splitlines()
        if line.startswith("Texts:")
    ]
    assert "page4.md:1 and 3 more too" in line


def test_a_run_of_readers_alone_says_nothing_of_loaders_elsewhere(call, tmp_path):
    (tmp_path / "read.py").write_text(
        "from petastorm import TransformSpec, make_batch_reader\n"
        "for batch in make_batch_reader(url, transform_spec=TransformSpec(func)):\n    fit(batch)\n"
    )
    assert "No loaders:" not in call("read.py", "--to", "streaming", "--check").stdout


def test_a_run_says_which_classes_extend_another_one_now(call, tmp_path):
    (tmp_path / "stones.py").write_text(
        "import petastorm.spark as ps\n"
        "class Stones(ps.SparkDatasetConverter):\n    pass\n"
        "conv = ps.make_spark_converter(df)\n"
    )
    said = "stones.py:2:1: PM101 Stones extends MdsDirectory now"
    assert said in call(".", "--to", "streaming", "--write").stdout
    assert said not in call(".", "--to", "streaming", "--check").stdout
    assert "extends" not in call(".", "--to", "bridge", "--check").stdout


@pytest.mark.parametrize("destination", ["bridge", "streaming"])
def test_nothing_names_a_page_that_readers_may_not_have(call, tmp_path, destination):
    (tmp_path / "train.py").write_text(MAKER + LOADER.format("num_epochs=3", "fit(loader)"))
    for options in ((), ("--report", "sarif"), ("--report", "json"), ("--report", "markdown")):
        told = call(".", "--to", destination, *options).stdout
        assert "migration_guide" not in told
        assert not re.search(r"\b[\w-]+\.md\b", told)
    driver = json.loads(call(".", "--report", "sarif").stdout)["runs"][0]["tool"]["driver"]
    helps = {rule["id"]: rule["help"]["text"] for rule in driver["rules"]}
    assert helps["PM000"] == NOW["PM000"]
    assert all(helps.values())
