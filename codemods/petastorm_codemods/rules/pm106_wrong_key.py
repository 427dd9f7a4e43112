"""The name of the constant, put in quotes, is no key of Spark's configuration.

``spark.conf.set("SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF", url)`` sets nothing that Petastorm or its
successors read: the directory comes from elsewhere, or converting fails. With ``--unsafe`` the key is put
right, which may take another directory into use than so far.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._model import Destination, Edit, Finding, Safety
from petastorm_codemods._registry import rule

_WRONG = "SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF"
_RIGHT = "petastorm.spark.converter.parentCacheDirUrl"


@rule(
    "PM106",
    "wrong-key",
    "the cache directory is set under a key that nothing reads",
    safety=Safety.BEHAVIOUR,
    destinations=list(Destination),
    text=__doc__,
    before=f'spark.conf.set("{_WRONG}", url)',
    after=f'spark.conf.set("{_RIGHT}", url)',
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each string that is the first argument of a call."""
    for node, value in analysis.strings:
        argument = analysis.parent(node)
        call = analysis.parent(argument)
        if value != _WRONG or not isinstance(argument, cst.Arg):
            continue
        if isinstance(call, cst.Call) and call.args[0] is argument:
            start = analysis.start(node) + node.value.index(_WRONG)
            edit = Edit(start, start + len(_WRONG), _RIGHT)
            message = f"no one reads this key; the one meant is {_RIGHT}"
            yield Finding("PM106", analysis.start(node), message, Safety.BEHAVIOUR, (edit,))
