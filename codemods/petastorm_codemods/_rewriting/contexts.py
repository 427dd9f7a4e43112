"""What is done with the contexts that loader calls gave, now that they give loaders.

A ``with`` around a call becomes an assignment, its block one level out. Where the context is kept in a
variable, and entered and left by hand, the variable holds the loader, and what left it goes. Where nobody
can say who enters it, it stays a context by ``contextlib.nullcontext``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.reexports import is_read
from petastorm_codemods._model import Edit

from .blocks import Lift, Pieces, lift, removals, whole_text
from .comments import comments_outside
from .expressions import Native
from .sites import Site

# Edits, comments to keep, and whether the loader is made a context.
Result = tuple[tuple[Edit, ...], tuple[str, ...], bool]


def rewritten(analysis: Analysis, native: Mapping[Site, Native]) -> dict[Site, Result]:
    """Return the edits that put native calls in the place of calls of a source."""
    return _Contexts(analysis, native).results()


@dataclass
class _Variable:
    """A variable that holds contexts.

    Attributes:
        sites: The calls whose contexts it holds.
        items: Items of ``with`` that enter it.
        entered: Calls of ``__enter__``.
        left: Statements that are calls of ``__exit__``.
    """

    sites: list[Site] = field(default_factory=list)
    items: list[cst.WithItem] = field(default_factory=list)
    entered: list[cst.Call] = field(default_factory=list)
    left: list[cst.SimpleStatementLine | cst.SimpleStatementSuite] = field(default_factory=list)


class _Contexts:
    def __init__(self, analysis: Analysis, native: Mapping[Site, Native]) -> None:
        self._analysis = analysis
        self._native = native
        self._by_call = {site.call: site for site in native if site.call is not None}

    def results(self) -> dict[Site, Result]:
        """Return the edits of each call."""
        variables = self._variables()
        items = {item: site for site in self._native if (item := self._item(site)) is not None}
        plain = {item: self._statements(item, self._native[site]) for item, site in items.items()}
        for variable in variables.values():
            for item in variable.items:
                value: Pieces = (self._analysis.span(item.item),)
                name = self._name(item)
                plain[item] = ((*name, " = ", *value),) if name else (value,)
        lifts = self._lifts(plain)
        results: dict[Site, Result] = {}
        for site in self._native:
            item = self._item(site)
            holder = variables.get(site)
            if item is not None:
                results[site] = self._lifted(site, lifts.get(item))
            elif holder is not None and all(each in lifts for each in holder.items):
                results[site] = self._held(site, holder, lifts)
            else:
                results[site] = self._alone(site)
        return results

    def _name(self, item: cst.WithItem) -> Pieces:
        """Return what an item of a ``with`` binds; nothing if it binds nothing."""
        return (self._analysis.span(item.asname.name),) if item.asname is not None else ()

    def _statements(self, item: cst.WithItem, native: Native) -> tuple[Pieces, ...]:
        name = self._name(item)
        return native.assigned(name) if name else (native.pieces,)

    def _lifts(self, plain: Mapping[cst.WithItem, Sequence[Pieces]]) -> dict[cst.WithItem, Lift]:
        """Return how each item becomes an assignment; without those that cannot."""
        statements: dict[cst.CSTNode, dict[cst.WithItem, Sequence[Pieces]]] = {}
        for item, own in plain.items():
            statements.setdefault(self._analysis.parent(item), {})[item] = own
        found: dict[cst.WithItem, Lift] = {}
        for statement, items in statements.items():
            if isinstance(statement, cst.With) and statement.asynchronous is None:
                made = lift(self._analysis, statement, items)
                found |= dict.fromkeys(items, made) if made is not None else {}
        return found

    def _item(self, site: Site) -> cst.WithItem | None:
        """Return the item of a ``with`` that enters the context of a call directly."""
        above = self._analysis.parent(site.call) if site.call is not None else None
        return above if isinstance(above, cst.WithItem) else None

    # --- one call ---------------------------------------------------------------------------------

    def _lifted(self, site: Site, made: Lift | None) -> Result:
        if made is None:
            return self._alone(site)
        return made.edits, made.comments, False

    def _alone(self, site: Site) -> Result:
        """Return the edits of a call whose context is entered there, or nobody knows where."""
        outer = self._entering(site)
        if outer is not None:
            return (*self._replaced(outer, self._native[site].pieces), False)
        assert site.call is not None
        if isinstance(self._analysis.parent(site.call), cst.Expr):
            return (*self._replaced(site.call, self._native[site].pieces), False)
        pieces = ("contextlib.nullcontext(", *self._native[site].pieces, ")")
        return (*self._replaced(site.call, pieces), True)

    def _entering(self, site: Site) -> cst.Call | None:
        """Return the call that enters the context of a call: ``….__enter__()``, or a stack's."""
        analysis = self._analysis
        assert site.call is not None
        above = analysis.parent(site.call)
        if isinstance(above, cst.Attribute) and above.attr.value == "__enter__":
            call = analysis.parent(above)
            return call if isinstance(call, cst.Call) and call.func is above else None
        call = analysis.parent(above)
        if isinstance(above, cst.Arg) and isinstance(call, cst.Call) and len(call.args) == 1:
            method = call.func
            if isinstance(method, cst.Attribute) and method.attr.value == "enter_context":
                return call
        return None

    def _replaced(self, node: cst.Call, pieces: Pieces) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
        start, end = self._analysis.span(node)
        text = self._analysis.source.text
        if text[max(start - 1, 0) : start].isidentifier():
            pieces = (" ", *pieces)  # return(conv).make_…
        holes = [piece for piece in pieces if not isinstance(piece, str)]
        comments = tuple(dict.fromkeys(comments_outside(self._analysis, start, end, holes)))
        edit = Edit(start, end, whole_text(self._analysis, pieces), pieces)
        return (edit,), comments

    # --- variables --------------------------------------------------------------------------------

    def _held(self, site: Site, variable: _Variable, lifts: Mapping[cst.WithItem, Lift]) -> Result:
        edits, comments = self._assigned(site)
        more: list[Edit] = []
        for item in variable.items:
            more += lifts[item].edits
            comments += lifts[item].comments
        for call in variable.entered:
            assert isinstance(call.func, cst.Attribute)
            end = self._analysis.span(call)[1]
            more.append(Edit(self._analysis.span(call.func.value)[1], end, ""))
        more += removals(self._analysis, variable.left)
        return (*edits, *dict.fromkeys(more)), comments, False

    def _assigned(self, site: Site) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
        """Return the edits of a call whose context is assigned to a variable."""
        analysis = self._analysis
        assert site.call is not None
        statement = analysis.parent(site.call)
        line = analysis.parent(statement)
        alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
        target = self._target(site)
        if not alone or target is None or self._native[site].around is None:
            return self._replaced(site.call, self._native[site].pieces)
        begin, end = analysis.span(line)
        start = analysis.line_start(begin)
        first, second = self._native[site].assigned((analysis.span(target),))
        newline = analysis.source.newline
        pieces: Pieces = ((start, begin), *first, newline, (start, begin), *second)
        holes = [piece for piece in pieces if not isinstance(piece, str)]
        comments = tuple(dict.fromkeys(comments_outside(analysis, start, end, holes)))
        edit = Edit(start, end, whole_text(analysis, pieces), pieces, lines=True)
        return (edit,), comments

    def _variables(self) -> dict[Site, _Variable]:
        """Return the variable that holds the context of a call, where all its uses are known."""
        groups: dict[object, list[tuple[Site, cst.BaseExpression]]] = {}
        for site in self._native:
            target = self._target(site)
            if isinstance(target, cst.Attribute):
                groups.setdefault(target.attr.value, []).append((site, target))
            elif isinstance(target, cst.Name):
                scope = self._analysis.enclosing(target, cst.FunctionDef, cst.Lambda, cst.ClassDef)
                groups.setdefault((scope, target.value), []).append((site, target))
        found: dict[Site, _Variable] = {}
        for group in groups.values():
            variable = self._variable([target for _, target in group])
            if variable is not None:
                variable.sites = [site for site, _ in group]
                found |= dict.fromkeys(variable.sites, variable)
        return found

    def _target(self, site: Site) -> cst.BaseExpression | None:
        """Return the only target that the context of a call is assigned to."""
        above = self._analysis.parent(site.call) if site.call is not None else None
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            return above.targets[0].target
        return None

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
        """Return where attributes of a name are read, and where they are assigned to."""
        analysis = self._analysis
        found = [each for each in analysis.nodes(cst.Attribute) if each.attr.value == name]
        reads: list[cst.BaseExpression] = [each for each in found if analysis.is_read(each)]
        return reads, [each for each in found if each not in reads]

    def _uses_of_name(
        self, name: str, targets: Sequence[cst.BaseExpression]
    ) -> tuple[list[cst.BaseExpression], list[cst.BaseExpression]]:
        analysis = self._analysis
        reads: list[cst.BaseExpression] = []
        assigned: list[cst.BaseExpression] = []
        for read in analysis.reads(name):
            nodes = [getattr(each, "node", None) for each in analysis.assignments(read)]
            if not any(target in nodes for target in targets):
                continue
            if is_read(analysis, read) and analysis.is_read(read):
                reads.append(read)
            assigned += [node for node in nodes if isinstance(node, cst.BaseExpression)]
            if not all(isinstance(node, cst.Name) for node in nodes):
                assigned.append(read)  # a parameter, or an import
        return reads, assigned

    def _is_native_or_none(self, target: cst.BaseExpression) -> bool:
        """Say whether what is assigned is None, or the context of a call that becomes native."""
        above = self._analysis.parent(target)
        if isinstance(above, cst.AnnAssign):
            value = above.value
            return value is None or _is_none(value)
        statement = self._analysis.parent(above)
        if not isinstance(above, cst.AssignTarget) or not isinstance(statement, cst.Assign):
            return isinstance(above, cst.Del)
        return _is_none(statement.value) or statement.value in self._by_call

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
            if above.attr.value == "__exit__" and isinstance(analysis.parent(call), cst.Expr):
                lines = cst.SimpleStatementLine | cst.SimpleStatementSuite
                if isinstance(line, lines) and len(line.body) == 1:
                    variable.left.append(line)
                    return True
            return False
        return any(node is each for each in _tested(analysis, node))


def _tested(analysis: Analysis, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield an expression if all that is asked about it is whether there is anything."""
    above = analysis.parent(node)
    if isinstance(above, cst.UnaryOperation) and isinstance(above.operator, cst.Not):
        yield node
    elif isinstance(above, cst.Comparison) and len(above.comparisons) == 1:
        target = above.comparisons[0]
        if isinstance(target.operator, cst.Is | cst.IsNot) and _is_none(target.comparator):
            yield node
    elif isinstance(above, cst.If | cst.While | cst.IfExp) and above.test is node:
        yield node


def _is_none(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"
