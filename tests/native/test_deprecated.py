"""What an earlier release's codemod wrote still runs, and says that it will not for long."""

import subprocess
import sys

import pytest

OLD = [
    "StreamingDataLoader",
    "StreamingDataset",
    "TransformSpec",
    "dataframe_to_mds",
    "from_petastorm",
    "open_tf",
    "open_torch",
    "tf_dataset",
]


def test_old_names_warn_who_imports_them():
    lines = [f"from petastorm_bridge.native import {name}\nprint({name})" for name in OLD]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert all(name in done.stdout for name in OLD)
    for number, name in enumerate(OLD):
        # The line is the import's.
        told = f"<string>:{2 * number + 1}: DeprecationWarning: petastorm_bridge.native.{name} goes"
        assert done.stderr.count(told) == 1


def test_every_use_is_told():
    native = pytest.importorskip("petastorm_bridge.native")
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match=r"native\.open_torch goes with the next"):
            assert native.open_torch
    assert not set(OLD) & set(native.__all__)


def test_the_old_module_warns():
    code = "import petastorm_bridge.native_fast as fast; print(fast.StreamingDataLoader.__name__)"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "StreamingDataLoader\n"
    assert "DeprecationWarning: petastorm_bridge.native_fast goes" in done.stderr


def test_unknown_names():
    native = pytest.importorskip("petastorm_bridge.native")
    with pytest.raises(AttributeError, match=r"'petastorm_bridge\.native' has no attribute 'x'"):
        native.x  # noqa: B018
    assert {*native.__all__} <= {*dir(native)}
