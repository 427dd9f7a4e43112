import pytest
from parity_scenarios.ordering import SCENARIOS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", list(SCENARIOS), ids=str)
def test_ordering(compare, scenario):
    compare(scenario)
