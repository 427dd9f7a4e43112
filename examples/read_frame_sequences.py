"""Reads a dataset of Petastorm's as sequences: two frames, a tenth of a second apart, with the image of the later.

python read_frame_sequences.py file:///tmp/frames
"""

import argparse

import numpy as np

from frame_data import EVERY, FrameSchema, report
from petastorm_bridge import make_reader
from petastorm_bridge.ngram import NGram

PAIRS = NGram(
    fields={
        -1: [FrameSchema.frame_id, FrameSchema.time, FrameSchema.speed],
        0: [FrameSchema.frame_id, FrameSchema.time, FrameSchema.speed, FrameSchema.image],
    },
    delta_threshold=EVERY * 2,  # sequences do not reach from one drive into the next
    timestamp_field=FrameSchema.time,
)


def read(url: str) -> None:
    """Computes how speed changed and how bright it was, from one sequence at a time."""
    seen: dict[str, list[float]] = {"frame_id": [], "before": [], "faster": [], "image": []}
    with make_reader(url, schema_fields=PAIRS, shuffle_row_groups=False) as reader:
        for pair in reader:
            before, now = pair[-1], pair[0]
            assert now.time - before.time == EVERY
            seen["frame_id"].append(now.frame_id)
            seen["before"].append(before.frame_id)
            seen["faster"].append(now.speed - before.speed)
            seen["image"].append(int(now.image.sum()))
    report("pairs", seen)
    print(f"speed changes by {np.abs(seen['faster']).mean():.3f} from frame to frame")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="where write_frames.py put the dataset")
    read(parser.parse_args().url)
