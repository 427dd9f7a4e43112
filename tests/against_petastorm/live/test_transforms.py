import pytest
from parity_scenarios.transforms import SCENARIOS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", list(SCENARIOS), ids=str)
def test_transforms(compare, scenario):
    compare(scenario)
