"""What tests of far places have in common."""

import pytest

from petastorm_bridge._sources._far.limits import CACHE_VARIABLE


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The root of copies in one test, in which pauses between attempts are short."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "copies"))
    monkeypatch.setattr("petastorm_bridge._sources._far.errors._FIRST_PAUSE_SECONDS", 0.01)
    return tmp_path / "copies"
