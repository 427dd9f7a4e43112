"""One Spark session and both packages, for every test of this folder."""

import importlib.util
import logging
import os
import sys
from pathlib import Path

import pytest

# Tests are no package; the helpers of this folder are found by its path.
sys.path.insert(0, str(Path(__file__).parent))

# So do the processes that the original starts.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
)

# The original needs a pyarrow of its time; without it there is nothing to compare with.
if importlib.util.find_spec("petastorm") is None:
    collect_ignore_glob = ["test_*.py"]

AGAINST = "PETASTORM_BRIDGE_PARITY_AGAINST"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the original warn: about its own age on every call, and from threads."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def sessions(spark, tmp_path_factory):
    """The original and the bridge (or what the environment variable names instead)."""
    # Imported here, where no clock runs: an interrupted import of TensorFlow cannot be repeated.
    from parity_harness.original import repeatable
    from parity_harness.session import BRIDGE, ORIGINAL, Session

    import tensorflow  # noqa: F401, ICN001
    import torch  # noqa: F401

    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("petastorm").setLevel(logging.CRITICAL)
    directory = str(tmp_path_factory.mktemp("parity"))
    with repeatable() as readers:
        yield (
            Session(ORIGINAL, spark, directory, readers),
            Session(os.environ.get(AGAINST, BRIDGE), spark, f"{directory}/bridge", readers),
        )


@pytest.fixture
def compare(sessions):
    """Run a scenario on both packages and judge what they gave; see `parity_harness.judge`."""
    from parity_harness.judge import judge

    def run(scenario):
        original, bridge = (session.run(scenario.program, scenario.seconds) for session in sessions)
        judge(scenario.name, original, bridge, order=scenario.order)

    return run
