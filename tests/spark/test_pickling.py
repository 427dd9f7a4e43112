"""Converters sent to other processes."""

import multiprocessing
import os
import pickle
import pickletools
import sys

import pytest
import warm
from pyspark.errors import PythonException

from petastorm_bridge.fs_utils import local_path
from petastorm_bridge.spark import make_spark_converter

pytestmark = pytest.mark.spark


def read_ids(converter):
    with converter.make_torch_dataloader(num_epochs=1, shuffle_row_groups=False) as loader:
        return [i for batch in loader for i in batch["id"].tolist()]


def test_a_pickle_holds_the_urls_and_little_else(spark, cache_dir):
    converter = make_spark_converter(spark.range(1000, numPartitions=8))
    data = pickle.dumps(converter)
    assert len(data) - len(pickle.dumps(converter.file_urls)) < 2048
    copy = pickle.loads(data)
    assert vars(copy) == vars(converter)
    assert read_ids(copy) == list(range(1000))
    names = {arg for op, arg, _ in pickletools.genops(data) if "UNICODE" in op.name}
    assert not any("pyspark" in str(name) for name in names)


def test_a_context_manager_pickles_before_it_is_entered(spark, cache_dir):
    converter = make_spark_converter(spark.range(10, numPartitions=1))
    manager = pickle.loads(pickle.dumps(converter.make_torch_dataloader(num_epochs=1)))
    with manager as loader:
        assert [batch["id"].tolist() for batch in loader] == [list(range(10))]


@pytest.mark.smoke
def test_a_converter_works_in_spark_tasks(spark, cache_dir):
    converter = make_spark_converter(spark.range(20, numPartitions=2))

    def read(shard):
        with converter.make_torch_dataloader(
            num_epochs=1, cur_shard=shard, shard_count=2, shuffle_row_groups=False
        ) as loader:
            return [i for batch in loader for i in batch["id"].tolist()]

    parts = spark.sparkContext.parallelize(range(2), 2).map(read).collect()
    assert sorted(parts[0] + parts[1]) == list(range(20))


def test_a_pickled_converter_of_a_path_still_does_not_delete(spark, cache_dir, tmp_path):
    source = tmp_path / "table"
    spark.range(5).write.parquet(str(source))
    pickle.loads(pickle.dumps(make_spark_converter(f"file://{source}"))).delete()
    assert list(source.glob("*.parquet"))


def test_delete_works_in_a_spark_task(spark, cache_dir):
    converter = make_spark_converter(spark.range(20))

    def delete(_):
        converter.delete()
        return "deleted"

    assert spark.sparkContext.parallelize([0], 1).map(delete).collect() == ["deleted"]
    assert not os.path.exists(local_path(converter.cache_dir_url))
    assert len(make_spark_converter(spark.range(20))) == 20


def test_make_spark_converter_is_refused_inside_a_task(spark, cache_dir, tmp_path):
    directory = f"file://{tmp_path}"

    def convert(_):
        try:
            make_spark_converter(directory)
        except RuntimeError as error:
            return str(error)
        return "no error"

    found = spark.sparkContext.parallelize([0], 1).map(convert).collect()
    assert found == ["_get_spark_session should not be invoked from executor side."]


def test_a_converted_directory_is_opened_inside_a_task(spark, cache_dir):
    """As rewritten code does where its calls stay on the bridge, with Horovod's ranks for instance."""
    url = make_spark_converter(spark.range(20)).cache_dir_url

    def read(shard):
        converter = make_spark_converter(url)
        options = {"num_epochs": 1, "cur_shard": shard, "shard_count": 2}
        with converter.make_torch_dataloader(**options) as loader:
            return [row for batch in loader for row in batch["id"].tolist()]

    first, second = spark.sparkContext.parallelize([0, 1], 2).map(read).collect()
    assert sorted(first + second) == list(range(20))


def test_the_session_is_refused_inside_a_task(spark):
    def session(batches):
        from petastorm_bridge.spark.spark_dataset_converter import _get_spark_session

        _get_spark_session()
        yield from batches

    with pytest.raises(PythonException, match="should not be invoked from executor side"):
        spark.range(1).mapInArrow(session, "id long").collect()


@pytest.mark.modern
@pytest.mark.slow
def test_a_converter_works_in_a_spawned_process(spark, cache_dir):
    converter = make_spark_converter(spark.range(50, numPartitions=2))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_read_in_child, (pickle.dumps(converter),)) == list(range(50))


def _read_in_child(data):
    return read_ids(pickle.loads(data))


# pyspark leaves the pipe to its subprocess to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.slow
def test_a_converter_works_in_a_torch_distributor(spark, cache_dir):
    from pyspark.ml.torch.distributor import TorchDistributor

    converter = make_spark_converter(spark.range(41, numPartitions=2))

    def train(converter):
        import os

        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        found = {}
        for name, kwargs in (
            ("everything", {}),
            ("shard", {"cur_shard": rank, "shard_count": size}),
        ):
            with converter.make_torch_dataloader(num_epochs=1, **kwargs) as loader:
                found[name] = sorted(i for batch in loader for i in batch["id"].tolist())
        return rank, size, found  # of either rank

    distributor = TorchDistributor(num_processes=2, local_mode=True, use_gpu=False)
    rank, size, found = distributor.run(train, converter)
    assert (rank in {0, 1}, size) == (True, 2)
    # Without shard arguments every process reads all rows, whatever the launcher's environment.
    assert found["everything"] == list(range(41))
    assert len(found["shard"]) in {20, 21}


@pytest.mark.modern
@pytest.mark.slow
def test_a_converter_needs_neither_spark_nor_its_own_process(spark, cache_dir, tmp_path):
    converter = make_spark_converter(spark.range(10, numPartitions=1))
    (tmp_path / "converter.pickle").write_bytes(pickle.dumps(converter))
    script = (
        "import pickle, sys\n"
        "sys.modules['pyspark'] = None\n"  # as if it were not installed
        "converter = pickle.load(open('converter.pickle', 'rb'))\n"
        "with converter.make_torch_dataloader(num_epochs=1) as loader:\n"
        "    assert [b['id'].tolist() for b in loader] == [list(range(10))]\n"
        "converter.delete()\n"
    )
    warm.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=tmp_path,
        check=True,
        timeout=200,
    )
    assert list(cache_dir.iterdir()) == []
