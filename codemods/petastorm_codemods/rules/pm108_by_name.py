"""What reaches a converter in a way that no rewrite can follow is marked.

- *A method named by a string*: ``getattr(converter, "make_torch_dataloader")``.
- *A test's stub, or a protocol's,* of a method that rewritten code does not call any more.
- *A patch* of ``make_spark_converter`` in a module of the project, which stands for ``write_mds`` then.
- *A converter that may come from another call* than the one that was rewritten.
- *A part of Petastorm that the program replaces by its own*: the bridge may not use that part.
- *A reader that is made of its class*, which takes other arguments on the bridge.
- *Petastorm's version*, where the program compares it or asks an installer's records for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, last_name, manual
from petastorm_codemods._meaning.calls import is_none
from petastorm_codemods._meaning.flow import Provenance, flow_of, is_structural
from petastorm_codemods._meaning.imports import imports
from petastorm_codemods._meaning.other_files import is_test
from petastorm_codemods._meaning.support import is_class, is_maker
from petastorm_codemods._model import Destination, Finding, Safety
from petastorm_codemods._petastorm.counterparts import COUNTERPARTS, original
from petastorm_codemods._petastorm.offered import OLD, canonical, is_petastorm
from petastorm_codemods._registry import Rule
from petastorm_codemods._rewriting.decisions import native_name
from petastorm_codemods._rewriting.sites import METHODS

_CODE = "PM108"
# Functions that take the name of an attribute.
_LOOKUPS = frozenset({"attrgetter", "getattr", "hasattr", "methodcaller", "object", "setattr"})
# Functions that read what installers have recorded of a distribution.
_RECORDS = frozenset({"distribution", "get_distribution", "metadata", "require", "version"})
_RECORDS_OF = re.compile(r"(?:importlib[._]metadata|pkg_resources)\.")


@Rule(
    _CODE,
    "by-name",
    "a converter is used in a way that cannot be followed",
    safety=Safety.MANUAL,
    destinations=list(Destination),
    before='with getattr(conv, "make_torch_dataloader")(batch_size=64) as loader:\n    train(loader)',
)
def check(analysis: Analysis) -> Iterator[Finding]:
    """Yield one finding for each such place."""
    yield from _replaced_parts(analysis)
    yield from _constructed_readers(analysis)
    yield from _checked_versions(analysis)
    # Where all loaders of the run stay on the bridge, names and methods are what they were.
    if analysis.destination is Destination.STREAMING and not analysis.project.on_bridge:
        paths = [each.path for each in imports(analysis)]
        names = any(is_maker(path, analysis) or is_class(path, analysis) for path in paths)
        if names or analysis.project.converters:
            yield from _named_methods(analysis)
            yield from _stubs(analysis)
        yield from _other_branches(analysis)
        yield from _patched_makers(analysis)


def _named_methods(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each argument or value that is the name of a method that opens loaders."""
    for node, name in analysis.strings:
        if name.partition(".")[0] in METHODS and "." in name:
            message = f"a stub of {name.partition('.')[0]}, which rewritten code does not call; stub what it calls"
            yield manual(_CODE, analysis.start(node), message)
        if name in METHODS and _is_looked_up(analysis, node):
            message = f"{name} is named by a string; call it as a method, so that it can be moved"
            yield manual(_CODE, analysis.start(node), message)


def _is_looked_up(analysis: Analysis, node: cst.SimpleString) -> bool:
    """Say whether a string is the name of an attribute, or one that may be looked up later."""
    call = analysis.call_given(node)
    if call is not None:
        return last_name(call.func) in _LOOKUPS
    return isinstance(analysis.parent(node), cst.Assign | cst.IfExp | cst.Element)


def _stubs(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each statement that stubs a method or declares it, or asks a stub for its calls."""
    for each in analysis.nodes(cst.FunctionDef):
        own_class = analysis.enclosing(each, cst.ClassDef)
        if each.name.value not in METHODS or own_class is None:
            continue
        if is_test(analysis.source.path) or is_structural(analysis, own_class):
            message = f"{own_class.name.value} stands in for a converter, of which rewritten code reads remote and local"
            yield manual(_CODE, analysis.start(each), message)
    for node in analysis.nodes(cst.Attribute):
        above = analysis.parent(node)
        target = isinstance(above, cst.AssignTarget)
        stubbed = isinstance(above, cst.Attribute) and above.value is node
        if node.attr.value in METHODS and (stubbed or target):
            name = node.attr.value
            message = f"a stub of {name}, which rewritten code does not call; stub what it calls"
            yield manual(_CODE, analysis.start(node), message)


def _patched_makers(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each place that puts something else for a maker in a module of the project."""
    for node, value in analysis.strings:
        if not value.startswith(OLD):
            yield from _patched(analysis, value, node)
    for owner, part, place in _replacements(analysis):
        path = analysis.imported(owner)
        if path and not is_petastorm(original(path)):
            yield from _patched(analysis, f"{path}.{part}", place)


def _patched(analysis: Analysis, path: str, node: cst.CSTNode) -> Iterator[Finding]:
    module, _, name = path.rpartition(".")
    if (module.rpartition(".")[2], name) in analysis.project.importers:
        message = (
            f"{path} is patched by its name, and stands for write_mds now; "
            "see that its arguments and what it returns fit"
        )
        yield manual(_CODE, analysis.start(node), message)


def _other_branches(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each expression that gives a new converter or what another call returns."""
    for node in analysis.nodes(cst.IfExp):
        makes = [_makes(analysis, branch) for branch in (node.body, node.orelse)]
        other = node.orelse if makes[0] else node.body
        named = isinstance(other, cst.Call | cst.Name) and not is_none(other)
        checked = named and _is_checked(analysis, node.test, other)
        unknown = named and any(makes) and not all(makes) and not checked
        known = [flow_of(analysis).provenance(each) for each in (node, other)] if unknown else []
        # Whatever may be something else is marked where a loader is opened.
        if known[:1] == [Provenance.CONVERTER] and known[1] is not Provenance.CONVERTER:
            called = other.func if isinstance(other, cst.Call) else other
            function = analysis.module.code_for_node(called)
            message = f"{function} may give another object than write_mds; see that its loaders fit"
            yield manual(_CODE, analysis.start(node), message)


def _is_checked(analysis: Analysis, test: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Say whether a condition asks whether an expression is a converter."""
    return any(
        last_name(call.func) == "isinstance"
        and len(call.args) == 2
        and analysis.code(call.args[0].value) == analysis.code(other)
        and is_class(analysis.imported(call.args[1].value), analysis)
        for call in analysis.within(test, cst.Call)
    )


def _makes(analysis: Analysis, node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Call) and is_maker(analysis.imported(node.func), analysis)


def _constructed_readers(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each place that calls the class of readers, or extends it."""
    made = [call.func for call in analysis.nodes(cst.Call)]
    made += [base.value for owner in analysis.nodes(cst.ClassDef) for base in owner.bases]
    for node in made:
        if canonical(original(analysis.imported(node) or "")) == "petastorm.reader.Reader":
            message = "Reader takes other arguments on the bridge; open it with make_batch_reader"
            yield manual(_CODE, analysis.start(node), message)


def _checked_versions(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each place that would check the bridge's version, or miss Petastorm's."""
    for node in analysis.nodes(cst.Comparison):
        names = [*analysis.within(node, cst.Attribute), *analysis.within(node, cst.Name)]
        if any(original(analysis.imported(each) or "") == f"{OLD}.__version__" for each in names):
            message = "checks Petastorm's version; the bridge has versions of its own, so remove it"
            yield manual(_CODE, analysis.start(node), message)
    for call in analysis.calls(*_RECORDS):
        asked = getattr(call.args[0].value, "evaluated_value", None) if call.args else None
        of_records = _RECORDS_OF.match(analysis.imported(call.func) or "")
        if of_records and isinstance(asked, str) and re.match(rf"{OLD}(?!\w|-bridge)", asked):
            message = "asks for an installed Petastorm, which is not there any more; remove it"
            yield manual(_CODE, analysis.start(call), message)


def _replaced_parts(analysis: Analysis) -> Iterator[Finding]:
    """Yield a finding for each part of Petastorm, or of the bridge in its place, that is replaced."""
    for owner, part, node in _replacements(analysis):
        path = original(analysis.imported(owner) or "")
        whole = f"{path}.{part}"
        name = native_name(analysis, whole)
        if is_petastorm(path) and whole not in COUNTERPARTS:
            message = f"replaces {whole}, which the bridge may not use; see whether it is needed"
            yield manual(_CODE, analysis.start(node), message)
        elif name is not None:
            message = f"no one uses this any more; replace {name} in the modules that import it"
            yield manual(_CODE, analysis.start(node), message)


def _replacements(
    analysis: Analysis,
) -> Iterator[tuple[cst.BaseExpression, str, cst.CSTNode]]:
    """Yield the owner and the name of each attribute that is assigned to, or replaced by its name, and where."""
    for target in analysis.nodes(cst.AssignTarget):
        node = target.target
        if isinstance(node, cst.Attribute):
            yield node.value, node.attr.value, node
    for call in analysis.calls("object", "setattr"):
        values = [each.value for each in call.args[:2]]
        if len(values) == 2:
            part = getattr(values[1], "evaluated_value", None)
            if isinstance(part, str):
                yield values[0], part, call
