"""With ``--vendor``, the support module becomes a file of the repository.

``mds_support.py`` goes into the outermost package around a module that imports it, or else beside the script or
notebook. Several packages have a copy each. Tests get none, and nor does a repository in which nothing imports it. The
file needs nothing else of this package, and is the repository's from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._project.vendor import CODE
from petastorm_codemods._registry import Rule


@Rule(
    CODE,
    "support-module",
    "the support module is written into the repository",
    safety=Safety.SAFE,
    destinations=[Destination.STREAMING],
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield nothing: the run writes the file once it knows what is used."""
    del analysis
    yield from ()
