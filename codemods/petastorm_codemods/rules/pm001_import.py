"""Imports of names that the bridge offers come from the bridge.

Only the first part of the module's name changes: aliases, parentheses, comments and the order of
names stay. After ``import petastorm.spark``, the attribute paths that begin with the module's name
change with it. An import that stands in a ``try`` or ``if`` beside another source of the same name is
left alone, because its author has already decided what to use without Petastorm.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._registry import Rule
from petastorm_codemods._rewriting.moves import import_findings, missing_findings


@Rule(
    "PM001",
    "import",
    "imports come from petastorm_bridge",
    safety=Safety.SAFE,
    destinations=[Destination.BRIDGE],
    before="from petastorm.spark import SparkDatasetConverter, make_spark_converter",
    after="from petastorm_bridge.spark import SparkDatasetConverter, make_spark_converter",
)
@Rule(
    "PM003",
    "not-offered",
    "the bridge does not offer this name",
    safety=Safety.MANUAL,
    destinations=[Destination.BRIDGE],
    text="""The import of a name that the bridge does not have is left as it is and marked.

    These are parts of Petastorm's own readers, such as its pools of workers, which the bridge replaces;
    the mark says what to use instead.""",
    before="from petastorm.workers_pool.thread_pool import ThreadPool",
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield the findings of all import statements."""
    yield from missing_findings(analysis)
    yield from import_findings(analysis)
