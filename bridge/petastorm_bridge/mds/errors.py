"""What can be wrong with a dataset on disk, and the error for a package that is not installed."""

from __future__ import annotations


class DatasetError(RuntimeError):
    """A dataset on disk cannot be used; the message names the file and what to do."""


class DatasetNotFoundError(DatasetError, FileNotFoundError):
    """There is no (complete) MDS dataset where one was asked for."""


class NoFileError(DatasetError):
    """Something else is where a file should be: a directory, FIFO, device or socket."""


class HashNotKnownError(DatasetError, ValueError):
    """A hash was asked for by its name, and the index does not have it for every shard."""


class ShardCorruptedError(DatasetError):
    """A shard file is truncated or altered, or does not match its index entry."""

    @classmethod
    def because(cls, path: str, asked: str, found: str) -> ShardCorruptedError:
        """Build the error for ``path`` from what was expected and what is there."""
        return cls(
            f"Shard {path} is damaged: expected {asked}, found {found}. "
            "Delete the cache directory and convert the DataFrame again "
            "(or fetch the shard again from its source)."
        )


class FetchedShardError(ShardCorruptedError, ValueError):
    """A fetched file does not match its dataset's index; streaming's own error for that is a ValueError."""


def missing_extra(package: str, extra: str) -> ImportError:
    """Return the error for a package that an optional extra of the bridge installs."""
    return ImportError(
        f"{package} is not installed. Install it with: pip install 'petastorm-bridge[{extra}]'"
    )
