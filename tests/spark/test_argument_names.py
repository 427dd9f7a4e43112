"""An argument that nobody knows is told by the name of the function that the user called."""

import pytest

from petastorm_bridge.spark.spark_dataset_converter import (
    TFDatasetContextManager,
    TorchDatasetContextManager,
)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cur_shrad", " Did you mean 'cur_shard'?"),
        ("batchsize", " Did you mean 'batch_size'?"),
        ("zzz", ""),
    ],
)
def test_unknown_arguments(name, hint):
    managers = {
        "make_torch_dataloader": TorchDatasetContextManager([], 32, {name: 1}, 0, None),
        "make_tf_dataset": TFDatasetContextManager([], 32, None, {name: 1}, 0),
    }
    for function, manager in managers.items():
        with pytest.raises(TypeError) as caught, manager:
            pass
        assert (
            str(caught.value) == f"{function}() got an unexpected keyword argument {name!r}.{hint}"
        )
