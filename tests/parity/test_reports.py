"""The command line: what it prints and writes, and its exit codes."""

import json
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from parity_tables import batches, columns
from typer.testing import CliRunner

from petastorm_bridge.cli import app
from petastorm_bridge.parity import compare, record

pytestmark = pytest.mark.modern

TABLE = columns()
LOADERS = """
import sys
sys.path.insert(0, {folder!r})
from parity_tables import batches, changed, columns, flipped

def good():
    return batches(columns())

def bad():
    return batches(flipped(changed(columns(), "text", 40, "<b>& ` | \\x00"), "x", 23))

def failing():
    yield from batches(columns())
    raise OSError("the disk is gone")
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Run the command in a directory with a recording `golden` and a module of loaders."""
    from pathlib import Path

    name = f"loaders_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(LOADERS.format(folder=str(Path(__file__).parent)))
    monkeypatch.chdir(tmp_path)
    record(batches(TABLE), "golden")

    def run(*arguments):
        given = [a.replace("loaders:", f"{name}:") for a in arguments]
        return CliRunner().invoke(app, ["parity", *given])

    return run


def test_record_and_compare(call, tmp_path):
    answer = call("record", "loaders:good", "--out", "other")
    assert answer.exit_code == 0
    assert "60 rows in 8 batches, 10 columns: id int64, x float64" in answer.stdout
    answer = call("compare", "golden", "other")
    assert answer.exit_code == 0
    assert "SAME  golden and other give the same batches" in answer.stdout
    again = call("record", "loaders:good", "--out", "other")
    assert again.exit_code == 2
    assert again.output.startswith("petastorm-bridge parity: ")
    assert call("record", "loaders:good", "--out", "other", "--overwrite").exit_code == 0
    assert call("record", "loaders:good", "--out", "few", "--limit", "10").exit_code == 0
    assert "16 rows" in call("compare", "few", "golden").stdout


def test_a_difference_is_told_in_full(call):
    answer = call("compare", "golden", "loaders:bad")
    assert answer.exit_code == 1
    assert "DIFFERENT" in answer.stdout
    assert "[values] column 'x' differs in 1 row (1.67%), in row 23 (row 7 of batch 2)" in (
        answer.stdout
    )
    assert f"golden: {TABLE['x'][23]}" in answer.stdout
    assert re.search(r"text +1 +1\.67%", answer.stdout)


def test_junit_names_what_of_the_schema_differs(call, tmp_path):
    for name, table in (("dtype", {**TABLE, "id": TABLE["id"].astype("i4")}), ("missing", {})):
        record(batches(table or {n: c for n, c in TABLE.items() if n != "id"}), name)
        assert call("compare", "golden", name, "--junit", "report.xml").exit_code == 1
        failure = ET.parse(tmp_path / "report.xml").find(".//failure")
        assert failure.get("message").startswith(f"[{name}] column 'id' is ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["golden", "nothing"], "no recording nothing; a loader is written as module:function"),
        (["golden", "."], "is no recording: it has no manifest.json"),
        (["golden", "no_module:good"], "no module 'no_module'"),
        (["golden", "loaders.py:good"], "write loaders:good"),
        (["golden", "loaders:goood"], "has no 'goood'; there are good, bad,"),
        (["golden", "loaders:__name__.good"], "has no '__name__.good'"),
        (["golden", "loaders:good", "--limit", "0"], "limit is 0; it must be at least 1"),
        (
            ["golden", "loaders:failing"],
            "disk is gone petastorm-bridge parity: nothing was compared",
        ),
        (["golden", "golden", "--order", "any"], "it can be exact or shuffled"),
        (["golden", "golden", "--allow", "partition"], "no known difference is called"),
        (["golden", "golden", "--tolerance", "float32"], "not of the form DTYPE=RTOL"),
        (["golden", "golden", "--tolerance", "int32=1"], "no tolerance for 'int32'"),
        (["golden", "golden", "--key", "y"], "there is no column 'y'"),
    ],
)
def test_what_cannot_be_compared_is_exit_code_2(call, arguments, message):
    answer = call("compare", *arguments)
    assert answer.exit_code == 2
    assert message in " ".join(answer.output.split())


def test_options_reach_the_rules(call):
    flags = ["--order", "shuffled", "--batches", "any", "--nan", "any", "--tolerance", "float=1e-3"]
    answer = call("compare", "golden", "loaders:bad", *flags, "--ignore", "text")
    assert answer.exit_code == 0, answer.stdout
    assert answer.stdout.count("not compared") >= 2


@pytest.fixture
def reports(call, tmp_path):
    """The reports of a comparison that found differences, by kind."""
    kinds = {"json": "json", "junit": "xml", "markdown": "md", "html": "html"}
    flags = [f for kind, end in kinds.items() for f in (f"--{kind}", f"out/report.{end}")]
    refused = call("compare", "golden", "loaders:bad", *flags)
    assert refused.exit_code == 2
    assert "--json out/report.json: there is no directory out\n" in refused.output
    assert "DIFFERENT" not in refused.output  # before anything is compared
    (tmp_path / "out").mkdir()
    assert call("compare", "golden", "loaders:bad", *flags).exit_code == 1
    return {
        kind: (tmp_path / f"out/report.{end}").read_text("utf-8") for kind, end in kinds.items()
    }


def test_json(reports):
    report = json.loads(reports["json"])
    assert report["exit_code"] == 1
    result = report["results"][0]
    assert [p["promise"] for p in result["promises"]] == [
        "schema",
        "count",
        "rows",
        "order",
        "batches",
        "values",
    ]
    failure = result["first_failure"]
    assert (failure["promise"], failure["column"], failure["row"]) == ("values", "x", 23)
    assert failure["a"] == str(TABLE["x"][23])
    differing = {c["name"]: c["differing"] for c in result["columns"]}
    assert differing["x"] == differing["text"] == 1
    assert differing["id"] == 0
    assert result["a"]["versions"]["numpy"] == np.__version__


def test_junit(reports):
    suites = ET.fromstring(reports["junit"])
    suite = suites.find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("6", "1")
    failed = [case for case in suite if case.find("failure") is not None]
    assert [case.get("name") for case in failed] == ["values"]
    assert "column 'x'" in failed[0].find("failure").get("message")
    assert "column 'text'" in failed[0].find("failure").text


def test_markdown(reports):
    lines = reports["markdown"].splitlines()
    assert lines[0].startswith("## ❌")
    assert sum(line.startswith("| ") and line.count("|") == 4 for line in lines) == 7
    assert any("**First difference** (values): column 'x'" in line for line in lines)


def test_html(reports):
    assert "The batches are not the same." in reports["html"]
    assert "1 of 60 rows differs (1.67%)" in reports["html"]
    assert "<b>&amp;" not in reports["html"]


def test_histograms_count_every_value(call, tmp_path):
    flags = ["--html", "page.html", "--json", "report.json"]
    assert call("compare", "golden", "golden", *flags).exit_code == 0
    found = {
        c["name"]: c
        for c in json.loads((tmp_path / "report.json").read_text())["results"][0]["columns"]
    }
    for name, column in found.items():
        size = TABLE[name].size - (7 if name == "x" else 0)
        if name == "words":
            size -= 12
        if name == "text":
            size -= sum(value is None for value in TABLE["text"])
        assert sum(column["a"]["bins"]) == sum(column["b"]["bins"]) == size, name
    assert (found["x"]["a"]["nans"], found["text"]["a"]["nulls"]) == (7, 6)
    assert found["id"]["a"]["least"] == "0"
    assert found["when"]["b"]["greatest"].startswith("2020-01-03T11:00")


def test_the_values_of_several_ranks_are_counted_once(tmp_path):
    batch = {"t": np.array(["a", None], object), "x": np.array([np.nan, 1])}
    for rank, batches_of_rank in enumerate(([], [batch])):
        record(batches_of_rank, tmp_path / "side", rank=rank, world_size=2)
    text, number = compare(tmp_path / "side", tmp_path / "side", profile=True).columns
    assert (text.a.nulls, number.a.nans) == (1, 1)
    assert (number.a.least, number.a.greatest) == ("1", "1")


def test_what_is_no_number_has_no_range():
    torch = pytest.importorskip("torch", reason="records its tensors")
    half = torch.tensor([1.5, 2.0]).to(torch.bfloat16)
    dates_or_not = [{"v": np.array(["2020-01-01"], "M8[ns]")}, {"v": np.array([2.5])}]
    for side, least in (([{"v": half}], ""), (dates_or_not, "2.5")):
        assert compare(side, side, profile=True).columns[0].a.least == least


def test_a_hint_has_been_tried_and_nans_are_counted_apart():
    from petastorm_bridge.parity import Rules, compare

    base = np.arange(1.0, 9.0)
    near, nan = base * (1 + 1e-7), base.copy()
    nan[:3], nan[5] = np.nan, 7.0
    side = [{"id": np.arange(8), "x": base}]
    assert compare(side, [{"id": np.arange(8), "x": near}]).hint.startswith("--tolerance float64=")
    moved = [
        {"id": np.arange(8), "x": base * np.where(base > 2, 1, 20)}
    ]  # by 0.95 of the larger one
    assert compare(side, moved).hint == "--tolerance float64=0,40"  # and not by all of it
    turned = [{name: column[::-1] for name, column in side[0].items()}]
    assert compare(side, turned).hint == "--order shuffled"
    result = compare(side, [{"id": np.arange(8), "x": nan}], Rules())
    assert result.hint == ""
    column = result.columns[1]
    assert column.how_far == "1 row by at most 1; 3 rows with NaN or infinity on one side only"
    other = compare(side, [{"id": np.arange(8), "x": base.astype("f4")}]).columns[1]
    assert other.counts == ("dtype", "", "")


@pytest.mark.parametrize("ends", [(-1.7976931348623157e308, 0.0), (0.0, 5e-324), (-1e308, 1e308)])
def test_histograms_of_the_greatest_and_the_smallest_numbers(ends):
    """Warnings are errors here; where the ends are further apart than numbers go, there are no bins."""
    side = [{"id": np.arange(3), "x": np.array([*ends, ends[0]])}]
    other = [{"id": np.arange(3), "x": np.array([*ends, ends[1]])}]
    column = compare(side, other, profile=True).columns[1]
    rows = 3 if np.isfinite(ends[1] - ends[0]) else 0
    assert [sum(each.bins) for each in (column.a, column.b)] == [rows, rows]


@pytest.mark.parametrize("value", ["x" * 100_000, b"x" * 100_000, "\0" * 100_000])
def test_long_texts_are_shown_where_they_part(value):
    """Of texts that begin alike, both texts in full would make reports as large as the data."""
    a, z = ("a", "z") if isinstance(value, str) else (b"a", b"z")
    sides = [np.array([value + end + value, value], object) for end in (a, z)]
    for given in (sides, [side[None] for side in sides]):
        result = compare(*([{"t": each}] for each in given))
        one, other = result.first_failure.a, result.first_failure.b
        assert len(one) < 300
        assert one != other
        assert one.replace("a", "z") == other
        assert "(200001 long)" in one


def test_long_objects_are_shown_where_they_part():
    cells = [np.array([(10**500 + n, 1), None], object) for n in range(2)]
    result = compare(*([{"o": side}] for side in cells))
    one, other = result.first_failure.a, result.first_failure.b
    assert len(one) < 300
    assert one != other
