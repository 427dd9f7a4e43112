"""The name of the constant, put in quotes, is no key of Spark's configuration.

``spark.conf.set("SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF", url)`` sets nothing that Petastorm or its
successors read: the directory comes from elsewhere, or converting fails. With ``--unsafe`` the key is put
right, which may take another directory into use than so far.
"""

from __future__ import annotations

from collections.abc import Iterator

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Edit, Finding, Safety
from petastorm_codemods._registry import Rule

_WRONG = "SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF"
_RIGHT = "petastorm.spark.converter.parentCacheDirUrl"


@Rule(
    "PM106",
    "wrong-key",
    "the cache directory is set under a key that nothing reads",
    safety=Safety.BEHAVIOUR,
    destinations=list(Destination),
    before=f'spark.conf.set("{_WRONG}", url)',
    after=f'spark.conf.set("{_RIGHT}", url)',
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each string that is the first argument of a call."""
    for node, value in analysis.strings:
        call = analysis.call_given(node) if value == _WRONG else None
        if call is not None and call.args[0].value is node:
            start = analysis.start(node) + node.value.index(_WRONG)
            edit = Edit(start, start + len(_WRONG), _RIGHT)
            message = f"no one reads this key; the one meant is {_RIGHT}"
            yield Finding("PM106", analysis.start(node), message, Safety.BEHAVIOUR, (edit,))
