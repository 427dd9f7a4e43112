"""The warning about shard arguments that differ from a launcher's environment."""

import pytest

from petastorm_bridge.spark.spark_dataset_converter import (
    SparkDatasetConverter,
    _check_rank_and_size_consistent_with_horovod,
    _get_horovod_rank_and_size,
)

NAMES = [
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for names in NAMES:
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("names", NAMES)
def test_every_launcher_is_known(monkeypatch, names):
    monkeypatch.setenv(names[0], "1")
    assert _get_horovod_rank_and_size() == (None, None)
    monkeypatch.setenv(names[1], "3")
    assert _get_horovod_rank_and_size() == (1, 3)


@pytest.mark.parametrize(
    ("kwargs", "consistent"),
    [
        ({"cur_shard": 1, "shard_count": 3}, True),
        ({"cur_shard": 1, "shard_count": 2}, False),
        ({"cur_shard": 0, "shard_count": 3}, False),
    ],
)
def test_differing_arguments_are_warned_of(monkeypatch, caplog, kwargs, consistent):
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    assert _check_rank_and_size_consistent_with_horovod(kwargs) == consistent
    assert ("is not consistent with horovod" in caplog.text) != consistent


def test_without_a_launcher_everything_is_consistent():
    assert _check_rank_and_size_consistent_with_horovod({"cur_shard": 1, "shard_count": 3})


@pytest.mark.difference("horovod-warning-formats")
@pytest.mark.parametrize("method", ["make_torch_dataloader", "make_tf_dataset"])
def test_left_out_arguments_are_warned_of_in_a_formatted_message(monkeypatch, caplog, method):
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    getattr(SparkDatasetConverter("file:///x", ["file:///x/y"], 1), method)()
    [message] = caplog.messages
    assert message == (
        "The petastorm reader arguments cur_shard(None) and shard_count(None) is not consistent "
        "with horovod environments hvd_rank(1) and hvd_size(3), If you want each horovod worker "
        "train on one corresponding shard data, you should set argument `cur_shard` to be "
        "`hvd.rank()` and argument `shard_count` to be `hvd.size()`."
    )
