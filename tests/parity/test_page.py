"""The page of a comparison: what it shows of rows and columns, alone and in a browser."""

import dataclasses
import html
import os
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser import BROWSER, Browser
from parity_tables import cells
from readable import CUT, FAINT

from petastorm_bridge.cli._parity import _parse_tolerance
from petastorm_bridge.parity import Rules, compare, record
from petastorm_bridge.parity._reports.html import html_page
from petastorm_bridge.parity._reports.text import markdown_text
from petastorm_bridge.parity._result import Report, State

pytestmark = pytest.mark.modern

ROWS = 300
DIFFERING = 30
# Where pictures of the page are put, for people to look at, as those in `pictures` beside this file; nowhere if
# this is not set.
PICTURES = os.environ.get("PETASTORM_BRIDGE_PICTURES")
IN_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


def table(columns):
    """Two tables of so many columns, a hundred of which are alike."""
    random = np.random.default_rng(0)
    good = {"id": np.arange(ROWS)}
    for number in range(columns - 1):
        kinds = (
            random.normal(size=ROWS).astype("f4"),
            random.integers(1, 100, ROWS),
            random.random(ROWS),
            cells([f"text {row % 7}" for row in range(ROWS)]),
        )
        good[f"feature_{number:03d}"] = kinds[number % 4]
    bad = {name: values.copy() for name, values in good.items()}
    bad["feature_000"] *= np.float32(1 + 1e-6)
    bad["feature_001"] = bad["feature_001"].astype("i4")
    bad["feature_002"][100:130] = np.nan
    bad["feature_002"][7] += 1
    bad["feature_003"][5] = "<b>other</b> & 'more'"
    for number in range(4, min(DIFFERING, columns - 1), 1):
        column = bad[f"feature_{number:03d}"]
        column[number] = "other" if column.dtype == object else column[number] + 1
    return good, bad


def report(columns, **options):
    good, bad = table(columns)
    result = compare([good], [bad], Rules(**options), labels=("golden", "candidate"), profile=True)
    made = ("Made on 2026-01-02 03:04:05+00:00", "Command: petastorm-bridge parity compare a b")
    return Report("Comparison", (result,), made=made)


@pytest.fixture(scope="module")
def many():
    return report(107)


class Page(HTMLParser):
    """The elements of a page, each with its attributes and all text in it."""

    def __init__(self, text):
        super().__init__()
        self.all, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", **dict(attrs)}
        self.all.append(element)
        if tag not in {"meta", "br", "input"}:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.all.append({"tag": tag, "text": "", **dict(attrs)})

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def of(self, tag, css=None):
        return [e for e in self.all if e["tag"] == tag and css in {None, e.get("class")}]


def test_it_loads_nothing_and_says_when_and_how_it_was_made(many):
    text = html_page(many)
    page = Page(text)
    for element in page.all:
        assert element["tag"] not in {"link", "img", "iframe"}
        assert not {"src", "href", "onclick", "style"} & element.keys()
    assert not re.search(r"url\(|@import|https?://|fetch|XMLHttp", text)
    ids = [element["id"] for element in page.all if "id" in element]
    assert len(ids) == len(set(ids))
    (banner,) = page.of("section", "banner different")
    assert "Made on 2026-01-02" in banner["text"]
    assert "Command: petastorm-bridge parity compare a b" in banner["text"]
    assert "prefers-color-scheme: dark" in text
    assert "Rules: exact." in page.of("body")[0]["text"]


@IN_BROWSER
@pytest.mark.slow
def test_no_option_of_the_command_is_broken_behind_its_hyphens(browser, tmp_path):
    made = ("Command: petastorm-bridge parity run --data /data/train --batch-size 64 " + "x" * 80,)
    page = tmp_path / "page.html"
    page.write_text(html_page(dataclasses.replace(report(5), made=made)))
    browser.look(400, dark=False)
    browser.open(page.as_uri())
    lines = """[...document.querySelectorAll('.banner .word')].map(
        e => [e.textContent, e.getBoundingClientRect().height])"""
    heights = dict(browser.run(lines))
    assert heights["--batch-size"] == heights["run"] == heights["/data/train"]
    assert heights["x" * 80] > heights["run"]
    assert browser.run(CUT) == []


def test_every_column_that_differs_has_a_line_and_those_that_do_not_are_folded(many):
    page = Page(html_page(many))
    differing = [c.name for c in many.results[0].columns if c.state is State.DIFFERENT]
    assert len(differing) == DIFFERING
    lines = {e["data-column"]: e["text"] for e in page.of("tr") if "data-column" in e}
    assert list(lines) == differing
    assert "dtype int64 and int32; its values are not compared" in lines["feature_001"]
    nans = lines["feature_002"]
    assert "31 of 300 rows differ (10.33%)" in nans
    assert "1 row by at most 1; 30 rows with NaN or infinity on one side only" in nans
    assert "row 5 (row 5 of batch 0)'text 5'\"<b>other</b> & 'more'\"" in lines["feature_003"]
    assert len(page.of("article")) == 107
    folds = page.of("details")
    assert not any("open" in fold for fold in folds)
    assert [summary["text"] for summary in page.of("summary")] == [
        "30 columns that differ, in detail",
        "77 columns without a difference",
    ]


def test_rows_that_differ_stand_side_by_side(many):
    page = Page(html_page(many))
    (rows,) = page.of("table", "rows many")
    assert "feature_003" in rows["text"]
    result = many.results[0]
    good, bad = table(107)
    assert len(result.samples) == 6
    for sample in result.samples:
        row = int(re.match(r"row (\d+)", sample.place_a)[1])
        assert sample.place_a == sample.place_b
        for name, a, b, differs in zip(
            result.sample_columns, sample.a, sample.b, sample.differs, strict=True
        ):
            assert differs == (good[name][row] != bad[name][row]), name
            assert (a != b) == differs
            assert str(good[name][row]) in a
    assert html.escape("<b>other</b>") in html_page(many)


def test_of_many_columns_a_row_shows_those_that_differ_in_it(many):
    text = html_page(many)
    result = many.results[0]
    samples = (
        text.partition("<table class='rows many'>")[2].partition("</table>")[0].split("<tbody>")[1:]
    )
    assert len(result.sample_columns) > 8
    for sample, part in zip(result.samples, samples, strict=True):
        shown = re.findall(r"data-heading='(.*?)'", part)
        differing = [n for n, d in zip(result.sample_columns, sample.differs, strict=True) if d]
        assert shown == 2 * [*result.sample_columns[:3], *differing]


def test_rows_of_one_side_are_shown_alone():
    good, _ = table(6)
    fewer = {name: values[[0, 1, 3, *range(5, ROWS)]] for name, values in good.items()}
    result = compare([good], [fewer], profile=True)
    assert [(s.place_a[:5], s.place_b) for s in result.samples] == [("row 2", ""), ("row 4", "")]
    assert result.samples[0].a[0] == "2"
    page = html_page(Report("Comparison", (result,)))
    assert page.count("not there</td>") == 2


def test_what_is_said_to_accept_a_column_does(many):
    """Each option, with the other columns left out."""
    good, bad = table(107)
    columns = many.results[0].columns
    assert all(bool(c.accepted) == (c.state is State.DIFFERENT) for c in columns)
    accepted = {c.name: c.accepted for c in columns if c.accepted}
    assert accepted["feature_000"].startswith("--tolerance float32=")
    assert accepted["feature_001"] == "--allow one-dtype-per-column"
    assert accepted["feature_002"] == "--ignore feature_002"
    for name, text in list(accepted.items())[:12]:  # three of each kind
        options = {"ignore": []}
        words = shlex.split(text)
        for option, value in zip(words[::2], words[1::2], strict=True):
            if option == "--tolerance":
                options["tolerances"] = dict([_parse_tolerance(value)])
            else:
                options[option.removeprefix("--")] = [value]
        sides = [{key: side[key] for key in ("id", name)} for side in (good, bad)]
        assert not compare([sides[0]], [sides[1]]).same
        assert compare([sides[0]], [sides[1]], Rules(**options)).same, name


@pytest.mark.parametrize(
    ("one", "other", "accepted"),
    [
        (np.inf, 1e308, "--ignore x"),
        (np.nan, 1.0, "--ignore x"),
        (np.nan, -np.nan, "--tolerance float64=0"),
        (0.0, -0.0, "--tolerance float64=0"),
        (0.0, 1e-9, "--tolerance float64=0,2e-09"),
        (0.0, 5e-324, "--tolerance float64=0,"),
        (0.0, 9.9e307, "--tolerance float64=0,1e+308"),
        (0.0, 1.7e308, "--ignore x"),
        (-1.7e308, 1.7e308, "--ignore x"),
        (1e-310, 3e-310, "--tolerance float64=0."),
    ],
)
def test_what_accepts_numbers_that_are_none_or_nothing(one, other, accepted):
    sides = [[{"id": np.arange(3), "x": np.array([1.0, value, 2.0])}] for value in (one, other)]
    (column,) = (c for c in compare(*sides).columns if c.state is State.DIFFERENT)
    assert column.accepted.startswith(accepted)
    option, value = column.accepted.split()
    if option == "--tolerance":
        rules = Rules(tolerances=dict([_parse_tolerance(value)]))
        assert compare(*sides, rules).same


def test_histograms_lie_over_each_other_on_axes(many):
    page = Page(html_page(many))
    drawings = page.of("svg")
    assert len(drawings) == 107
    assert all({"title", "text"} <= {e["tag"] for e in page.all} for _ in drawings)
    kinds = [e["class"] for e in page.of("path")]
    assert [kinds.count(kind) for kind in ("bars-a", "bars-b", "axis")] == [107] * 3
    number = next(c for c in many.results[0].columns if c.name == "id")
    text = next(c for c in many.results[0].columns if c.name == "feature_007")
    assert (number.measures, number.axis) == ("values", ("0", "299"))
    assert (text.measures, text.axis) == ("lengths", ("5", "6"))
    card = next(e for e in page.of("article") if e["data-column"] == "feature_007")
    assert "shortest65" in card["text"]


def test_markdown_lists_every_column_that_differs(many):
    text = markdown_text(many)
    rows = [line for line in text.splitlines() if line.startswith("| `feature_")]
    assert [line.split("`")[1] for line in rows] == [f"feature_{n:03d}" for n in range(DIFFERING)]
    assert text.count("<details>") == text.count("</details>") == 1
    assert "10 more columns that differ</summary>" in text
    assert all("`--" in line.split("|")[-2] for line in rows)


def test_samples_are_those_of_shuffled_rows_and_of_ranks(tmp_path):
    good, bad = table(6)
    turned = {name: values[::-1] for name, values in bad.items()}
    result = compare([good], [turned], Rules(order="shuffled", key=["id"]), profile=True)
    places = {(s.place_a, s.place_b) for s in result.samples}
    assert ("row 5 (row 5 of batch 0)", f"row {ROWS - 6} (row {ROWS - 6} of batch 0)") in places
    for rank in range(2):
        for name, side in (("a", good), ("b", bad)):
            half = {key: values[rank::2] for key, values in side.items()}
            record([half], tmp_path / name, rank=rank, world_size=2)
    result = compare(tmp_path / "a", tmp_path / "b", profile=True)
    assert any("of rank 1" in sample.place_a for sample in result.samples)


# What is wider than the window, how high the list of columns is, and what the filter leaves.
MEASURE = """(() => {
  const box = document.querySelector('.filter input'), found = {};
  found.wide = document.documentElement.scrollWidth - innerWidth;
  found.ground = getComputedStyle(document.body).backgroundColor;
  found.height = document.querySelector('.all-columns').offsetHeight;
  const shown = () => [...document.querySelectorAll('article')].filter(
    e => e.checkVisibility()).map(e => e.dataset.column);
  found.before = shown().length;
  if (!box) return found;
  box.value = 'Feature_04'; box.dispatchEvent(new Event('input'));
  found.filtered = shown();
  found.said = document.querySelector('.found').textContent;
  box.value = ''; box.dispatchEvent(new Event('input'));
  found.after = shown().length;
  return found;
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@IN_BROWSER
@pytest.mark.slow
@pytest.mark.parametrize("columns", [5, 107])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_cut_off_and_the_filter_works(browser, tmp_path, columns, dark):
    page = tmp_path / "page.html"
    page.write_text(html_page(report(columns)))
    for width in (400, 800, 1000, 1600):
        browser.look(width, dark=dark, height=2200)
        browser.open(page.as_uri())
        if PICTURES:
            name = f"page-{columns}-{width}-{'dark' if dark else 'light'}.png"
            browser.photograph(Path(PICTURES).absolute() / name)
        found = browser.run(MEASURE)
        assert found["wide"] == 0, width
        assert found["ground"] == ("rgb(17, 21, 27)" if dark else "rgb(244, 246, 248)")
        assert ("filtered" in found) == (columns == 107)
        if columns == 107:
            assert found["before"] == found["after"] == 0
            assert found["filtered"] == [f"feature_04{n}" for n in range(10)]
            assert found["said"] == "10 of 107 columns"
            assert width < 1600 or found["height"] < 1200  # a line for each that differs
        browser.run("document.querySelectorAll('details').forEach(part => part.open = true)")
        assert browser.run(CUT) == [], width
        assert browser.run(FAINT) == [], width
