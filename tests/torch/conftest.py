"""Readers for the tests of torch's loaders."""

import pytest

from petastorm_bridge import make_batch_reader


@pytest.fixture
def open_reader(numbered):
    """``open_reader(**options)`` → a reader of `id` 0 … 21 in shards of 13 and 9 rows, in order."""
    url = numbered(22, [13, 9])
    readers = []

    def open_reader(**options):
        readers.append(make_batch_reader(url, **{"shuffle_row_groups": False, **options}))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.stop()
        reader.join()
