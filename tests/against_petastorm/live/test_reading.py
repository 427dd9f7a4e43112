import pytest
from parity_scenarios.reading import SCENARIOS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", list(SCENARIOS), ids=str)
def test_reading(compare, scenario):
    compare(scenario)
