"""Programs after the usual patterns are run on Petastorm, on the bridge and on native streaming."""

import ast
import functools
import re

import programs
import pytest

from petastorm_bridge import __version__, parity

PROGRAMS = programs.programs_in("programs")
# These show counted steps, orders of epochs, what has no length; the others run in the whole suite.
QUICK = {
    "endless_and_smaller_than_a_batch",
    "keras_fit",
    "lightning_fit",
    "torch_data_module_with_a_helper",
    "torch_steps_counted",
}


def marked(name):
    return pytest.mark.smoke if name in QUICK else ()


NAMES = [pytest.param(name, marks=marked(name)) for name in PROGRAMS]
# Of the programs with the support module beside them only those run: the others' calls are the same, as a test shows.
CASES = [
    pytest.param(form, name, marks=marked(name))
    for form in programs.FORMS
    for name in PROGRAMS
    if form != "vendored" or name in QUICK
]

# Petastorm's readers print this as their `with` ends, also where there is no cache; the bridge's say nothing.
PETASTORMS_OWN = "Cache cleanup complete."


pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for form in ("original", *programs.FORMS):
        made[form] = tmp_path_factory.mktemp("programs") / form
        programs.write_form(made[form], "programs", form)
    return made


@pytest.fixture(scope="module")
def results(folders, tmp_path_factory, request):
    """A function that gives where a form's recordings are, and what came of its programs; each runs once.

    Those run that tests of this session are about.
    """
    pytest.importorskip("petastorm", reason="compares with the real package")
    place = tmp_path_factory.mktemp("results")
    here = [item for item in request.session.items if item.path == request.path]
    asked = {item.callspec.params.get("name") for item in here if hasattr(item, "callspec")}
    names = sorted(asked & set(PROGRAMS))

    @functools.cache
    def run(form):
        chosen = [name for name in names if form != "vendored" or name in QUICK]
        try:
            return programs.run(place / form, folders[form], chosen)
        except AssertionError as problem:  # every test of the form shows how the process ended
            return problem

    def result(form):
        found = run(form)
        if isinstance(found, AssertionError):
            raise found
        return place / form, found

    return result


@pytest.mark.parametrize("name", NAMES)
def test_the_original_runs(results, name):
    found = results("original")[1][name]
    assert "error" not in found, found["error"]
    assert found["recordings"] or found["printed"]


def cut(sizes, epoch):
    """Batches as streaming cuts them: the last one of an epoch is short, and none reaches over its end."""
    total, size = sum(sizes), max(sizes)
    one = [size] * (epoch // size) + ([epoch % size] if epoch % size else [])
    return one * (total // epoch)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_same_batches(results, form, name):
    """The same rows; in the same order and cut alike where nothing is shuffled.

    Petastorm's batches reach over the end of an epoch, and streaming's do not: a program in which that makes a
    difference says how many rows an epoch has. Nor are batches filled up where a transform drops rows. Where
    native code has no full batch to give for ever, and Petastorm repeats rows within one, there is an error.
    """
    (there, originals), (here, found) = results("original"), results(form)
    head = re.match(
        r"# (rows only|other cuts|epochs of (\d+)|native refuses: (.*))",
        PROGRAMS[name].read_text("utf-8"),
    )
    if head and head[3] and form != "bridge":
        assert f"ValueError: {head[3]}" in found[name]["error"]
        assert not found[name]["recordings"]
        return
    assert "error" not in found[name], found[name]["error"]
    printed = [line for line in originals[name]["printed"] if line != PETASTORMS_OWN]
    assert found[name]["printed"] == printed
    original, ours = originals[name]["recordings"], found[name]["recordings"]
    assert set(ours) == set(original)
    rules = parity.Rules()
    if head and (head[1] == "rows only" or form != "bridge"):
        order = "shuffled" if head[1] == "rows only" else "exact"
        rules = parity.Rules(order=order, batches="any")
    for columns in original:
        parity.assert_same_batches(there / name / columns, here / name / columns, rules)
        if head and head[2] and form != "bridge":
            assert ours[columns] == cut(original[columns], int(head[2]))


@pytest.mark.parametrize("form", programs.FORMS)
def test_no_directory_is_left(results, form):
    place = results(form)[0]
    written_by_programs = {"digits"}
    left = {path.name for path in place.with_name(f"{place.name}-cache").glob("*/*")}
    assert left <= written_by_programs


@pytest.mark.parametrize("form", programs.FORMS)
def test_nothing_of_petastorm_is_left(folders, form):
    texts = {path: path.read_text() for path in folders[form].rglob("*.py")}
    for path, text in texts.items():
        assert not re.search(r"^\s*(?:import|from) petastorm\b", text, re.MULTILINE), path


def test_a_vendored_file_differs_in_where_its_names_come_from(folders):
    """Its own directory has the support module, and a requirement is streaming's own."""

    def parts(path):
        """The lines without imports, and the imports, which are sorted by the module's name."""
        text = re.sub(
            r"from [\w.]*mds_support import",
            "from petastorm_bridge.native import",
            path.read_text(),
        )
        text = text.replace(
            "'mosaicml-streaming>=0.11'", f"petastorm-bridge[streaming]=={__version__}"
        )
        is_import = re.compile(r"\s*(from|import)\b").match
        lines = text.splitlines()
        return [line for line in lines if not is_import(line)], sorted(filter(is_import, lines))

    checked = 0
    for path in folders["streaming"].rglob("*"):
        if path.suffix not in {".py", ".ipynb"} or path.name in programs.MARKED:
            continue
        assert parts(folders["vendored"] / path.relative_to(folders["streaming"])) == parts(path)
        checked += 1
    assert checked > len(PROGRAMS)


def test_a_vendored_file_needs_nothing_of_ours(folders):
    text = (folders["vendored"] / "mds_support.py").read_text()
    modules = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert not any(module.startswith("petastorm") for module in modules)
