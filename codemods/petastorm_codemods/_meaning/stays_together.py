"""Names that stay with Petastorm, as its `Reader` does where a source makes one of its own or extends it."""

from __future__ import annotations

import libcst as cst

from petastorm_codemods._petastorm.counterparts import original
from petastorm_codemods._petastorm.offered import canonical

from .analysis import Analysis, once

_READER = "petastorm.reader.Reader"


def reason_to_stay(analysis: Analysis, path: str) -> str:
    """Return why something that could move stays with Petastorm; empty if it moves."""
    if canonical(path) == _READER and _is_constructed(analysis):
        return "reader.Reader takes other arguments on the bridge; open it with make_batch_reader"
    return ""


@once
def _is_constructed(analysis: Analysis) -> bool:
    """Say whether a source makes readers by calling their class, or extends it."""
    made = [call.func for call in analysis.nodes(cst.Call)]
    made += [base.value for owner in analysis.nodes(cst.ClassDef) for base in owner.bases]
    return any(original(analysis.imported(each) or "") == _READER for each in made)
