"""What is done with the contexts that loader calls gave, now that they give loaders.

A ``with`` around a call becomes an assignment, its block one level out. Where the context is kept in a
variable, and entered and left by hand, the variable holds the loader, and what left it goes. A context that
nobody can say who enters stays one, on the bridge.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.calls import is_none
from petastorm_codemods._meaning.effects import has_no_effect
from petastorm_codemods._meaning.reexports import is_read
from petastorm_codemods._model import Edit, Pieces

from .blocks import Result, lifts, replaced
from .bound_reads import reads_within
from .expressions import Native
from .removals import Left, removals


def rewritten(analysis: Analysis, native: Mapping[cst.Call, Native]) -> dict[cst.Call, Result]:
    """Return the edits that put native calls in the place of calls of a source.

    Without those of which nobody can say who enters the contexts that they gave.
    """
    while True:
        results = _Contexts(analysis, native).results()
        if len(results) == len(native):
            return results
        native = {call: each for call, each in native.items() if call in results}


@dataclass
class _Variable:
    """A variable that holds contexts.

    Attributes:
        items: Items of ``with`` that enter it.
        entered: Calls of ``__enter__``.
        left: Statements that are calls of ``__exit__``, and loops of nothing else.
    """

    items: list[cst.WithItem] = field(default_factory=list)
    entered: list[cst.Call] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


class _Contexts:
    def __init__(self, analysis: Analysis, native: Mapping[cst.Call, Native]) -> None:
        self._analysis = analysis
        self._native = native

    def results(self) -> dict[cst.Call, Result]:
        """Return the edits of each call whose context is known to be entered, and where."""
        variables = self._variables()
        lifted = self._lifts(variables.values())
        # Together, because a block may have statements of several variables and nothing else.
        gone = [
            statement
            for variable in variables.values()
            if all(each in lifted for each in variable.items)
            for statement in variable.left
        ]
        removed = Result(tuple(removals(self._analysis, gone)))
        results: dict[cst.Call, Result] = {}
        for call, native in self._native.items():
            item, variable, outer = self._item(call), variables.get(call), self._entering(call)
            made: Result | None = None
            if item is not None:
                made = lifted.get(item)
            elif outer is not None:
                stacks = [each for each, calls in self._stacks.items() if outer in calls]
                gone_too = [lifted[each] for each in stacks[:1] if each in lifted]
                made = replaced(self._analysis, outer, native.pieces).joined(gone_too)
            elif variable is not None and all(each in lifted for each in variable.items):
                made = self._held(call, variable, lifted).joined([removed])
            elif native.use is not None:
                made = replaced(self._analysis, call, native.pieces)
            if made is not None and native.use is not None:
                held = native.use.held
                reader = lifted.get(held) if held is not None else Result()
                read = Result(native.use.reads)
                made = made.joined([reader, read]) if reader is not None else None
            if made is not None:
                results[call] = made
        return results

    def _lifts(self, variables: Collection[_Variable]) -> dict[cst.WithItem, Result]:
        """Return how each item of a ``with`` becomes an assignment; without those that cannot."""
        analysis = self._analysis
        values: dict[cst.WithItem, Pieces] = {}
        loops: dict[cst.CSTNode, Pieces] = {}
        above: dict[cst.WithItem, Pieces] = {}
        for call, native in self._native.items():
            item = self._item(call)
            if item is not None:
                values[item] = native.pieces
                if native.converter:
                    start = analysis.start(analysis.parent(item))
                    indent = (analysis.line_start(start), start)
                    above[item] = (*native.converter, analysis.source.newline, indent)
                loops[analysis.parent(item)] = native.again
            if native.use is not None and native.use.held is not None:
                values.setdefault(native.use.held, ())
        for item in (item for each in variables for item in each.items):
            values[item] = (analysis.span(item.item),)
        for item in self._stacks:
            values[item] = ()
        statements: dict[cst.WithItem, Pieces] = {}
        for item, value in values.items():
            name: Pieces = (analysis.span(item.asname.name), " = ") if item.asname and value else ()
            statements[item] = (*above.get(item, ()), *name, *value)
        return lifts(analysis, statements, loops)

    @functools.cached_property
    def _stacks(self) -> dict[cst.WithItem, list[cst.Call]]:
        """Items that make an ``ExitStack`` which nothing is left to enter, with the calls that have entered it."""
        analysis = self._analysis
        entering = {self._entering(call) for call in self._native}
        stacks: dict[cst.WithItem, list[cst.Call]] = {}
        for made in analysis.calls("ExitStack"):
            item = analysis.parent(made)
            block = analysis.parent(item)
            foreign = analysis.imported(made.func) != "contextlib.ExitStack"
            if foreign or not isinstance(item, cst.WithItem) or item.asname is None:
                continue
            name = item.asname.name
            reads = reads_within(analysis, name, block) if isinstance(name, cst.Name) else None
            calls = [analysis.parent(analysis.parent(each)) for each in reads or ()]
            known = [each for each in calls if isinstance(each, cst.Call) and each in entering]
            if known and len(known) == len(calls):
                stacks[item] = known
        return stacks

    def _item(self, call: cst.Call) -> cst.WithItem | None:
        above = self._analysis.parent(call)
        return above if isinstance(above, cst.WithItem) else None

    def _entering(self, call: cst.Call) -> cst.Call | None:
        """Return the call that enters the context of a call: ``….__enter__()``, or a stack's.

        That is the call itself where nobody can enter its context.
        """
        analysis = self._analysis
        above = analysis.parent(call)
        if isinstance(above, cst.Expr):
            return call
        if isinstance(above, cst.Attribute) and above.attr.value == "__enter__":
            outer = analysis.parent(above)
            return outer if isinstance(outer, cst.Call) and outer.func is above else None
        given = analysis.call_given(call)
        method = given.func if given is not None and len(given.args) == 1 else None
        is_entering = isinstance(method, cst.Attribute) and method.attr.value == "enter_context"
        return given if is_entering else None

    # --- variables --------------------------------------------------------------------------------

    def _held(
        self, call: cst.Call, variable: _Variable, lifted: Mapping[cst.WithItem, Result]
    ) -> Result:
        edits: list[Edit] = []
        for entering in variable.entered:
            assert isinstance(entering.func, cst.Attribute)
            end = self._analysis.span(entering)[1]
            edits.append(Edit(self._analysis.span(entering.func.value)[1], end, ""))
        made = replaced(self._analysis, call, self._native[call].pieces)
        return made.joined([*(lifted[item] for item in variable.items), Result(tuple(edits))])

    def _variables(self) -> dict[cst.Call, _Variable]:
        """Return the variable that holds the context of a call, where all its uses are known."""
        groups: dict[object, list[tuple[cst.Call, cst.BaseExpression]]] = {}
        for call in self._native:
            above = self._analysis.parent(call)
            targets = above.targets if isinstance(above, cst.Assign) else ()
            target = targets[0].target if len(targets) == 1 else None
            if isinstance(target, cst.Attribute):
                groups.setdefault(target.attr.value, []).append((call, target))
            elif isinstance(target, cst.Name):
                scope = self._analysis.enclosing(target, cst.FunctionDef, cst.Lambda, cst.ClassDef)
                groups.setdefault((scope, target.value), []).append((call, target))
        variables: dict[cst.Call, _Variable] = {}
        for group in groups.values():
            variable = self._variable([target for _, target in group])
            if variable is not None:
                variables |= dict.fromkeys((call for call, _ in group), variable)
        return variables

    def _variable(self, targets: Sequence[cst.BaseExpression]) -> _Variable | None:
        """Return a variable with all that is done with it; None if there is more than is known here."""
        first = targets[0]
        if isinstance(first, cst.Attribute):
            reads, others = self._uses_of_attribute(first.attr.value)
        elif isinstance(first, cst.Name):
            reads, others = self._uses_of_name(first.value, targets)
        else:
            return None
        if not all(self._is_native_or_none(each) for each in others):
            return None
        variable = _Variable()
        known = [self._is_known(each, variable) for each in reads]
        if not all(known):
            return None
        return variable if variable.items or variable.entered else None

    def _uses_of_attribute(
        self, name: str
    ) -> tuple[list[cst.BaseExpression], list[cst.BaseExpression]]:
        analysis = self._analysis
        attributes = [each for each in analysis.nodes(cst.Attribute) if each.attr.value == name]
        reads: list[cst.BaseExpression] = [each for each in attributes if analysis.is_read(each)]
        return reads, [each for each in attributes if each not in reads]

    def _uses_of_name(
        self, name: str, targets: Sequence[cst.BaseExpression]
    ) -> tuple[list[cst.BaseExpression], list[cst.BaseExpression]]:
        analysis = self._analysis
        reads: list[cst.BaseExpression] = []
        assigned: list[cst.BaseExpression] = []
        for bound, group in analysis.reads_by_bindings(name):
            if bound.isdisjoint(targets):
                continue
            reads += [each for each in group if is_read(analysis, each) and analysis.is_read(each)]
            assigned += [node for node in bound if isinstance(node, cst.BaseExpression)]
            if not all(isinstance(node, cst.Name) for node in bound):
                assigned.append(group[0])  # a parameter, or an import
        return reads, assigned

    def _is_native_or_none(self, target: cst.BaseExpression) -> bool:
        """Say whether what is assigned is None, or the context of a call that becomes native."""
        above = self._analysis.parent(target)
        value = self._analysis.assigned(above)
        if value is None:
            return isinstance(above, cst.AnnAssign | cst.Del)
        known = isinstance(above, cst.AssignTarget) and value in self._native
        return known or (is_none(value) and not isinstance(above, cst.NamedExpr))

    def _is_known(self, node: cst.BaseExpression, variable: _Variable) -> bool:
        """Say whether it is known what becomes of a use of a variable; note it if it has to change."""
        analysis = self._analysis
        above = analysis.parent(node)
        if isinstance(above, cst.WithItem):
            variable.items.append(above)
            return True
        if isinstance(above, cst.Attribute):
            call = analysis.parent(above)
            if not isinstance(call, cst.Call) or call.func is not above:
                return False
            if above.attr.value == "__enter__":
                variable.entered.append(call)
                return True
            line = analysis.parent(analysis.parent(call))
            is_left = above.attr.value == "__exit__" and isinstance(analysis.parent(call), cst.Expr)
            if is_left and isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
                variable.left.append(line)
                return True
            return False
        loop = self._leaving(above) if isinstance(above, cst.Element) else None
        variable.left += [loop] if loop is not None else []
        return loop is not None or _is_tested(analysis, node)

    def _leaving(self, element: cst.Element) -> cst.For | None:
        """Return the loop over contexts, of which one is given, that does nothing but leave them."""
        analysis = self._analysis
        listed = analysis.parent(element)
        loop = analysis.parent(listed)
        if not isinstance(loop, cst.For) or loop.iter is not listed or loop.orelse is not None:
            return None
        if not isinstance(listed, cst.Tuple | cst.List) or not isinstance(loop.target, cst.Name):
            return None
        reads = reads_within(analysis, loop.target, loop) or ()
        lines = [
            each for each in loop.body.body if isinstance(each, cst.SimpleStatementLine | cst.If)
        ]
        inner = _Variable()
        known = all(self._is_known(each, inner) for each in reads)
        if not known or inner.items or inner.entered or len(lines) != len(loop.body.body):
            return None
        if not all(_is_only(each, inner.left) for each in lines):
            return None
        return loop if all(self._holds_contexts(each.value) for each in listed.elements) else None

    def _holds_contexts(self, node: cst.BaseExpression) -> bool:
        """Say whether a variable holds contexts of calls that become native, or None."""
        if isinstance(node, cst.Attribute):
            _, targets = self._uses_of_attribute(node.attr.value)
            return bool(targets) and all(map(self._is_native_or_none, targets))
        return False


def _is_only(line: cst.CSTNode, leaving: Collection[cst.CSTNode]) -> bool:
    """Say whether a statement does nothing but leave a context, perhaps if there is one."""
    if isinstance(line, cst.If) and line.orelse is None and has_no_effect(line.test):
        return all(each in leaving for each in line.body.body)
    return line in leaving


def _is_tested(analysis: Analysis, node: cst.BaseExpression) -> bool:
    """Say whether all that is asked about an expression is whether there is anything."""
    above = analysis.parent(node)
    if isinstance(above, cst.Comparison) and len(above.comparisons) == 1:
        target = above.comparisons[0]
        return isinstance(target.operator, cst.Is | cst.IsNot) and is_none(target.comparator)
    if isinstance(above, cst.UnaryOperation):
        return isinstance(above.operator, cst.Not)
    return isinstance(above, cst.If | cst.While | cst.IfExp) and above.test is node
