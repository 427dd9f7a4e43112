"""The prefixes of streaming's shared memory, which test processes beside each other share out."""

from pathlib import Path


def reserve(folder: Path, prefixes: range) -> None:
    """Keep programs whose temporary directory this is from the prefixes below those."""
    for prefix in range(prefixes.start):
        (folder / f"{prefix:06}_barrier_filelock").touch()
