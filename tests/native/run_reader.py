"""Reads a directory of 600 rows once: ``python run_reader.py MODULE DIRECTORY [far]``.

A directory that is called ``-`` comes pickled on standard input; with ``far`` it seems to lie on a mount of the
network. Prints where it was read from, and the ids.
"""

import importlib
import json
import pickle
import sys

from streaming import StreamingDataLoader, StreamingDataset


def main(module, path, *far):
    native = importlib.import_module(module)
    if far:
        native.MdsDirectory._is_far = lambda directory: True
    is_pickled = path == "-"
    directory = (
        pickle.loads(sys.stdin.buffer.read()) if is_pickled else native.MdsDirectory(path, 600)
    )
    dataset = StreamingDataset(
        remote=directory.remote, local=directory.local, shuffle=True, batch_size=10
    )
    ids = [i for batch in StreamingDataLoader(dataset, batch_size=10) for i in batch["id"].tolist()]
    # At once, with the end of the line: ranks write into one file.
    sys.stdout.write(json.dumps([dataset.streams[0].local, ids]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
