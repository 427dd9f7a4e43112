"""Whatever installs Petastorm installs ``petastorm-bridge`` instead.

Requirements files, ``pyproject.toml``, ``setup.py``, ``setup.cfg``, conda environments, Dockerfiles, and
``%pip`` and ``!pip`` lines of notebooks. Version limits go, because they are Petastorm's; extras are
translated. The requirement stays as long as any file of the run still imports Petastorm.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._analysis import Analysis
from petastorm_codemods._dependencies import CODE, install_edits, package_for
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import rule


@rule(
    CODE,
    "requirement",
    "requirements name petastorm-bridge",
    safety=Safety.SAFE,
    destinations=list(Destination),
    text=__doc__,
    before="%pip install petastorm==0.12.1",
    after="%pip install petastorm-bridge",
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each requirement in a line that installs packages."""
    text = analysis.source.text
    package = package_for(analysis.destination, analysis.target)
    for start, end in analysis.source.shell:
        for edit in install_edits(text, start, end, package):
            message = f"{text[edit.start : edit.end]} becomes {edit.text}"
            yield Finding(CODE, edit.start, message, Safety.SAFE, (edit,))
