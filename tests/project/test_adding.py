"""What CONTRIBUTING says of adding something is enough, and what is left out fails a quick test.

An option, a type and a rule that nobody needs are added to a copy of the sources, place by place as CONTRIBUTING
names them. The places, besides what ``make docs`` writes, are those that stand here.
"""

import dataclasses
import os
import shutil
import sys
from pathlib import Path

import pytest
import warm

ROOT = Path(__file__).parents[2]
COPIED = (
    *("bridge", "codemods", "tests", "tools", "benchmarks", "requirements", "examples"),
    *("migration_guide", "pyproject.toml", "mkdocs.yml", "README.md", "ARCHITECTURE.md"),
    *("CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Makefile"),
)

OPTIONS = "bridge/petastorm_bridge/_tables/options.py"
ARGUMENTS = "bridge/petastorm_bridge/reader/_arguments.py"
READER = "bridge/petastorm_bridge/reader/__init__.py"
TYPING = "bridge/petastorm_bridge/reader/_typing.py"
TYPES = "bridge/petastorm_bridge/_tables/types.py"
TABLES = "tests/project/test_tables.py"
CHANGES = "CHANGELOG.md"
GUIDE = "tests/project/test_guide.py::test_generated_pages_are_current"


@dataclasses.dataclass
class Copy:
    """The sources in a folder of their own.

    Attributes:
        folder: Where they are.
        touched: The places that a person changed or made.
    """

    folder: Path
    touched: set = dataclasses.field(default_factory=set)

    def insert(self, name, anchor, text, *, after=False):
        """Put lines before the one place where a text stands, or behind it."""
        path = self.folder / name
        before = path.read_text(encoding="utf-8")
        assert before.count(anchor) == 1, (name, anchor)
        path.write_text(before.replace(anchor, anchor + text if after else text + anchor), "utf-8")
        self.touched.add(name)

    def create(self, name, text):
        """Make a file."""
        (self.folder / name).write_text(text, encoding="utf-8")
        self.touched.add(name)

    def note(self, text):
        """Put an entry into the changelog."""
        self.insert(CHANGES, "### Added\n\n", f"- {text}\n", after=True)

    def run(self, *command):
        """Run a program of the copy with the copy's packages, of which the Python that forks has imported none."""
        packages = [str(self.folder / name) for name in ("bridge", "codemods", ".")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(packages)}
        return warm.run(
            [sys.executable, *command], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )  # fmt: skip

    def failures(self, *tests):
        """Return the names of the tests that fail, of those given as for pytest."""
        options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rfE", "--tb=short")
        done = self.run("-m", "pytest", *options, *tests)
        assert done.returncode in {0, 1}, done.stdout + done.stderr
        lines = [line.split(" - ")[0] for line in done.stdout.splitlines()]
        failed = {
            line.split("::")[-1].split("[")[0]
            for line in lines
            if line.startswith(("FAILED ", "ERROR "))
        }
        assert bool(failed) == bool(done.returncode), done.stdout
        return failed

    def make_docs(self):
        """Write the generated pages, as ``make docs`` does."""
        done = self.run("tools/build_docs.py")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path):
    ignored = shutil.ignore_patterns(".*")  # what is compiled stays so
    for name in COPIED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(path, tmp_path / name)
    return Copy(tmp_path)


OPTION = """\
        ("rows_wanted", _H, "Not in Petastorm: datasets of other numbers of rows are refused."),
"""
CHECK = """\
        if given.get("rows_wanted") not in {None, 2}:
            raise ValueError("rows_wanted is 2")
"""
TEST_OF_OPTION = '''"""An option that nobody needs."""

import pyarrow as pa
import pytest

from petastorm_bridge import make_batch_reader


def test_it_is_read(write):
    url = write(pa.table({"v": [1, 2]}))
    with make_batch_reader(url, rows_wanted=2) as reader:
        assert sum(len(group.v) for group in reader) == 2
    with pytest.raises(ValueError, match="rows_wanted"):
        make_batch_reader(url, rows_wanted=3)
'''


@pytest.mark.modern
@pytest.mark.slow
def test_an_option(copy):
    test = "tests/reading/test_rows_wanted.py"
    copy.insert(OPTIONS, '    ),\n    *_rows(\n        "make_reader",', OPTION)
    assert copy.failures(TABLES, GUIDE) == {
        "test_every_option_is_read_by_code",
        "test_an_option_that_nothing_reads_is_found",  # that one and no other
        "test_every_option_is_given_in_some_test",
        "test_generated_pages_are_current",
    }
    # The code that reads it: the signature, and the checks of arguments.
    other = "transform_batch_size"
    copy.insert(READER, f"    {other}: int | None", "    rows_wanted: int | None = None,\n")
    copy.insert(ARGUMENTS, "        _warn_ignored(given, function)\n", CHECK)
    copy.create(test, TEST_OF_OPTION)
    assert copy.failures(TABLES, test) == {
        "test_the_arguments_that_checkers_know_are_those_of_the_reader"
    }
    copy.insert(TYPING, "\n\nclass ReaderArguments(", "    rows_wanted: int | None\n")
    copy.note("`rows_wanted=` of `make_batch_reader`.")
    copy.make_docs()
    assert copy.failures(TABLES, test) == set()
    assert copy.touched == {OPTIONS, READER, ARGUMENTS, TYPING, test, CHANGES}


TYPE = """\
    TypeRow(
        "float16", "– (MDS written elsewhere)", pa.types.is_float16, pa.float16(), np.float16, "float16",
        "`float16`", "`float16` with NaN", "NaN",
    ),
"""
VALUES = """\
    "float16": [np.float16(1.5), np.float16(-0.25)],
"""


@pytest.mark.modern
@pytest.mark.slow
def test_a_type(copy):
    copy.insert(TYPES, '    TypeRow(\n        "float32",', TYPE)
    assert copy.failures(TABLES, GUIDE) == {
        "test_every_row_of_types_has_values_here",
        "test_generated_pages_are_current",
    }
    copy.insert(TABLES, '    "float32": [', VALUES)
    copy.note("Columns of `float16`.")
    copy.make_docs()
    assert copy.failures(TABLES) == set()
    assert copy.touched == {TYPES, TABLES, CHANGES}


RULE = '''"""``spark.conf.set("petastorm.no.such.key", …)`` is given another name.

A rule that nobody needs.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Edit, Finding, Safety
from petastorm_codemods._registry import Rule

_OLD, _NEW = '"petastorm.no.such.key"', '"bridge.no.such.key"'


@Rule(
    "PM900",
    "no-such-key",
    "a key that nobody has got another name",
    safety=Safety.SAFE,
    destinations=list(Destination),
    before=f"spark.conf.set({_OLD}, 1)",
    after=f"spark.conf.set({_NEW}, 1)",
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each string that is the key."""
    for node in analysis.nodes(cst.SimpleString):
        if node.value == _OLD:
            start = analysis.start(node)
            edit = Edit(start, start + len(_OLD), _NEW)
            yield Finding("PM900", start, f"it is called {_NEW}", Safety.SAFE, (edit,))
'''
CASES = """#### a_key_that_nobody_has
def configure(spark):
    spark.conf.set("petastorm.no.such.key", 1)
####>
def configure(spark):
    spark.conf.set("bridge.no.such.key", 1)
#### a_key_that_goes_on
def configure(spark):
    spark.conf.set("petastorm.no.such.key.of.ours", 1)
"""


@pytest.mark.modern
@pytest.mark.slow
def test_a_rule(copy):
    module = "codemods/petastorm_codemods/rules/pm900_no_such_key.py"
    cases = "tests/codemods/cases/bridge_no_such_key.case"
    tests = "tests/codemods/test_cases.py"
    now = "codemods/petastorm_codemods/_reports/guide.py"
    text = (copy.folder / "CONTRIBUTING.md").read_text("utf-8")
    told = text[text.index("- **A rule**") :].partition("- **A type**")[0]
    places = ("codemods/petastorm_codemods/rules/pm0xx_name.py", "tests/codemods/cases/", now)
    assert all(name in told for name in (*places, "make docs"))
    copy.create(module, RULE)
    assert copy.failures(f"{tests}::test_every_rule_has_a_case", GUIDE) == {
        "test_every_rule_has_a_case",
        "test_generated_pages_are_current",
    }
    copy.create(cases, CASES)
    copy.insert(now, "NOW = {\n", '    "PM900": "- Remove the key.",\n', after=True)
    copy.note("The codemod knows a key that nobody has (PM900).")
    copy.make_docs()
    assert copy.failures(tests, "-k", "no_such_key or every_rule or as_many") == set()
    page = (copy.folder / "migration_guide" / "rules.md").read_text("utf-8")
    assert "## PM900 no-such-key" in page
    assert "If a place is left to you:\n\n- Remove the key.\n" in page
    assert copy.touched == {module, cases, now, CHANGES}
    (copy.folder / "try.py").write_text('spark.conf.set("petastorm.no.such.key", 1)\n')
    done = copy.run("-m", "petastorm_bridge", "codemod", "try.py", "--to", "bridge")
    assert '+spark.conf.set("bridge.no.such.key", 1)' in done.stdout, done.stdout
