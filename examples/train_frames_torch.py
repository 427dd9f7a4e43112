"""Trains with PyTorch on a dataset of Petastorm's: images decoded and made features row by row.

python train_frames_torch.py file:///tmp/frames
"""

import argparse

import numpy as np
import torch

from frame_data import PLACES, SIZE, features, report
from petastorm_bridge import TransformSpec, make_reader
from petastorm_bridge.predicates import in_lambda
from petastorm_bridge.pytorch import DataLoader

TRANSFORM = TransformSpec(
    features,
    edit_fields=[
        ("image", np.float32, (3, SIZE, SIZE), False),
        ("nearest", np.float32, (), False),
    ],
    selected_fields=["frame_id", "image", "nearest", "place"],
)
TRAINING = in_lambda(["frame_id"], lambda frame_id: frame_id % 5 != 0)
HELD_OUT = in_lambda(["frame_id"], lambda frame_id: frame_id % 5 == 0)


def train(url: str) -> None:
    """Trains ten epochs, then looks at frames that were held out."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIZE * SIZE, PLACES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    reader = make_reader(
        url, predicate=TRAINING, transform_spec=TRANSFORM, num_epochs=10, seed=1, workers_count=2
    )
    seen: dict[str, list[float]] = {"frame_id": [], "nearest": [], "image": []}
    with DataLoader(reader, batch_size=16, shuffling_queue_capacity=64) as loader:
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["place"].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen["frame_id"] += batch["frame_id"].tolist()
            seen["nearest"] += batch["nearest"].tolist()
            seen["image"] += batch["image"].double().mean((1, 2, 3)).tolist()
    report("trained", seen)

    right = 0
    ids: list[float] = []
    reader = make_reader(url, predicate=HELD_OUT, transform_spec=TRANSFORM, workers_count=2)
    with DataLoader(reader, batch_size=16) as loader, torch.no_grad():
        for batch in loader:
            right += int((model(batch["image"]).argmax(1) == batch["place"]).sum())
            ids += batch["frame_id"].tolist()
    report("held out", {"frame_id": ids})
    print(f"accuracy {right / len(ids):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="where write_frames.py put the dataset")
    train(parser.parse_args().url)
