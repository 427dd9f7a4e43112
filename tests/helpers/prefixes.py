"""The prefixes of streaming's shared memory, which test processes beside each other share out."""

from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


def reserve(folder: Path, prefixes: range) -> None:
    """Keep programs whose temporary directory this is from the prefixes below those."""
    for prefix in range(prefixes.start):
        (folder / f"{prefix:06}_barrier_filelock").touch()


def unused(prefixes: range) -> range:
    """Those of the prefixes above all that have shared memory, as datasets of a test process may to its end."""
    taken = {
        int(entry.name[:6]) for entry in SHARED_MEMORY.glob("[0-9][0-9][0-9][0-9][0-9][0-9]_*")
    }
    first = max(taken & set(prefixes), default=prefixes.start - 1) + 1
    return range(first, prefixes.stop)
