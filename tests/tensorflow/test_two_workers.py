"""TensorFlow over two processes: each reads its shard, all of them take as many steps."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import warm

pytestmark = [pytest.mark.tf, pytest.mark.slow]

WORKER = """
    import json, sys
    import tensorflow as tf
    from petastorm_bridge.spark import make_spark_converter

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weight = tf.Variable(0.0)

    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * batch.x - 1) ** 2)
        gradient = tape.gradient(loss, weight)
        context = tf.distribute.get_replica_context()
        weight.assign_sub(0.1 * context.all_reduce("MEAN", gradient))  # waits for the other process

    @tf.function(reduce_retracing=True)
    def train_step(batch):
        strategy.run(step, args=(batch,))

    epochs = []
    converter = make_spark_converter(sys.argv[1])
    with converter.make_tf_dataset(batch_size=7, num_epochs=1, shard_by_rank=True) as dataset:
        batches = strategy.distribute_datasets_from_function(lambda context: dataset)
        for _ in range(2):
            epochs.append([])
            for batch in batches:
                train_step(batch)
                (ids,) = strategy.experimental_local_results(batch.id)
                epochs[-1].append(ids.numpy().tolist())
    print("epochs", json.dumps([epochs, float(weight.numpy())]), flush=True)
"""


def _addresses(count):
    """Addresses on this machine that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def _train(script, url):
    """Return both processes at their ends; one that cannot have its address ends them, or they time out."""
    addresses = _addresses(2)

    def work(rank):
        task = {"type": "worker", "index": rank}
        config = {"cluster": {"worker": addresses}, "task": task}
        return warm.run(
            [sys.executable, str(script), url],
            env={**os.environ, "TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, range(2)))


def test_a_loop_under_a_strategy_of_two_processes(numbered, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER))
    url = numbered(101, [60, 41])
    for _ in range(3):  # another process may take an address before TensorFlow does
        try:
            ended = _train(script, url)
        except subprocess.TimeoutExpired:
            continue
        if not any(each.returncode for each in ended):
            break
    assert not any(each.returncode for each in ended), "".join(each.stderr[-3000:] for each in ended)
    found = [json.loads(each.stdout.partition("epochs ")[2]) for each in ended]
    (first, weight), (second, other_weight) = found
    assert weight == other_weight != 0
    for epochs in zip(first, second, strict=True):
        assert [[len(batch) for batch in batches] for batches in epochs] == [[7] * 7 + [2]] * 2
        read = Counter(row for batches in epochs for batch in batches for row in batch)
        assert set(read) == set(range(101))
        assert read.total() == 102  # the shorter shard reads a row again
    assert sorted(first[0]) != sorted(first[1]), "each epoch is shuffled anew"
