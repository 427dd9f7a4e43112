import pytest
from parity_scenarios.names import SCENARIOS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", list(SCENARIOS), ids=str)
def test_names(compare, scenario):
    compare(scenario)
