"""Leaves Petastorm's format: converts the dataset to MDS, then trains with streaming alone.

python convert_frames.py file:///tmp/frames /tmp/frames-mds
"""

import argparse
import subprocess
from typing import Any

import torch
from streaming import StreamingDataLoader, StreamingDataset

from frame_data import PLACES, SIZE, features, report


class Frames(StreamingDataset):
    """The converted frames, with the features that the TransformSpec made of them before."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The features of one frame; images stay PNG in the shards, and come decoded by streaming."""
        return features(super().__getitem__(index))


def convert(url: str, directory: str) -> None:
    """Runs the command that anybody would type."""
    command = ["petastorm-bridge", "convert", url, directory, "--compression", "zstd:3", "--quiet"]
    subprocess.run(command, check=True)  # noqa: S603


def train(directory: str) -> None:
    """Trains ten epochs."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIZE * SIZE, PLACES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    dataset = Frames(local=directory, shuffle=True, shuffle_seed=1, batch_size=16)
    seen: dict[str, list[float]] = {"frame_id": [], "nearest": [], "image": []}
    for _ in range(10):  # epochs
        right = 0
        for batch in StreamingDataLoader(dataset, batch_size=16):
            scores = model(batch["image"])
            loss = torch.nn.functional.cross_entropy(scores, batch["place"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((scores.argmax(1) == batch["place"]).sum())
            seen["frame_id"] += batch["frame_id"].tolist()
            seen["nearest"] += batch["nearest"].tolist()
            seen["image"] += batch["image"].double().mean((1, 2, 3)).tolist()
    report("trained", seen)
    print(f"accuracy {right / len(dataset):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="where write_frames.py put the dataset")
    parser.add_argument("directory", help="where the shards go")
    chosen = parser.parse_args()
    convert(chosen.url, chosen.directory)
    train(chosen.directory)
