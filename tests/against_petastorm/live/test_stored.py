"""Outcomes that are stored are those of the scenarios, exact, and noticed when they are wrong."""

import json

import numpy as np
import pytest
from parity_harness import HAS_ORIGINAL, stored
from parity_harness.comparison import differences
from parity_harness.outcome import Outcome, Tensor, describe, raised
from parity_harness.stored_form import NotStorableError, from_json, to_json
from parity_scenarios import all_names

MODULES = sorted(path.stem for path in stored.OUTCOMES.glob("*.json"))
OBJECTS = np.array([b"a\0", None, "é", 2**53 + 1], object)


def outcomes(module):
    return json.loads((stored.OUTCOMES / f"{module}.json").read_text("utf-8"))["outcomes"]


def back(outcome):
    bases = {}
    text = json.dumps(to_json(outcome, bases))
    return from_json(json.loads(text), bases)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [True, 1, 1.5, float("nan"), float("-inf"), "é", b"\0\xff", (), {}],
        np.array([np.nan, -0.0, 5e-324, np.inf]),
        np.array([0.1, -0.0, np.nan], np.float32).reshape(3, 1, 1),
        np.array([-(2**63), 2**63 - 1]),
        np.zeros((0, 3), np.uint8),
        np.arange(10_000).reshape(100, 100),
        np.arange(100, dtype=np.float16),
        np.array([True, False] * 40),
        np.array(["a", "é\U0001f600"]),
        np.array(["2020-01-01", "NaT"], "datetime64[us]"),
        OBJECTS.reshape(2, 2),
        Tensor("tf", "string", (4,), OBJECTS),
        Tensor("tf", "int64", (), np.array(3)),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_stored_comes_back(value):
    outcome = Outcome(value=describe(value))
    assert differences(outcome, back(outcome)) == []
    assert differences(back(outcome), outcome) == []


def test_a_stored_error_has_its_classes_and_its_stage():
    error = Outcome(raised=raised(FileNotFoundError("x"), "opening"))
    found = back(error).raised
    assert (found.stage, found.types) == (error.raised.stage, error.raised.types)


def test_what_has_no_form_is_refused():
    with pytest.raises(NotStorableError, match="has no stored form"):
        to_json(Outcome(value=np.float64(1)), {})


@pytest.mark.parametrize("one", [[1], [1.0], [True], ["1"], (1,), np.array([1]), np.array([1.0])])
def test_forms_tell_apart_what_comparing_tells_apart(one):
    others = [[1], [1.0], [True], ["1"], (1,), np.array([1]), np.array([1.0])]
    one = Outcome(value=describe(one))
    same = [not differences(one, back(Outcome(value=describe(other)))) for other in others]
    assert sum(same) == 1


def test_all_scenarios_are_stored_and_no_others():
    found = {name for module in MODULES for name in outcomes(module)}
    assert found == set(all_names()) - stored.NOT_STORED, "make parity-record stores what is new"


@pytest.mark.parametrize("module", MODULES)
def test_what_is_stored_is_of_these_sources(module):
    """Otherwise every run asks the original about every scenario: `make parity-record`."""
    assert stored.StoredOutcomes(module).why_live == "", "make parity-record stores it anew"


def test_the_share_is_a_twentieth():
    names = list(all_names())
    assert len(names) / 40 < sum(map(stored.in_share, names)) < len(names) / 10


@pytest.mark.skipif(not HAS_ORIGINAL, reason="nothing is live without the original")
class TestChoice:
    """Where an outcome comes from; `one` is a scenario that loads, `other` differs from the bridge."""

    @pytest.fixture(autouse=True)
    def reading(self, monkeypatch):
        monkeypatch.delenv(stored.VARIABLE, raising=False)
        monkeypatch.setattr(stored, "in_share", lambda name: False)
        self.stored = stored.StoredOutcomes("reading")
        self.runs = []

    def run(self, outcome=None):
        self.runs.append(outcome)
        return outcome

    def ask(self, name="no predicate dtypes", outcome=None):
        return self.stored.original(name, lambda: self.run(outcome))

    def test_what_is_stored_is_taken(self):
        assert self.ask().value is not None
        assert self.runs == []

    def test_what_is_not_stored_is_run(self):
        assert self.ask("a new scenario", Outcome(value=1)).value == 1

    def test_a_share_is_run_and_must_equal_what_is_stored(self, monkeypatch):
        known = self.ask()
        monkeypatch.setattr(stored, "in_share", lambda name: True)
        assert self.ask(outcome=known) is known
        assert len(self.runs) == 1
        with pytest.raises(AssertionError, match="make parity-record"):
            self.ask(outcome=Outcome(value=1))

    def test_the_variable_has_all_of_them_run(self, monkeypatch):
        monkeypatch.setenv(stored.VARIABLE, "live")
        with pytest.raises(AssertionError, match="something else than what is stored"):
            self.ask(outcome=Outcome(value=1))

    def test_an_original_that_the_bridge_differs_from_is_left_to_its_relation(self, monkeypatch):
        monkeypatch.setenv(stored.VARIABLE, "live")
        assert self.ask("in_set", Outcome(value=1)).value == 1

    @pytest.mark.parametrize("what", ["_digest", "versions"])
    def test_other_sources_and_other_versions_run_all(self, monkeypatch, what):
        monkeypatch.setattr(stored, what, lambda *_: "other")
        self.stored = stored.StoredOutcomes("reading")
        assert "of other" in self.stored.why_live
        assert self.ask(outcome=Outcome(value=1)).value == 1

    def test_recording_keeps_what_it_is_given(self, tmp_path, monkeypatch):
        known = self.ask()
        monkeypatch.setattr(stored, "OUTCOMES", tmp_path)
        recording = stored.StoredOutcomes("reading", recording=True)
        recording.original("no predicate dtypes", lambda: known)
        recording.original("one that is long", lambda: Outcome(value="x" * stored.LARGEST))
        recording.save()
        self.stored = stored.StoredOutcomes("reading")
        assert (len(self.stored), self.stored.why_live) == (1, "")
        assert differences(self.ask(), known) == []
        assert self.runs == []
