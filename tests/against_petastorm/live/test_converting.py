import pytest
from parity_scenarios.converting import SCENARIOS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", list(SCENARIOS), ids=str)
def test_converting(compare, scenario):
    compare(scenario)
