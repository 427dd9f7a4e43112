"""Searches a learning rate with Optuna: all trials read one converter, two at a time.

python tune_optuna.py
"""

import argparse
import tempfile

import optuna
import torch

from example_data import digits_url, report
from petastorm_bridge.predicates import in_lambda
from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter

TRAIN = in_lambda(["id"], lambda ids: ids % 5 != 0)
HELD_BACK = in_lambda(["id"], lambda ids: ids % 5 == 0)
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


def train_and_judge(converter: SparkDatasetConverter, rate: float, number: int) -> float:
    """Trains one epoch with a learning rate; returns the accuracy on the rows held back."""
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    seen: list[int] = []
    with converter.make_torch_dataloader(
        batch_size=32, num_epochs=1, seed=number, predicate=TRAIN
    ) as loader:
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["features"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += batch["id"].tolist()
    report(f"trial {number}, trained", seen)
    right, held_back = 0, []
    with converter.make_torch_dataloader(
        batch_size=256, num_epochs=1, predicate=HELD_BACK
    ) as loader:
        for batch in loader:
            right += int((model(batch["features"]).argmax(dim=1) == batch["label"]).sum())
            held_back += batch["id"].tolist()
    report(f"trial {number}, judged", held_back)
    return right / len(held_back)


def main(folder: str) -> None:
    """Tries six learning rates, from too small to too large."""
    converter = make_spark_converter(digits_url(folder))  # or a Spark DataFrame, converted once

    def objective(trial: optuna.Trial) -> float:
        rate = trial.suggest_categorical("rate", RATES)
        return train_and_judge(converter, rate, trial.number)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.GridSampler({"rate": RATES})
    )
    study.optimize(objective, n_trials=len(RATES), n_jobs=2)
    print(f"best rate {study.best_params['rate']:.4f}: accuracy {study.best_value:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", help="where the data is, or goes")
    chosen = parser.parse_args().cache_dir
    with tempfile.TemporaryDirectory() as temporary:
        main(chosen or temporary)
