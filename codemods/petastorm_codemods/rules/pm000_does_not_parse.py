"""A file that cannot be decoded or parsed is left alone, and so is a cell of a notebook.

The other cells and files are rewritten. Cells count if they hold the word Petastorm, or a name of the
converter's API.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import rule
from petastorm_codemods._rewriting.left_cells import CODE


@rule(
    CODE,
    "does-not-parse",
    "a file or cell does not parse",
    safety=Safety.MANUAL,
    destinations=list(Destination),
    text=__doc__,
    before="converter = FILL IN",
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield nothing: whatever reaches the rules has been parsed."""
    del analysis
    yield from ()
