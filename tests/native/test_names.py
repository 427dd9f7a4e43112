"""The module offers what rewritten code needs, and nothing else."""

import subprocess
import sys

import pytest


def test_unknown_names():
    native = pytest.importorskip("petastorm_bridge.native")
    with pytest.raises(AttributeError, match=r"'petastorm_bridge\.native' has no attribute 'x'"):
        native.x  # noqa: B018
    assert {*native.__all__} <= {*dir(native)}


def test_both_forms_offer_the_same(native):
    from petastorm_bridge import native as ours

    assert native.__all__ == ours.__all__
    assert all(getattr(native, name) for name in native.__all__)


def test_executors_need_no_module(native):
    """What makes the samples there travels whole; a repository's modules may not be on their path."""
    import cloudpickle

    support = sys.modules[native.UnsupportedColumnsError.__module__]
    records = support._record_maker({"id": "int64", "values": "ndarray:float32"})
    code = (
        "import pickle, sys; import pandas as pd; sys.modules[sys.argv[1]] = None; "
        "records = pickle.loads(sys.stdin.buffer.read()); "
        "print(records(pd.DataFrame({'c0': [1], 'c1': [[2]]})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, support.__name__],
        input=cloudpickle.dumps(records),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"[{'id': 1, 'values': array([2.], dtype=float32)}]\n"
