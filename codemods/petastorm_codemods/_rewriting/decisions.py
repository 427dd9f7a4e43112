"""What becomes of each call that opens a loader: streaming's own, the bridge's, or nothing.

A loader follows the decision about what made its converter, and so do the names of a source whose loaders
all stay on the bridge: they are the bridge's, all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis, once, once_all
from petastorm_codemods._meaning.flow import Provenance, flow_of, is_structural
from petastorm_codemods._meaning.functions import functions_of
from petastorm_codemods._meaning.imports import (
    Imported,
    clashes,
    imports,
    petastorm_imports,
    root_name,
)
from petastorm_codemods._meaning.other_files import module_at
from petastorm_codemods._meaning.reexports import (
    is_run_with,
    is_taken_from_here,
    reexported_reads,
    unseen_reads,
)
from petastorm_codemods._meaning.support import (
    Use,
    counterpart,
    is_support,
    opens_directories,
    opens_directory,
    uses_with_counterpart,
)
from petastorm_codemods._model import Destination, Need
from petastorm_codemods._petastorm.counterparts import CLASSES, COUNTERPARTS, MAKERS, original
from petastorm_codemods._petastorm.offered import NEW, is_petastorm

from .among_ranks import read_on_ranks
from .arguments import Times, reading_of
from .batches import as_taken
from .blocks import Result
from .comments import is_ignored
from .contexts import rewritten
from .expressions import Native, native_call
from .given import Stays
from .needs_bridge import dataset_needs_bridge, loader_needs_bridge
from .sites import ARGUMENTS, METHODS, Site

_SUCCESSORS = frozenset(COUNTERPARTS.values())
# Cells of notebooks that are Python, but are left alone, and what in them has a part in a pair of maker and loader.
_PYTHON_LEFT_ALONE = frozenset({"%python", "%%writefile", "%%file"})
_OF_A_PAIR = re.compile("|".join([*METHODS, *sorted(each.rpartition(".")[2] for each in MAKERS)]))
_HANDED_ON = Stays("where it is opened cannot be followed; open it in a with where it is made")
_TANGLED = Stays("its with cannot be taken apart; open one thing after the other")
_ON_ONE_LINE = Stays("the block of its with is on the same line; give it lines of its own")


@dataclass(frozen=True)
class Outcome:
    """What becomes of one use of a method.

    Attributes:
        site: The use.
        native: The call that takes its place, if one does.
        result: The edits of that, with comments to keep.
        stays: Why it is left on the bridge, if it is.
        problem: Why nothing is done, and what a human has to do.
        follows: Whether that is because its converter stays Petastorm's.
    """

    site: Site
    native: Native | None = None
    result: Result = field(default_factory=Result)
    stays: Stays | None = None
    problem: str = ""
    follows: bool = False


@once
def outcomes(analysis: Analysis) -> tuple[Outcome, ...]:
    """Return what becomes of every use of the methods in a source; nothing, where it goes to the bridge."""
    if analysis.destination is Destination.BRIDGE:
        return ()
    decided = list(_decided(analysis))
    native = {each.site.call: each.native for each in decided if each.site.call and each.native}
    results = rewritten(analysis, native)
    return tuple(
        each
        if each.site.call is None or each.native is None
        else replace(each, result=results[each.site.call])
        if each.site.call in results
        else Outcome(each.site, stays=_unknown(analysis, each.site))
        for each in decided
    )


def _unknown(analysis: Analysis, site: Site) -> Stays:
    """Return why it is not known what becomes of the context of a call."""
    above = analysis.parent(site.call) if site.call is not None else None
    if not isinstance(above, cst.WithItem):
        return _HANDED_ON
    body = getattr(analysis.parent(above), "body", None)
    return _ON_ONE_LINE if isinstance(body, cst.SimpleStatementSuite) else _TANGLED


@once
def keeps_bridge(analysis: Analysis) -> bool:
    """Say whether all names of a source are the bridge's, because all of its loaders are, or all of the run's."""
    if analysis.destination is Destination.BRIDGE or analysis.project.on_bridge:
        return True
    if _is_in_a_cell_left_alone(analysis):
        return True
    decided = outcomes(analysis)
    opened = [each.value for each in analysis.nodes(cst.Attribute) if each.attr.value in METHODS]
    known = decided or any(opens_directory(analysis, each) for each in opened)  # by an earlier run
    stay = all(each.stays is not None for each in decided)
    return bool(known) and stay and not _names_others(analysis) and _is_apart(analysis)


def _names_others(analysis: Analysis) -> bool:
    """Say whether a source names the class of converters that others make: for streaming, as other loaders are its own."""
    named = any(original(each.path) in CLASSES for each in imports(analysis))
    return named and not _makers(analysis)


@once
def keeps_petastorm(analysis: Analysis) -> bool:
    """Say whether what converters work with stays Petastorm's in a source, as they do."""
    if analysis.destination is Destination.BRIDGE:
        return False
    follows = any(each.follows for each in outcomes(analysis))
    return follows or _is_silenced(analysis) or bool(_kept_elsewhere(analysis))


@once
def opens_natively(analysis: Analysis) -> bool:
    """Say whether any loader of a source becomes streaming's."""
    return any(each.native is not None for each in outcomes(analysis))


def native_uses(analysis: Analysis, local: str) -> Iterator[Use]:
    """Yield the native name and the expression for uses of a module that become native."""
    if not keeps_bridge(analysis) and not keeps_petastorm(analysis):
        yield from uses_with_counterpart(analysis, local)


def native_name(analysis: Analysis, path: str) -> str | None:
    """Return the native name that takes the place of a dotted path in a source; None if none does."""
    if keeps_bridge(analysis) or keeps_petastorm(analysis):
        return None
    return counterpart(analysis, path)


@once
def is_made_on_bridge(analysis: Analysis, site: Site) -> bool:
    """Say whether the converter of a loader is the bridge's own."""
    if analysis.project.on_bridge:
        return True
    if not keeps_bridge(analysis) or not _makers(analysis):
        return False
    module, project = module_at(analysis.source.path), analysis.project
    others = module in project.joined and _has_others(project.makers, module)
    kind = flow_of(analysis).provenance(site.attribute.value)
    return kind is Provenance.CONVERTER or not others


def _has_others(modules: frozenset[str], module: str) -> bool:
    """Say whether there are other modules than one, without a copy of what may be all of a repository's."""
    return len(modules) > (module in modules)


@once
def _is_apart(analysis: Analysis) -> bool:
    """Say whether no other file counts on what a source makes being streaming's, nor it on theirs."""
    module, project = module_at(analysis.source.path), analysis.project
    borrowed = [*unseen_reads(analysis), *reexported_reads(analysis)]
    lent = any(
        is_taken_from_here(analysis, each.local) or is_run_with(analysis, each.local)
        for each in imports(analysis)
        if each in _makers(analysis)
        or (original(each.path) in COUNTERPARTS and not opens_directories(analysis, each))
    )
    wanted = bool(_makers(analysis)) and _has_others(project.borrowers, module)
    return not (borrowed or lent or wanted or module in project.lenders)


def _decided(analysis: Analysis) -> Iterator[Outcome]:
    for site, verdict in _sites(analysis):
        problem = _problem(analysis)
        if verdict or problem:
            yield Outcome(site, problem=verdict or problem, follows=not verdict)
            continue
        native = _native(analysis, site)
        if isinstance(native, Stays):
            yield Outcome(site, stays=native)
        else:
            yield Outcome(site, native)


@once_all
def _sites(analysis: Analysis) -> Iterator[tuple[Site, str]]:
    """Yield the uses of the methods that may be a converter's, with what speaks against it."""
    attributes = [each for each in analysis.nodes(cst.Attribute) if each.attr.value in METHODS]
    if not attributes:
        return
    flow = flow_of(analysis)
    for attribute in attributes:
        above = analysis.parent(attribute)
        call = above if isinstance(above, cst.Call) and above.func is attribute else None
        site = Site.of(analysis, attribute, call)
        if not analysis.is_read(attribute) or isinstance(above, cst.Attribute):
            continue  # a stub of tests, or what such a stub has recorded
        kind = flow.provenance(attribute.value)
        known = kind is Provenance.CONVERTER or site.call is not None or is_partial(analysis, site)
        if not known and not _uses_converters(analysis):
            continue  # an option or a flag of that name
        if opens_directory(analysis, attribute.value):
            continue  # left on the bridge by an earlier run
        verdict = _verdict(analysis, site, kind)
        if verdict is not None:
            yield site, verdict


def _native(analysis: Analysis, site: Site) -> Native | Stays:
    together = _stays_together(analysis)
    if together is not None:
        return together
    if site.call is None:
        how = "call it in a function that opens a loader"
        return Stays(f"{site.method.name} is passed on; {how}")
    reading = reading_of(analysis, site.call, site.method.positions)
    if site.method.is_torch and not isinstance(reading, Stays):
        reading = as_taken(analysis, site.call, reading)
    if isinstance(reading, Stays):
        return reading
    among = None if reading.ranks else read_on_ranks(analysis, site.call)
    if among is not None:
        return among
    needs = (
        loader_needs_bridge(analysis, site.call, is_torch_loader=reading.times is Times.ONCE)
        if site.method.is_torch
        else dataset_needs_bridge(analysis, site.call)
    )
    if needs:
        return Stays(needs)
    native = native_call(analysis, site, reading)
    clash = [] if isinstance(native, Stays) else clashes(analysis, native.needs)
    return Stays(f"{', '.join(clash)} means something else in this file") if clash else native


@once
def _stays_together(analysis: Analysis) -> Stays | None:
    """Return why all loaders of a source stay on the bridge, whatever their arguments; None if nothing says so."""
    taken, unfollowed = _taken(analysis), sorted(analysis.project.unfollowed)
    if taken:
        return Stays(f"{taken} means something else in this file")
    if unfollowed:
        how = "import it by name to read natively"
        return Stays(f"{unfollowed[0]} gets make_spark_converter at run time; {how}")
    if _is_in_a_cell_left_alone(analysis):
        return Stays("a cell that is left alone makes or reads a converter, too")
    return None


@once
def _is_in_a_cell_left_alone(analysis: Analysis) -> bool:
    """Say whether a cell that is Python, but cannot be rewritten, makes a converter or opens a loader."""
    source = analysis.source
    return any(
        language in _PYTHON_LEFT_ALONE and _OF_A_PAIR.search(source.text, start, end)
        for start, end, language in source.foreign
    ) or any(cell.problem and _OF_A_PAIR.search(cell.text) for cell in source.cells)


def is_partial(analysis: Analysis, site: Site) -> bool:
    """Say whether a method is what ``functools.partial`` is called with."""
    call = analysis.call_given(site.attribute)
    if call is None or analysis.imported(call.func) != "functools.partial":
        return False
    return call.args[0].value is site.attribute


def _verdict(analysis: Analysis, site: Site, kind: Provenance) -> str | None:
    """Return why a use is left to a human; empty if it is certainly or most likely a converter's.

    None if it is not, or if nothing but the name of the method says so.
    """
    name, call = site.method.name, site.call
    if kind is Provenance.CONVERTER:
        return ""
    if kind is Provenance.FILES:
        return "this converter is made from files by hand; streaming reads MDS only"
    here = _uses_converters(analysis)
    if kind is Provenance.FOREIGN or not (here or analysis.project.converters):
        return None
    if kind is Provenance.DOUBTFUL:
        message = f"this may be another object than a converter; annotate it if {name} is its"
        return message if here else None
    project, strange = analysis.project, _is_strange(call)
    theirs = name in project.defines or _is_defined(analysis, name) or strange
    if theirs or _has_values_only(analysis, call):
        message = f"{name} may be another class's; annotate the converter to have it moved"
        # A class of the project's that stands in for a converter is opened as one.
        opened = call is not None and isinstance(analysis.parent(call), cst.WithItem)
        doubtful = opened and not strange and name in project.stand_ins
        return message if here or doubtful or not theirs else None
    return ""


def _is_strange(call: cst.Call | None) -> bool:
    """Say whether a call has arguments that are not Petastorm's, or ``batch_size``, the first one, twice."""
    arguments = call.args if call is not None else ()
    names = [each.keyword.value for each in arguments if each.keyword is not None]
    by_place = any(each.keyword is None and not each.star for each in arguments)
    starred = any(each.star == "*" for each in arguments)
    return starred or not ARGUMENTS.issuperset(names) or (by_place and "batch_size" in names)


def _has_values_only(analysis: Analysis, call: cst.Call | None) -> bool:
    """Say whether neither a keyword of a call nor a ``with`` that opens it tells of Petastorm."""
    if call is None or not call.args or isinstance(analysis.parent(call), cst.WithItem):
        return False
    return all(each.keyword is None and not each.star for each in call.args)


@once
def _is_defined(analysis: Analysis, name: str) -> bool:
    """Say whether a source defines a method; a protocol's are what it asks of a converter."""
    return any(
        each.name.value == name
        and not ((owner := functions_of(analysis).owner(each)) and is_structural(analysis, owner))
        for each in analysis.nodes(cst.FunctionDef)
    )


@once
def _uses_converters(analysis: Analysis) -> bool:
    """Say whether the source imports anything of Petastorm's, also unseen, or what has come in its place.

    Not what a rewritten loader call imports: a second run is to see what the first one saw.
    """
    return any(True for _ in unseen_reads(analysis)) or any(
        is_petastorm(each.path)
        or (
            each.path.startswith(NEW)
            and not is_support(each.path, analysis)
            and not opens_directories(analysis, each)
        )
        or (is_support(each.path, analysis) and each.path.rpartition(".")[2] in _SUCCESSORS)
        for each in imports(analysis)
    )


@once
def _problem(analysis: Analysis) -> str:
    """Return why the converters of a source stay Petastorm's, and their loaders; empty if they do not."""
    if _is_silenced(analysis):
        return "a comment silences its other half; a converter moves with all of its loaders"
    if _is_kept(analysis):
        return "make_spark_converter may come from elsewhere; decide on one source first"
    taken = _taken(analysis)
    if taken and not _is_apart(analysis):
        return f"{taken} means something else in this file; rename it first"
    other = _kept_elsewhere(analysis)
    if other:
        return (
            f"converters may pass from or to {other}, where make_spark_converter stays Petastorm's"
        )
    return ""


@once
def _kept_elsewhere(analysis: Analysis) -> str:
    """Return another module that may share converters with this one and keeps Petastorm's; empty if none does."""
    module, project = module_at(analysis.source.path), analysis.project
    others = sorted(map(module_at, project.kept - {analysis.source.path}))
    makes, opens = bool(_makers(analysis)), bool(_sites(analysis))
    shares = module in project.joined or not (makes and opens)
    return others[0] if others and shares and (makes or opens) else ""


@once
def _is_silenced(analysis: Analysis) -> bool:
    """Say whether a comment keeps a call from moving that makes a converter or opens a loader, or an import for it."""
    text = analysis.source.text
    places = [analysis.start(each.statement) for each in imports(analysis) if each.path in MAKERS]
    for call in analysis.nodes(cst.Call):
        if original(analysis.imported(call.func) or "") in MAKERS:
            root = root_name(call.func)
            made = analysis.imports_of(root) if root is not None else ()
            places += map(analysis.start, (call, *made))
    if any(is_ignored(text, place, "PM101") for place in places):
        return True
    return any(
        not verdict and is_ignored(text, site.start, site.method.code)
        for site, verdict in _sites(analysis)
    )


@once
def _is_kept(analysis: Analysis) -> bool:
    """Say whether a source has makers of converters that are left alone."""
    starred = {f"{maker.rpartition('.')[0]}.*" for maker in MAKERS}
    movable = {each.alias for each in petastorm_imports(analysis)}
    return any(
        original(each.path) in starred or (each.path in MAKERS and each.alias not in movable)
        for each in imports(analysis)
    )


@once
def _makers(analysis: Analysis) -> tuple[Imported, ...]:
    """Return what a source imports to make converters with."""
    return tuple(
        each
        for each in imports(analysis)
        if (original(each.path) in MAKERS and not opens_directories(analysis, each))
        or any(name == "write_mds" for name, _ in uses_with_counterpart(analysis, each.local))
    )


@once
def _taken(analysis: Analysis) -> str:
    """Return the names of the support module that mean something else in a source, of those it would have."""
    names = {
        COUNTERPARTS[original(each.path)]
        for each in imports(analysis)
        if original(each.path) in COUNTERPARTS
    }
    for each in petastorm_imports(analysis):
        names |= {name for name, _ in uses_with_counterpart(analysis, each.local)}
    module = analysis.target.module
    return ", ".join(clashes(analysis, [Need(module, name, name) for name in sorted(names)]))
