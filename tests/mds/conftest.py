"""The naive reader and the generators of this folder can be imported; hypothesis is repeatable."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# Tests are no package; the helpers of this folder are found by its path.
sys.path.insert(0, str(Path(__file__).parent))

# The same examples on every run and every machine: a failure here is a failure everywhere.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")
