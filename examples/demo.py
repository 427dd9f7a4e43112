"""Runs the examples one after the other; `make demo` calls this."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEPS = (
    ("train_digits.py", "Handwritten digits: float arrays from Spark to PyTorch and Keras"),
    ("train_photos.py", "Photographs: JPEG bytes, decoded by a TransformSpec while reading"),
    ("read_with_streaming.py", "The same shards, read by Mosaic's StreamingDataset alone"),
)


def main() -> None:
    """Prints what the examples print; what they log appears only if one fails."""
    with tempfile.TemporaryDirectory(prefix="petastorm-bridge-demo-") as folder:
        for script, title in STEPS:
            print(f"\n== {title} (examples/{script})", flush=True)
            run(script, folder)
    print("\nAll of it ran, and the converted data has been deleted again.")


def run(script: str, cache_dir: str) -> None:
    """Runs one example and lets its standard output through."""
    command = [sys.executable, str(HERE / script), "--cache-dir", cache_dir]
    log = Path(cache_dir) / f"{script}.log"
    started = time.monotonic()
    with log.open("w") as errors:
        code = subprocess.run(command, check=False, stderr=errors).returncode  # noqa: S603
    if code != 0:
        sys.exit(f"{log.read_text()}\n{script} failed with exit code {code}; its log is above.")
    print(f"({time.monotonic() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
