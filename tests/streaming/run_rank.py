"""One rank of a run: ``python run_rank.py REMOTE LOCAL STATE BATCHES [KIND WORKERS LIMIT]``.

Prints each batch's ids. With a STATE file that exists it resumes from there. After BATCHES batches, if
that is not 0, rank 0 writes its state there and the process waits to be killed. KIND is ``stock`` for
streaming's own dataset, WORKERS how many the loader has, LIMIT the bytes that the cache may have.
"""

import json
import os
import sys
import time

from streaming import StreamingDataLoader, StreamingDataset

from petastorm_bridge.streaming import ColumnarStreamingDataset


def main(remote, local, state, batches, kind="columnar", workers=0, limit=None):
    made = StreamingDataset if kind == "stock" else ColumnarStreamingDataset
    place = {"remote": remote, "local": local, "cache_limit": limit and int(limit)}
    dataset = made(**place, batch_size=6, shuffle=True, num_canonical_nodes=2)
    size = 6 if kind == "stock" else None
    loader = StreamingDataLoader(dataset, batch_size=size, num_workers=int(workers))
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            loader.load_state_dict(json.load(file))
    for number, batch in enumerate(loader, 1):
        print(json.dumps(batch["id"].tolist()), flush=True)
        if number == int(batches):
            if os.environ.get("RANK", "0") == "0":
                with open(state, "w", encoding="utf-8") as file:
                    json.dump(loader.state_dict(), file)
            print("waiting", flush=True)
            time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
