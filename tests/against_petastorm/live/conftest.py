"""One Spark session and both packages, for every test of this folder.

What the original gives is mostly stored; see `parity_harness.stored`.
"""

import contextlib
import logging
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# Tests are no package; the helpers of this folder are found by its path.
sys.path.insert(0, str(HERE))

# So do the processes that the original starts.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
)

from parity_harness import HAS_ORIGINAL  # noqa: E402 - found by the path above

# Random tables are always compared live.
if not HAS_ORIGINAL:
    collect_ignore = ["test_property.py"]

AGAINST = "PETASTORM_BRIDGE_PARITY_AGAINST"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the original warn: about its own age on every call, and from threads."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            if "sessions" in item.fixturenames:
                item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def sessions(spark, tmp_path_factory):
    """The original and the bridge (or what the environment variable names instead)."""
    # Imported here, where no clock runs: an interrupted import of TensorFlow cannot be repeated.
    import tensorflow  # noqa: F401, ICN001
    import torch  # noqa: F401
    from parity_harness.original import repeatable
    from parity_harness.session import BRIDGE, ORIGINAL, Session

    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("petastorm").setLevel(logging.CRITICAL)
    directory = str(tmp_path_factory.mktemp("parity"))
    with repeatable() if HAS_ORIGINAL else contextlib.nullcontext([]) as readers:
        yield (
            Session(ORIGINAL, spark, directory, readers),
            Session(os.environ.get(AGAINST, BRIDGE), spark, f"{directory}/bridge", readers),
        )


@pytest.fixture(autouse=True)
def parent_directory_stays(request):
    """Conversions of scenarios go where each says; those of other files in this process do not."""
    if "sessions" not in request.fixturenames:
        yield
        return
    from parity_harness.session import CONF

    conf = request.getfixturevalue("spark").conf
    before = conf.get(CONF)
    yield
    conf.set(CONF, before)


@pytest.fixture(scope="module")
def stored(request):
    """What the original gives for the scenarios of the test's module, as far as it is stored."""
    from parity_harness.stored import StoredOutcomes

    module = request.path.stem.removeprefix("test_")
    recording = request.config.getoption("--parity-record")
    outcomes = StoredOutcomes(module, recording=recording)
    yield outcomes
    if recording:
        outcomes.save()


@pytest.fixture
def compare_with(sessions, stored):
    """``(name, run, order)``: judge what `run` gives with a session of either package."""
    from other_versions import NOT_JUDGED
    from parity_harness.judge import judge
    from parity_harness.stored import NotStoredError

    def compare(name, run, *, order=True):
        original, bridge = sessions
        try:
            wanted = stored.original(name, lambda: run(original), order=order)
        except NotStoredError as missing:
            pytest.skip(str(missing))
        if HAS_ORIGINAL or name not in NOT_JUDGED:
            judge(name, wanted, run(bridge), order=order)
            return
        with pytest.raises(AssertionError, match="difference"):
            judge(name, wanted, run(bridge), order=order)
        pytest.skip(NOT_JUDGED[name])

    return compare


@pytest.fixture
def compare(compare_with):
    """Run a scenario on both packages and judge what they gave; see `parity_harness.judge`."""

    def run(scenario):
        compare_with(
            scenario.name,
            lambda session: session.run(scenario.program, scenario.seconds),
            order=scenario.order,
        )

    return run
