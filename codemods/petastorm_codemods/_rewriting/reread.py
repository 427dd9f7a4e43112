"""Readers that are opened on what a converter has written, where streaming's own writer wrote it.

Its shards, which a vendored support module writes, do not say what their columns meant, so that the
bridge's readers give numbers for booleans and timestamps. What the bridge writes says it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.flow import Provenance, flow_of
from petastorm_codemods._meaning.imports import imports
from petastorm_codemods._meaning.places import below, reached
from petastorm_codemods._petastorm.counterparts import COUNTERPARTS, original
from petastorm_codemods._petastorm.offered import canonical

from .values import values

_READERS = frozenset({"petastorm.make_batch_reader", "petastorm.make_reader"})
_MEMBERS = frozenset({"cache_dir_url", "file_urls"})


def readers_of_converters(analysis: Analysis) -> Iterator[cst.Call]:
    """Yield the calls that open readers on the directory or the files of a converter."""
    if not analysis.target.vendored:
        return
    named = [each for each in analysis.nodes(cst.Attribute) if each.attr.value in _MEMBERS]
    made_here = any(original(each.path) in COUNTERPARTS for each in imports(analysis))
    if not named or not (made_here or analysis.project.converters):
        return
    flow = flow_of(analysis)
    others = {Provenance.FOREIGN, Provenance.FILES}
    members = {each for each in named if flow.provenance(each.value) not in others}
    for call in analysis.nodes(cst.Call):
        if canonical(original(analysis.imported(call.func) or "")) in _READERS:
            given = [each.value for each in call.args if _is_url(call, each)]
            if any(_comes_from(analysis, each, members) for each in given):
                yield call


def _is_url(call: cst.Call, argument: cst.Arg) -> bool:
    if argument.keyword:
        return argument.keyword.value in {"dataset_url", "dataset_url_or_urls"}
    return argument is call.args[0]


def _comes_from(analysis: Analysis, value: cst.CSTNode, members: Collection[cst.CSTNode]) -> bool:
    """Say whether an expression, or what its names are assigned, has such a member in it."""

    def behind(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        yield from (one for each in below(node) for one in values(analysis).behind(each))

    return any(each in members for node in reached([value], behind) for each in below(node))
