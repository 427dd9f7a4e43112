import pytest
from parity_harness.outcome import Items, Outcome
from parity_scenarios.types import COLUMNS, SCENARIOS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def load_column():
    """Load one column of a frame, together with all others that load, or alone if need be."""
    together = {}

    def load(session, case):
        key = (id(session), case.frame, case.dtype, case.loader)
        if case.loads and key not in together:
            like = [c for c in COLUMNS if c.loads and (c.frame, c.dtype, c.loader) == key[1:]]
            program = case.program(*(c.column for c in like))
            together[key] = session.run(program, seconds=60)
        if case.loads and not together[key].raised:
            return Outcome(value=_only(together[key].value, case.column))
        return session.run(case.program(case.column))

    return load


def _only(value, column):
    """Keep one column in the batches and in the element spec."""
    if not isinstance(value, Items):
        return value
    if value.container == "list" or value.keys in {("batches",), ("spec", "batches")}:
        return Items(value.container, value.keys, tuple(_only(v, column) for v in value.values))
    kept = [i for i, key in enumerate(value.keys) if key == column]
    return Items(value.container, (column,) * len(kept), tuple(value.values[i] for i in kept))


@pytest.mark.parametrize("case", COLUMNS, ids=str)
def test_column(compare_with, load_column, case):
    compare_with(case.name, lambda session: load_column(session, case))


@pytest.mark.parametrize("scenario", list(SCENARIOS), ids=str)
def test_types(compare, scenario):
    compare(scenario)
