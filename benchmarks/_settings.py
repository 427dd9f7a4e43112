"""How much is measured: the full run behind published figures, and a quick one for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SEED = 20

# What is raced, and the package that each name imports.
MODULES = {"petastorm": "petastorm", "bridge": "petastorm_bridge"}

# Every race, in the order in which they are run and shown, and its heading.
TITLES = {
    "torch-sequential": "torch, no shuffling queue",
    "torch-shuffled": "torch, shuffling_queue_capacity set",
    "torch-scalars": "torch, no shuffling queue, 13 scalar columns (no array)",
    "direct-parquet": "torch, Parquet read directly",
    "competitors": "torch, other libraries over the same rows",
    "tensorflow": "make_tf_dataset",
    "images": "JPEG bytes, PIL transform",
    "rows-arrays": "make_reader on Petastorm's own dataset, scalars and arrays",
    "rows-jpeg": "make_reader on Petastorm's own dataset, JPEG images",
    "rows-png": "make_reader on Petastorm's own dataset, PNG images",
    "native-sequential": "StreamingDataset, stored order",
    "native-shuffled": "StreamingDataset, shuffled by py1e",
    "first-batch": "a new process, to its first batch of tensors",
    "memory": "peak memory above imports",
    "rows-memory": "peak memory of make_reader above imports",
    "opening-time": "opening a dataset: shards × rows of each",
    "opening-memory": "peak memory of opening a dataset: shards × rows of each",
    "growth-time": "text, bytes, large rows, wide tables, many files and tiny shards, and four times as many",
    "growth-memory": "peak memory of text, bytes, large rows, wide tables, many files and tiny shards, and four times as many",
    "materialise": "materialising from Spark",
    "materialise-cluster": "materialising from Spark, two executor processes",
    "first-task": "writing 100 rows from Spark with a new Python worker",
    "codemod": "the codemod over a repository, one file of a hundred with Petastorm",
    "growth-codemod": "the codemod over files that all use Petastorm, and four times as many",
    "far-mount": "a mount of a store, first epoch",
    "far-store": "an S3 store, first epoch",
    "far-later": "far places, a later epoch",
    "far-later-large": "far places, a later epoch of four times the rows",
    "far-parquet": "far places, Parquet of twenty columns",
    "far-requests": "far places, requests one after the other from the opening to the first batch",
    "far-bytes": "far places, what was fetched",
    "far-writing": "writing to a mount of a store",
    "far-writing-large": "writing four times the rows to a mount of a store",
    "far-notebook": "a notebook that trains on images, its cache directory on a mount of a store",
}
GROUPS = tuple(TITLES)

# What a reader of the guide looks for, and the races that tell it.
SUBJECTS = {
    "PyTorch": ("torch-sequential", "torch-shuffled", "torch-scalars"),
    "Parquet and other libraries": ("direct-parquet", "competitors"),
    "TensorFlow": ("tensorflow",),
    "Images": ("images",),
    "Petastorm's own datasets": ("rows-arrays", "rows-jpeg", "rows-png"),
    "Streaming's own classes": ("native-sequential", "native-shuffled"),
    "The first batch": ("first-batch", "opening-time"),
    "Memory": ("memory", "rows-memory", "opening-memory"),
    "Text, large rows, wide tables, many files and tiny shards": ("growth-time", "growth-memory"),
    "Writing": ("materialise", "materialise-cluster", "first-task"),
    "The codemod": ("codemod", "growth-codemod"),
    "Far places": (
        "far-mount",
        "far-store",
        "far-later",
        "far-later-large",
        "far-parquet",
        "far-requests",
        "far-bytes",
        "far-writing",
        "far-writing-large",
        "far-notebook",
    ),
}

# The units of which less is better.
COSTS = frozenset({"MiB", "ms", "requests"})

# The recorded run, from which the guide's page and the README's figures are made.
RESULTS = Path(__file__).resolve().parent / "results.json"


@dataclass(frozen=True)
class Far:
    """Of the races over far places.

    Attributes:
        rows: rows of a dataset.
        row_bytes: bytes of a row, which do not compress.
        dtype: NumPy's name of the type of its values.
        shards: shards or files of a dataset.
        batch_size: rows of a batch.
        mount_seconds: until the mount's answer begins, for each 128 KiB.
        mount_bandwidth: bytes a second of one of its answers.
        store_seconds: until the store's answer begins.
        store_bandwidth: bytes a second of one of its answers.
    """

    rows: int = 40_000
    row_bytes: int = 4096
    dtype: str = "float32"
    shards: int = 10
    batch_size: int = 256
    mount_seconds: float = 0.02
    mount_bandwidth: float = 80e6
    store_seconds: float = 0.03
    store_bandwidth: float = 80e6


@dataclass(frozen=True)
class Settings:
    """Sizes and repetitions of one run.

    Attributes:
        rows: rows of the numeric table (13 columns, 116 bytes each).
        native_rows: rows for StreamingDataLoader, which is too slow for the whole table.
        partitions: Spark partitions of the numeric table, hence files or shards.
        write_partitions: the same when writing is raced, one for each core. Every Python task of
            Spark's costs a tenth of a second, whatever it does.
        batch_size: rows per batch everywhere but where a table says otherwise.
        small_batch: the second, small batch size for ``make_tf_dataset``.
        shuffling_queue_capacity: rows, for the shuffled races.
        images: JPEG rows of the image table.
        image_partitions: Spark partitions of the image table.
        image_batch: images per batch.
        rounds: measured epochs of each contestant, after one unmeasured.
        slow_rounds: the same for what takes many seconds (materialising, memory).
        memory_growth: how many times larger the second table of the memory race is.
        isolate: every race in a process of its own, so that none is slowed by what another left
            behind; otherwise the races between loaders share one.
        memory_loaders: which loaders the memory race covers (keys of ``_memory.LOADERS``).
        stored_rows: rows of Petastorm's own dataset of scalars and arrays.
        stored_group: rows of one of its row groups.
        stored_images: rows of Petastorm's own datasets of images.
        stored_image_group: rows of one of its row groups.
        codemod_files: files of the repository that the codemod looks through.
        codemod_users: how many of them use Petastorm.
        codemod_scripts: files that all use Petastorm; four times as many the second time.
        openings: shards and rows of the datasets that are opened; growing in shards, then in rows.
        growth_rows: rows of 1,000 characters, in four row groups; four times as many the second time.
        growth_large_rows: rows of 4 MiB, in four row groups; likewise.
        growth_columns: float32 columns of 4,000 rows; likewise.
        growth_files: Parquet files of ten rows; likewise.
        growth_shards: shards of four rows; likewise.
        far: the races over far places.
        far_rounds: rounds of these; epochs of a tenth of a second scatter.
        notebook_images: JPEG images, of 16 kB each, that the notebook trains on.
    """

    rows: int = 200_000
    native_rows: int = 50_000
    partitions: int = 8
    write_partitions: int = 2
    batch_size: int = 1024
    small_batch: int = 32
    shuffling_queue_capacity: int = 10_000
    images: int = 1_000
    image_partitions: int = 16
    image_batch: int = 32
    rounds: int = 7
    slow_rounds: int = 3
    memory_growth: int = 4
    isolate: bool = True
    memory_loaders: tuple[str, ...] = (
        "DataLoader",
        "DataLoader, shuffled",
        "BatchedDataLoader",
        "BatchedDataLoader, shuffled",
        "make_tf_dataset",
    )
    stored_rows: int = 10_000
    stored_group: int = 250
    stored_images: int = 1_000
    stored_image_group: int = 50
    codemod_files: int = 10_000
    codemod_users: int = 100
    codemod_scripts: int = 2_000
    openings: tuple[tuple[int, int], ...] = (
        (10, 10**6),
        (1_000, 10**6),
        (20_000, 10**6),
        (20_000, 10**9),
    )
    growth_rows: int = 32_000
    growth_large_rows: int = 24
    growth_columns: int = 400
    growth_files: int = 1_600
    growth_shards: int = 2_000
    far: Far = Far()
    far_rounds: int = 5
    notebook_images: int = 3_000


FULL = Settings()
QUICK = Settings(
    rows=3_000,
    native_rows=1_000,
    partitions=3,
    write_partitions=2,
    batch_size=256,
    shuffling_queue_capacity=500,
    images=24,
    image_partitions=2,
    image_batch=8,
    rounds=1,
    slow_rounds=1,
    memory_growth=2,
    isolate=False,
    memory_loaders=("DataLoader",),
    stored_rows=400,
    stored_group=50,
    stored_images=24,
    stored_image_group=4,
    codemod_files=60,
    codemod_users=6,
    codemod_scripts=4,
    openings=((2, 100), (4, 100), (40, 100), (40, 10_000)),
    growth_rows=200,
    growth_large_rows=4,
    growth_columns=5,
    growth_files=4,
    growth_shards=100,
    far=Far(
        rows=300,
        row_bytes=320,
        shards=3,
        batch_size=32,
        mount_seconds=0.001,
        store_seconds=0.001,
    ),
    far_rounds=1,
    notebook_images=400,
)
