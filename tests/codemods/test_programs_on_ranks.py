"""Programs that torchrun starts on two ranks, on Petastorm and rewritten."""

import functools

import programs
import pytest

from petastorm_bridge import parity

RANKS = 2
PROGRAMS = programs.programs_in("programs_on_ranks")
# With --fast the calls are those of streaming, and a support module beside the program gives the same as the installed
# one: one program is enough to show that ranks agree on what its own writer wrote.
CASES = [
    *((form, name) for form in ("bridge", "streaming") for name in PROGRAMS),
    ("vendored", "ddp_training"),
]
NATIVE = [case for case in CASES if case[0] != "bridge"]
# Each epoch's rows are divided among the ranks, whichever they are.
RULES = parity.Rules(order="shuffled", batches="exact", shards="union")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A function that gives where a program's recordings are, and what came of it on each rank.

    Each has a launch of its own: the ranks of a second process group would find the first one's addresses.
    """
    pytest.importorskip("petastorm", reason="compares with the real package")
    pytest.importorskip("lightning", reason="one program is Lightning's")
    place = tmp_path_factory.mktemp("ranks")

    @functools.cache
    def written(form):
        programs.write_form(place / form, "programs_on_ranks", form)
        return place / form

    @functools.cache
    def result(form, name):
        out = place / f"{form}-{name}"
        return out, [rank[name] for rank in programs.run(out, written(form), [name], ranks=RANKS)]

    return result


@pytest.mark.parametrize(("form", "name"), CASES)
def test_ranks_share_the_rows(results, form, name):
    """The ranks' rows together are those of Petastorm's, in as many steps on each rank."""
    (there, originals), (here, found) = results("original", name), results(form, name)
    # All ranks' at once: one that fails closes its connections to the others.
    assert not [rank["error"] for rank in (*originals, *found) if "error" in rank]
    for original, ours in zip(originals, found, strict=True):
        assert ours["printed"] == original["printed"]
        assert ours["recordings"] == original["recordings"]
    for columns in originals[0]["recordings"]:
        parity.assert_same_batches(there / name / columns, here / name / columns, RULES)


@pytest.mark.parametrize(("form", "name"), NATIVE)
def test_ranks_read_one_directory(results, form, name):
    """Of the bridge each has its own, as of Petastorm."""
    assert [rank["directories"] for rank in results(form, name)[1]] == [1] * RANKS


@pytest.mark.parametrize(("form", "name"), CASES)
def test_no_directory_is_left(results, form, name):
    place = results(form, name)[0]
    assert not list(place.with_name(f"{place.name}-cache").glob("*/*"))
