"""Every measured behaviour of the original has a scenario, or a reason why it has none."""

import re
from pathlib import Path

import pytest
from parity_scenarios import all_names

HERE = Path(__file__).parent
TESTS = HERE.parents[1]

# Behaviour (a regular expression) → where it is tested instead, or why it is not.
ELSEWHERE = {
    r"threads/.*|ms per enter.*": "stress/test_loader_leaks.py",
    r"RSS with torch .*": "what a shuffle buffer takes is measured by benchmarks/run.py",
    r"no shuffle(,| order).*": "measured again against file order; see 3b",
    r"shuffle_row_groups=False r1000f8 pool=process workers=4.*": "as with two processes",
    r"shuffle_row_groups=False r(2000rg|10000f20) pool=process.*": "as with eight files",
    r"shuffle_row_groups=False (r2000rg|r10000f20) pool=thread workers=(4|None).*": (
        "the original's order varies from run to run"
    ),
    r"(tf default workers|2 epochs order repeated|seed=5 shuffle same order) .*r10000f20.*": (
        "the original's order varies from run to run"
    ),
    r"random latency transform (r2000rg|r10000f20) thread.*": "as with eight files",
    r"random latency transform .* process .*": "an error of the measurement, not of the package",
    r"(seed=5 shuffle process|shuffle_rows\+shuffle_row_groups seed=42 repro process) .*": (
        "the original's order varies from run to run; the bridge's: readers/test_order.py"
    ),
    r"shard when files have multiple row groups": "an error of the measurement; see 3b",
    r"horovod env, none given: raw stderr.*": "the logging module's words about the original",
    r"edit \(2,3\) ok process pool \[(batched|tf)\]": "as with DataLoader",
    r"parent dir 's3a://bucket/x'": "needs a network; see test_remote_s3.py",
    r"default wait when file missing.*": "spark/test_deletion.py",
    r"use in Spark task \(closure\)|local-disk process pool": "an error of the measurement",
    r"use after spark\.stop\(\)": "spark/test_pickling.py",
    r"vector with null: message|vector dtype=None message": "types: vector … somenull, nonull None",
    r"inputFiles order .*": "how Spark lists files; see the difference partition-order",
    r"dtype float32 on array<array<double>> .*": "spark/test_columns.py",
    r"all log lines of make_spark_converter.*": "spark/test_parent_directory.py",
    r"parquet_row_group_size_bytes=64KiB: row groups": "spark/test_materialize.py",
    r"row-major nullability of spark output": "a fact about Parquet files",
    r"collate batch with 1 row group crossing.*": "a measurement that failed",
}


def behaviours():
    lines = (HERE / "behaviours.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


NAMES = set(all_names())


def has_scenario(behaviour):
    return behaviour in NAMES or any(name.startswith(f"{behaviour} [") for name in NAMES)


@pytest.mark.parametrize("behaviour", behaviours())
def test_behaviour_is_accounted_for(behaviour):
    elsewhere = any(re.fullmatch(pattern, behaviour) for pattern in ELSEWHERE)
    assert has_scenario(behaviour) or elsewhere, "neither a scenario nor a reason"


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_no_reason_is_stale(pattern):
    about = [name for name in behaviours() if re.fullmatch(pattern, name)]
    assert about, "names no behaviour"
    assert not all(has_scenario(name) for name in about), "has scenarios now"


@pytest.mark.parametrize("where", [w for w in ELSEWHERE.values() if re.match(r"\w+/test_", w)])
def test_the_other_tests_exist(where):
    assert (TESTS / where).is_file()
