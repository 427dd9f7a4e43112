"""The guide's page on speed and the README's figures, from the recorded benchmark run."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import far
from benchmarks._command import figure
from benchmarks._measure import Measurement, ratio
from benchmarks._settings import FULL, RESULTS, SUBJECTS, TITLES

from bars import best_first, rows_a_second, subject_path

__all__ = ["far_figures", "folded", "readme_figures", "speed_page"]

# What the README quotes: race, contestant, rival, and how it names the job and the rival.
_QUOTED = (
    ("torch-sequential", "bridge DataLoader", "petastorm DataLoader",
     "`make_torch_dataloader`", "Petastorm's"),
    ("torch-sequential", "bridge DataLoader", "petastorm BatchedDataLoader",
     "`make_torch_dataloader`", "Petastorm's `BatchedDataLoader`"),
    ("torch-sequential", "bridge DataLoader", "native StreamingDataLoader, 0 workers",
     "`make_torch_dataloader`", "`StreamingDataLoader`"),
    ("torch-shuffled", "bridge DataLoader", "petastorm DataLoader",
     "the same, shuffled", "Petastorm's"),
    ("tensorflow", "bridge, batch 1024", "petastorm, batch 1024",
     "`make_tf_dataset`, batches of 1024", "Petastorm's"),
    ("tensorflow", "bridge, batch 32", "petastorm, batch 32",
     "`make_tf_dataset`, batches of 32", "Petastorm's"),
    ("images", "bridge, 2 workers", "petastorm, 2 workers",
     "JPEG images with a PIL transform, 2 workers", "Petastorm's"),
    ("native-sequential", "columnar StreamingDataLoader", "native StreamingDataLoader, 0 workers",
     "`ColumnarStreamingDataset`", "`StreamingDataset`"),
    ("native-shuffled", "columnar StreamingDataLoader", "native StreamingDataLoader, 0 workers",
     "the same, shuffled", "`StreamingDataset`, shuffled"),
    ("materialise", "bridge (MDS)", "petastorm (Parquet)",
     "`make_spark_converter`", "Petastorm's"),
    ("materialise", "bridge (MDS)", "native dataframe_to_mds",
     "`make_spark_converter`", "`dataframe_to_mds`"),
)  # fmt: skip


def speed_page(note: str) -> str:
    """Return the page: every race of the recorded run, and how far the targets were met."""
    run = json.loads(RESULTS.read_text(encoding="utf-8"))
    settings, place = run["settings"], run["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in place["versions"].items())
    lines = [
        note.format(source="benchmarks/results.json (make bench ARGS=--record)"),
        "# Speed\n",
        "For people who want to know how fast the bridge is, beside Petastorm, streaming and others, and how that was measured.",
        "The paragraph below the picture is the result; unfold a race for its figures.\n",
        "![Rows a second: the bridge, Petastorm's two loaders and streaming's](images/four_bars.svg)\n",
        *_in_short(),
        "## How it was measured\n",
        "The figures are medians of `make bench`.\n",
        "- Figures move by a third from run to run and more from machine to machine, so compare within a race.",
        "- Loaders of one race take turns in one process, in another order in every round.",
        "- Peak memory is measured with one process for each loader.",
        "- Far places, and the local disk beside them, are read by processes of their own with cold caches. Files that a",
        "  program has just written can be read faster than these: recent Linux keeps them in pages of 2 MiB, and what it",
        "  reads from a disk or fetches from a far place in smaller ones.",
        "- The two converters take turns. `dataframe_to_mds` runs after them, because it slows Spark's workers down.",
        "- *bridge* is this package's loaders, *native* streaming's own classes, *columnar* this package's",
        "  `ColumnarStreamingDataset` in streaming's loader.\n",
        f"{place['cores']} cores, Python {place['python']}, {versions}. The numeric table has",
        f"{settings['rows']:,} rows of 13 columns (116 bytes), the batches {settings['batch_size']:,}",
        f"rows unless said otherwise; {settings['images']:,} images. The datasets that are opened have an",
        "index and no shards. Blue in the pictures is this project; bars are as long as the medians say.\n",
    ]
    for subject, groups in SUBJECTS.items():
        lines += [f"## {subject}\n", f"![{subject}: the races as bars]({subject_path(subject)})\n"]
        for group in groups:
            lines += _race([one for one in run["measurements"] if one["group"] == group])
    lines += [
        "## Targets\n",
        "What each race should reach, and what this run reached: the median of the ratios of all rounds.",
        "`make bench ARGS='--only …'` runs one race, by its name here.\n",
        "| race | bridge | against | times as good | target |",
        "|---|---|---|---:|---:|",
        *(_target(row) for row in run["targets"]),
    ]
    return "\n".join([*lines, ""])


def _in_short() -> list[str]:
    """Return the paragraph for those who read no further."""
    bridge, batched, plain, stock = (figure(median, 2) for median in rows_a_second().values())
    times = _times_as_good("images", "bridge, 2 workers", "petastorm, 2 workers")
    return [
        f"A loop over a table of 13 numbers a row gets {bridge} rows a second from the bridge, {plain} from Petastorm's",
        f"`DataLoader`, {batched} from its `BatchedDataLoader` and {stock} from streaming's own loader, which reads row by",
        "row. That is reading alone, on two cores and without a model: how much of it your training notices depends on how",
        f"long a step takes. For images that a transform decodes, two workers of the bridge are {times} times as fast as two of",
        "Petastorm's. Code that was rewritten to streaming's own classes reads row by row too, unless",
        "[`--fast`](run-the-codemod.md#destinations) was given: then it reads whole batches.\n",
    ]


def readme_figures() -> str:
    """Return the README's table of ratios."""
    lines = ["| job | times as fast | compared with |", "|---|---:|---|"]
    for group, ours, theirs, job, rival in _QUOTED:
        lines.append(f"| {job} | {_times_as_good(group, ours, theirs)} | {rival} |")
    return "\n".join(lines) + "\n"


def _times_as_good(group: str, ours: str, theirs: str) -> str:
    """Return the ratio of two contestants of the recorded run, as it is printed."""
    run = json.loads(RESULTS.read_text(encoding="utf-8"))
    measured = {(one["group"], one["name"]): one for one in run["measurements"]}
    one, other = (Measurement.from_json(measured[group, name]) for name in (ours, theirs))
    return figure(ratio(one, other), 2)


def far_figures() -> str:
    """Return the table of the page on far places: what each reader gets there of what the place gives."""
    run = json.loads(RESULTS.read_text(encoding="utf-8"))
    medians = {(one["group"], one["name"]): one["median"] for one in run["measurements"]}
    places = list(far.FIRST)

    def cells(name: str) -> list[str]:
        cells = []
        for place in places:
            speed = medians.get((far.FIRST[place], name))
            whole = medians.get((far.FIRST[place], far.CEILING))
            cells.append(f"{figure(speed, 2)} ({speed / whole:.0%})" if speed and whole else "–")
            later = medians.get((far.LATER, f"{name}, {place}"))
            cells.append(figure(later, 2) if later else "–")
        return cells

    sizes = FULL.far
    said = (
        f"{sizes.rows:,} rows of {sizes.row_bytes:,} bytes in {sizes.shards} shards. An answer begins after "
        f"{1000 * sizes.mount_seconds:.0f} ms from the mount, which\ngives 128 KiB at once, and after "
        f"{1000 * sizes.store_seconds:.0f} ms from the store, and comes at {sizes.mount_bandwidth / 1e6:.0f} MB/s. "
        "Megabytes of rows a second:\n"
    )
    lines = [
        said,
        "| reader | " + " | ".join(f"{one}, first epoch | later" for one in places) + " |",
        "|---|" + "---:|---:|" * len(places),
    ]
    lines += [f"| {name} | {' | '.join(cells(name))} |" for name in far.READERS_OF_ROWS]
    return "\n".join(lines) + "\n"


def _race(measurements: list[dict[str, Any]]) -> list[str]:
    """Return the table of a race; nothing if it was not run."""
    race = best_first(measurements)
    if not race:
        return []
    rows = [_measurement(one) for one in race]
    heads = [f"| | {race[0]['unit']} | lowest | highest |", "|---|---:|---:|---:|"]
    return folded(TITLES[race[0]["group"]], [*heads, *rows])


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Return lines of Markdown that show their summary alone until a reader opens them.

    Args:
        summary: A sentence, with names in backticks.
        lines: What is folded.
    """
    told = re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(summary, quote=False))
    opening = f'<details markdown="1"><summary>{told}</summary>'
    return [opening, "", *lines, "", "</details>", ""]


def _target(row: dict[str, Any]) -> str:
    reached = "–" if row["ratio"] is None else figure(row["ratio"], 2)
    wanted = figure(row["at_least"]) + ("" if row["met"] else ", not met")
    return f"| {row['group']} | {row['ours']} | {row['theirs']} | {reached} | {wanted} |"


def _measurement(one: dict[str, Any]) -> str:
    figures = " | ".join(figure(one[name]) for name in ("median", "min", "max"))
    return f"| {one['name']} | {figures} |"
