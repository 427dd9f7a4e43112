"""The module offers what rewritten code needs, and nothing else."""

import pytest


def test_unknown_names():
    native = pytest.importorskip("petastorm_bridge.native")
    with pytest.raises(AttributeError, match=r"'petastorm_bridge\.native' has no attribute 'x'"):
        native.x  # noqa: B018
    assert {*native.__all__} <= {*dir(native)}
