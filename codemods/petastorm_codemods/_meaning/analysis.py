"""What rules ask about a source: nodes by type, their positions, and what names mean."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import libcst as cst
from libcst.metadata import (
    Assignment,
    BaseAssignment,
    ImportAssignment,
    QualifiedName,
    QualifiedNameSource,
    Scope,
)

from petastorm_codemods._model import Destination, Edit, Finding, Safety, Target
from petastorm_codemods._petastorm.offered import canonical
from petastorm_codemods._text.sources import Source

from .other_files import Project
from .places import Span, below, children, grouped, scopes_of, spans_of

Node = TypeVar("Node", bound=cst.CSTNode)
Fact = TypeVar("Fact")
Arguments = ParamSpec("Arguments")


class Analysis:
    """One source under analysis.

    Attributes:
        source: The source.
        module: Its parsed text.
        destination: Where call sites are taken.
        project: What is known of the other files.
        target: What rewritten code imports, and how it reads.
    """

    def __init__(
        self,
        source: Source,
        destination: Destination,
        project: Project | None = None,
        target: Target | None = None,
    ) -> None:
        self.source = source
        self.module = source.module
        self.destination = destination
        self.project = project or Project()
        self.target = target or Target()
        self._index = _Index(source.module)
        self._assigned: dict[tuple[Scope, str], tuple[BaseAssignment, ...]] = {}
        self._ordered: dict[frozenset[BaseAssignment], tuple[BaseAssignment, ...]] = {}
        self._meanings: dict[cst.CSTNode, frozenset[QualifiedName]] = {}
        self._imported: dict[cst.CSTNode, str | None] = {}
        self._facts: dict[Hashable, Any] = {}

    def fact(self, question: Hashable, work: Callable[[], Fact]) -> Fact:
        """Return the answer to a question about the source; it is worked out when it is first asked."""
        if question not in self._facts:
            self._facts[question] = work()
        answer: Fact = self._facts[question]
        return answer

    def calls(self, *names: str) -> Iterator[cst.Call]:
        """Yield the calls of functions and methods with some last names."""
        for name in names:
            yield from self._calls.get(name, ())

    @functools.cached_property
    def _calls(self) -> dict[str, list[cst.Call]]:
        return grouped(self.nodes(cst.Call), lambda call: (last_name(call.func),))

    def nodes(self, kind: type[Node]) -> Sequence[Node]:
        """Return all nodes of exactly this type, in the order of the text: comments too, no other whitespace."""
        if kind is cst.Comment:  # few rules ask for them, so that the walk goes without
            return [node for node in self._positions if isinstance(node, kind)]
        return self._index.by_type[kind]  # type: ignore[return-value]

    @functools.cached_property
    def strings(self) -> Sequence[tuple[cst.SimpleString, str]]:
        """The strings in plain quotes with their values, in the order of the text; not those of bytes."""
        values = ((node, _value(node)) for node in self.nodes(cst.SimpleString))
        return [(node, value) for node, value in values if isinstance(value, str)]

    @functools.cached_property
    def quote(self) -> str:
        """The quotes of most strings on one line; double ones, as formatters write them, where there are as many."""
        quotes = [node.quote for node, _ in self.strings]
        return "'" if quotes.count("'") > quotes.count('"') else '"'

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the node above; the module's is the module itself."""
        return self._index.parents.get(node, self.module)

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield what a node is in, the innermost first."""
        while node is not self.module:
            node = self.parent(node)
            yield node

    def enclosing(self, node: cst.CSTNode, *kinds: type[Node]) -> Node | None:
        """Return the nearest node of some types at or above a node."""
        current: cst.CSTNode = node
        while not isinstance(current, kinds):
            if current is self.module:
                return None
            current = self.parent(current)
        return current

    def call_given(self, node: cst.CSTNode) -> cst.Call | None:
        """Return the call that an expression is an argument of; None if it is none of a call."""
        argument = self.parent(node)
        call = self.parent(argument)
        return call if isinstance(argument, cst.Arg) and isinstance(call, cst.Call) else None

    def is_type(self, string: cst.CSTNode) -> bool:
        """Say whether a string stands for a type: in an annotation, or as the first argument of ``typing.cast``."""
        if self.enclosing(string, cst.Annotation):
            return True
        argument = self.enclosing(string, cst.Arg)
        call = self.parent(argument) if argument else None
        if not isinstance(call, cst.Call) or call.args[0] is not argument:
            return False
        return self.imported(call.func) == "typing.cast"

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return start and end of a node in characters of the text, without outer whitespace."""
        return self._positions[node]

    def start(self, node: cst.CSTNode) -> int:
        """Return where a node starts."""
        return self.span(node)[0]

    def replace(self, node: cst.CSTNode, text: str) -> Edit:
        """Return the edit that puts text in the place of a node."""
        return Edit(*self.span(node), text)

    def code(self, node: cst.CSTNode) -> str:
        """Return the original text of a node."""
        start, end = self.span(node)
        return self.source.text[start:end]

    def line_start(self, offset: int) -> int:
        """Return where the line of a character starts."""
        text = self.source.text
        return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1

    def indent(self, offset: int) -> str:
        """Return the whitespace that the line of a character begins with."""
        start = self.line_start(offset)
        line = self.source.text[start:offset]
        return line[: len(line) - len(line.lstrip())]

    def meanings(self, node: cst.CSTNode) -> frozenset[QualifiedName]:
        """Return everything that a name or attribute which is read may mean."""
        if node not in self._meanings:
            scope = self._scopes.get(node)
            names = scope.get_qualified_names_for(node) if scope else ()
            self._meanings[node] = frozenset(names)
        return self._meanings[node]

    def imported(self, node: cst.CSTNode) -> str | None:
        """Return the dotted path that a name or attribute is imported from.

        None if it is not imported, and if it may also mean something else than None.
        """
        if node not in self._imported:
            self._imported[node] = self._path(node)
        return self._imported[node]

    def _path(self, node: cst.CSTNode) -> str | None:
        names = self.meanings(node)
        if len(names) > 1 and self._is_else_none(node):
            names = frozenset(each for each in names if each.source is QualifiedNameSource.IMPORT)
        if len({canonical(name.name) for name in names}) != 1:
            return None
        name = min(names, key=lambda each: each.name)
        return name.name if name.source is QualifiedNameSource.IMPORT else None

    def _is_else_none(self, node: cst.CSTNode) -> bool:
        """Say whether a name is None where it is not what is imported."""
        while isinstance(node, cst.Attribute):
            node = node.value
        assignments = self.assignments(node) if isinstance(node, cst.Name) else ()
        others = [each for each in assignments if not isinstance(each, ImportAssignment)]
        nones = [each for each in others if isinstance(each, Assignment) and self._is_none(each)]
        return len(nones) == len(others) < len(assignments)

    def assignments(self, node: cst.Name) -> tuple[BaseAssignment, ...]:
        """Return everything that binds a name which is read, in the order of the text."""
        scope = self._scopes.get(node)
        if scope is None:
            return ()
        key = (scope, node.value)
        if key not in self._assigned:
            # Functions that read a name of the module's share one answer.
            bindings = frozenset(scope[node.value])
            if bindings not in self._ordered:
                self._ordered[bindings] = self._in_order(bindings)
            self._assigned[key] = self._ordered[bindings]
        return self._assigned[key]

    def _in_order(self, assignments: Iterable[BaseAssignment]) -> tuple[BaseAssignment, ...]:
        placed = [each for each in assignments if getattr(each, "node", None) is not None]
        return tuple(sorted(placed, key=lambda each: self.start(each.node)))  # type: ignore[attr-defined]

    def imports_of(self, node: cst.Name) -> tuple[cst.CSTNode, ...]:
        """Return the import statements that bind a name which is read."""
        assignments = self.assignments(node)
        return tuple(each.node for each in assignments if isinstance(each, ImportAssignment))

    def bindings(self, name: str) -> Iterator[Assignment]:
        """Yield everything in any scope, imports apart, that gives a name a meaning but None."""
        yield from (each for each in self._bound.get(name, ()) if not self._is_none(each))

    @functools.cached_property
    def _bound(self) -> dict[str, list[Assignment]]:
        scopes = {scope for scope in self._scopes.values() if scope is not None}
        bound = (each for scope in scopes for each in scope.assignments)
        assignments = (each for each in bound if type(each) is Assignment)
        return grouped(assignments, lambda each: (each.name,))

    def _is_none(self, assignment: Assignment) -> bool:
        target = self.parent(assignment.node)
        value = self.assigned(target) if isinstance(target, cst.AssignTarget) else None
        return isinstance(value, cst.Name) and value.value == "None"

    def assigned(self, target: cst.CSTNode) -> cst.BaseExpression | None:
        """Return the value that an assignment of any kind, or one of its targets, gives; None without one."""
        statement = self.parent(target) if isinstance(target, cst.AssignTarget) else target
        kinds = cst.Assign | cst.AnnAssign | cst.NamedExpr
        return statement.value if isinstance(statement, kinds) else None

    def within(self, node: cst.CSTNode, kind: type[Node]) -> Iterator[Node]:
        """Yield the nodes of a type at or below a node, in the order of the text."""
        yield from (each for each in below(node) if isinstance(each, kind))

    def is_read(self, node: cst.CSTNode) -> bool:
        """Say whether an expression is evaluated, not assigned to or deleted."""
        above = self.parent(node)
        while isinstance(above, cst.Element | cst.StarredElement | cst.Tuple | cst.List):
            above = self.parent(above)
        if isinstance(above, cst.AnnAssign):
            return above.target is not node
        return not isinstance(above, cst.AssignTarget | cst.Del)

    def paths(self, node: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode]]:
        """Yield the path of an expression and the expression, then those of the attributes that are taken from it.

        Nothing where `imported` gives None.
        """
        path = self.imported(node)
        while path is not None:
            yield path, node
            above = self.parent(node)
            if not isinstance(above, cst.Attribute) or above.value is not node:
                return
            path, node = f"{path}.{above.attr.value}", above

    def dotted(self, node: cst.CSTNode) -> tuple[str, cst.CSTNode] | None:
        """Return the last of these: ``sp.SparkDatasetConverter.PARENT`` is asked for by its first name."""
        paths = [*self.paths(node)]
        return paths[-1] if paths else None

    def reads(self, name: str) -> Iterator[cst.Name]:
        """Yield the places where a plain name is read."""
        yield from (node for node in self._names.get(name, ()) if node in self._scopes)

    def reads_by_bindings(
        self, name: str
    ) -> Iterator[tuple[frozenset[cst.CSTNode], Sequence[cst.Name]]]:
        """Yield the reads of a name by the places that may have bound it: reads in one scope share them."""
        groups: dict[int, tuple[tuple[BaseAssignment, ...], list[cst.Name]]] = {}
        for read in self.reads(name):
            bound = self.assignments(read)  # kept: equal ones are the same tuple
            groups.setdefault(id(bound), (bound, []))[1].append(read)
        for bound, reads in groups.values():
            yield frozenset(each.node for each in bound if isinstance(each, Assignment)), reads

    @functools.cached_property
    def _names(self) -> dict[str, list[cst.Name]]:
        return grouped(self.nodes(cst.Name), lambda name: (name.value,))

    @functools.cached_property
    def _positions(self) -> Mapping[cst.CSTNode, Span]:
        return spans_of(self.module)

    @functools.cached_property
    def _scopes(self) -> Mapping[cst.CSTNode, Scope | None]:
        return scopes_of(self.module)


def last_name(node: cst.CSTNode) -> str:
    """Return the name that is read last of an expression; empty if that is none."""
    while isinstance(node, cst.Call | cst.Subscript):
        node = node.func if isinstance(node, cst.Call) else node.value
    name = node.attr if isinstance(node, cst.Attribute) else node
    return name.value if isinstance(name, cst.Name) else ""


def _value(node: cst.SimpleString) -> str | bytes:
    if node.prefix or "\\" in node.value or "\r" in node.value:
        return node.evaluated_value
    return node.raw_value  # the same, and quicker


class _Index:
    """Nodes by type and parents, by walking fields: far quicker than LibCST's visitors."""

    def __init__(self, module: cst.Module) -> None:
        self.by_type: dict[type[cst.CSTNode], list[cst.CSTNode]] = defaultdict(list)
        self.parents: dict[cst.CSTNode, cst.CSTNode] = {}
        stack: list[cst.CSTNode] = [module]
        while stack:
            node = stack.pop()
            self.by_type[type(node)].append(node)
            inner = children(node)
            for child in inner:
                self.parents[child] = node
            stack.extend(reversed(inner))


def once(
    work: Callable[Concatenate[Analysis, Arguments], Fact],
) -> Callable[Concatenate[Analysis, Arguments], Fact]:
    """Let a function work once for an analysis (and further arguments), which keeps what it returns."""

    @functools.wraps(work)
    def asked(analysis: Analysis, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Fact:
        question = (work, args, *sorted(kwargs.items()))
        return analysis.fact(question, lambda: work(analysis, *args, **kwargs))

    return asked


def once_all(
    work: Callable[Concatenate[Analysis, Arguments], Iterator[Fact]],
) -> Callable[Concatenate[Analysis, Arguments], tuple[Fact, ...]]:
    """Let a generator work once for an analysis (and further arguments), which keeps what it yields."""

    @functools.wraps(work)
    def all_of(
        analysis: Analysis, /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> tuple[Fact, ...]:
        return tuple(work(analysis, *args, **kwargs))

    return once(all_of)


def manual(code: str, offset: int, message: str) -> Finding:
    """Return a finding that a human has to deal with."""
    return Finding(code, offset, message, Safety.MANUAL)
