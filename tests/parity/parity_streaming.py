"""Recordings as StreamingDataset leaves them: with repeated rows that even out the ranks."""

from parity_tables import batches, taken

from petastorm_bridge.parity import record


class Loader:
    """A loader over a StreamingDataset, as far as the recorder looks at it."""

    def __init__(self, table):
        self.dataset = type("StreamingDataset", (), {"__module__": "streaming.base.dataset"})()
        self.table = table

    def __iter__(self):
        return batches(self.table)


def padded(out, table, parts):
    for rank, rows in enumerate(parts):
        record(Loader(taken(table, rows)), out, rank=rank, world_size=len(parts))
    return out
