import pytest
from parity_scenarios.batching import SCENARIOS

pytestmark = pytest.mark.slow


@pytest.mark.smoke
@pytest.mark.parametrize("scenario", list(SCENARIOS), ids=str)
def test_batching(compare, scenario):
    compare(scenario)
