"""Open one loader over Parquet files and record it: the program of ``petastorm-bridge parity run``.

It is copied beside the recorder and run by the interpreter of the loader in question, Petastorm's
for instance, so it needs Python 3.8 only. The same lines serve Petastorm and the bridge: nothing but
the package's name differs.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

READER_DEFAULTS = {"num_epochs": 1, "shuffle_row_groups": False}


def open_reader(package: str, urls: Any, options: dict[str, Any], transform: str | None) -> Any:
    """Open the package's batch reader with these options."""
    options = dict(READER_DEFAULTS, **options)
    if transform:
        import recorder  # type: ignore[import-not-found] # a copy of it

        spec_class = importlib.import_module(package + ".transform").TransformSpec
        options["transform_spec"] = recorder.find_function(transform)(spec_class)
    return importlib.import_module(package).make_batch_reader(urls, **options)


def open_loader(spec: dict[str, Any]) -> Any:
    """Open the loader that was asked for."""
    options = dict(spec["options"])
    capacity = options.pop("shuffling_queue_capacity", 0)
    batch_size, package = spec["batch_size"], spec["package"]
    if spec["loader"] == "tf":
        from tensorflow import config

        config.threading.set_inter_op_parallelism_threads(2)
        reader = open_reader(package, spec["urls"], options, spec["transform"])
        tf_utils = importlib.import_module(package + ".tf_utils")
        dataset = tf_utils.make_petastorm_dataset(reader).unbatch()
        if capacity:
            dataset = dataset.shuffle(capacity)
        return dataset.batch(batch_size)
    reader = open_reader(package, spec["urls"], options, spec["transform"])
    pytorch = importlib.import_module(package + ".pytorch")
    loader_class = {"torch": "DataLoader", "batched": "BatchedDataLoader"}[spec["loader"]]
    return getattr(pytorch, loader_class)(
        reader, batch_size=batch_size, shuffling_queue_capacity=capacity
    )


def open_streaming(spec: dict[str, Any]) -> Any:
    """Open plain streaming over a directory of MDS shards."""
    from streaming import StreamingDataLoader, StreamingDataset

    options = dict(spec["options"])
    shuffle: dict[str, Any] = {"shuffle": bool(options.get("shuffle_row_groups"))}
    if options.get("seed") is not None:
        shuffle["shuffle_seed"] = options["seed"]
    dataset = StreamingDataset(local=spec["mds"], batch_size=spec["batch_size"], **shuffle)
    return StreamingDataLoader(dataset, batch_size=spec["batch_size"])


def main() -> int:
    """Record what the specification in the named JSON file asks for."""
    import recorder

    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    epochs = 1
    if spec["package"] == "streaming":
        epochs = spec["options"].get("num_epochs", 1)
        if epochs is None:  # the limit of rows ends it
            epochs = sys.maxsize
        loader = open_streaming(spec)
    else:
        loader = open_loader(spec)
    try:
        recorder.record(
            loader,
            spec["out"],
            epochs=epochs,
            limit=spec["limit"],
            rank=spec["rank"],
            world_size=spec["world_size"],
            overwrite=True,
        )
    finally:
        leave = getattr(loader, "__exit__", None)
        if leave is not None:
            leave(None, None, None)
    return 0


if __name__ == "__main__":
    code = 1
    # The recorder lies beside this file, where a Python that keeps to safe paths does not look.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        code = main()
    except Exception:  # noqa: BLE001 - the message is for whoever started this
        traceback.print_exc()
    # Threads of the loader may still be at work; what matters has been written.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
