import pytest
from parity_scenarios.batching import SCENARIOS

pytestmark = [pytest.mark.tf]


@pytest.mark.parametrize("scenario", list(SCENARIOS), ids=str)
def test_batching(compare, scenario):
    compare(scenario)
