"""One rank of a run, as the codemod writes it: ``python run_rank.py DIRECTORY STATE BATCHES [SIZE ...]``.

With sizes of batches, there is a run for each of them. Prints each batch's ids, beginning where STATE says, if
that file is there. After BATCHES batches, if that is not 0, rank 0 writes STATE and the program ends in the middle
of the epoch.
"""

import json
import os
import sys

from streaming import StreamingDataLoader, StreamingDataset
from torch import distributed


def main(path, state, batches, *sizes):
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:  # a group that lasts: streaming makes and ends one for each dataset otherwise
        distributed.init_process_group("gloo")
    for size in map(int, sizes or [4]):
        train(path, state, batches, size)
    if ranks > 1:
        distributed.destroy_process_group()


def train(path, state, batches, size):
    dataset = StreamingDataset(local=path, shuffle=True, shuffle_seed=7, batch_size=size)
    loader = StreamingDataLoader(dataset, batch_size=size)
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            loader.load_state_dict(json.load(file))
    rank = int(os.environ.get("RANK", "0"))
    for number, batch in enumerate(loader, 1):
        line = json.dumps({"rank": rank, "size": size, "ids": batch["id"].tolist()}) + "\n"
        print(line, end="", flush=True)  # in one piece: the ranks share a pipe
        if number == int(batches):
            if rank == 0:
                with open(state, "w", encoding="utf-8") as file:
                    json.dump(loader.state_dict(), file)
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
