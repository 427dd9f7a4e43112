"""Where the nodes of a module stand, and the scopes of its names: LibCST's, by shorter walks.

LibCST's own way makes a tree anew whenever one is walked, and walks this one four times, whitespace included. Its
visitor of scopes is used here without either, and so is its code generator, which knows where nodes stand. That takes
a fraction of the time; what they find is the same.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import libcst as cst
from libcst._nodes.internal import CodegenState
from libcst.metadata import ExpressionContext, Scope, ScopeProvider
from libcst.metadata.scope_provider import ScopeVisitor

Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value")

# Fields that hold whitespace, comments and punctuation, and no names.
_TRIVIA = frozenset(
    {
        *(
            "comma",
            "equal",
            "footer",
            "header",
            "leading_lines",
            "lines_after_decorators",
            "semicolon",
        ),
        *("lbrace", "lbracket", "lpar", "rbrace", "rbracket", "rpar", "trailing_whitespace"),
    }
)


_fields: dict[type[cst.CSTNode], tuple[str, ...]] = {}


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


# To be looked up: LibCST's types are abstract base classes, for which `isinstance` takes long.
_NODES = frozenset(_kinds(cst.CSTNode))


class _Order(cst.CSTVisitor):
    """Notes the fields of a node in the order of the text, which is that of LibCST's visits."""

    def __init__(self, node: cst.CSTNode) -> None:
        super().__init__()
        self._node = node
        self.fields: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node is self._node

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:
        del node
        self.fields.append(attribute)


def _in_order(node: cst.CSTNode) -> tuple[str, ...]:
    """Return the names of the fields of a node in the order of the text, but for whitespace and punctuation."""
    order = _Order(node)
    node.visit(order)
    # LibCST visits the last fields of some nodes only where they are not empty, such as the format of an f-string.
    fields = {field.name: field.type for field in dataclasses.fields(node)}
    return tuple(
        name
        for name in dict.fromkeys([*order.fields, *fields])
        if name not in _TRIVIA and not name.startswith("whitespace") and fields[name] is not str
    )


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the nodes directly below a node, in the order of the text, but for whitespace and punctuation."""
    fields = _fields.get(type(node))
    if fields is None:
        fields = _fields[type(node)] = _in_order(node)
    nodes: list[cst.CSTNode] = []
    for name in fields:
        value = getattr(node, name)
        if type(value) in _NODES:
            nodes.append(value)
        elif isinstance(value, (list, tuple)):
            nodes += (each for each in value if type(each) in _NODES)
    return nodes


def grouped(
    items: Iterable[Value], keys: Callable[[Value], Iterable[Item]]
) -> defaultdict[Item, list[Value]]:
    """Return things by their keys, of which one may have several."""
    groups: defaultdict[Item, list[Value]] = defaultdict(list)
    for each in items:
        for key in keys(each):
            groups[key].append(each)
    return groups


def reached(starts: Iterable[Item], ways: Callable[[Item], Iterable[Item]]) -> dict[Item, bool]:
    """Return some things and all that ways lead to from them, each with whether it ends there."""
    ends = dict.fromkeys(starts, True)
    pending = [*ends]
    while pending:
        each = pending.pop()
        for further in ways(each):
            ends[each] = False
            if further not in ends:
                ends[further] = True
                pending.append(further)
    return ends


def below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the nodes at and below a node, in the order of the text, but for whitespace and punctuation."""
    stack = [node]
    while stack:
        each = stack.pop()
        yield each
        stack.extend(reversed(children(each)))


# What binds names, and where the names stand in it. The visitor of scopes sees to functions, classes and imports.
_TARGETS: dict[type[cst.CSTNode], Callable[[Any], cst.CSTNode]] = {
    cst.AnnAssign: lambda node: node.target,
    cst.AsName: lambda node: node.name,
    cst.AssignTarget: lambda node: node.target,
    cst.AugAssign: lambda node: node.target,
    cst.CompFor: lambda node: node.target,
    cst.DictComp: lambda node: node.for_in.target,
    cst.For: lambda node: node.target,
    cst.GeneratorExp: lambda node: node.for_in.target,
    cst.ListComp: lambda node: node.for_in.target,
    cst.NamedExpr: lambda node: node.target,
    cst.SetComp: lambda node: node.for_in.target,
}


def _bound(target: cst.CSTNode) -> Iterator[cst.Name]:
    """Yield the names that are bound by assigning to a target; what has parts assigned to is only read."""
    stack = [target]
    while stack:
        node = stack.pop()
        if isinstance(node, cst.Name):
            yield node
        elif not isinstance(node, cst.Attribute | cst.Subscript):
            stack.extend(children(node))


class _Scopes(ScopeProvider):
    """Takes what the visitor says of nodes, and tells it which names are bound where they stand."""

    def __init__(self) -> None:
        super().__init__()
        self.bound: set[cst.CSTNode] = set()
        self.scopes: dict[cst.CSTNode, Scope | None] = {}

    def set_metadata(self, node: cst.CSTNode, value: Any) -> None:
        self.scopes[node] = value

    def get_metadata(self, key: Any, node: cst.CSTNode, default: Any = None) -> Any:
        del key  # it asks for nothing else
        return ExpressionContext.STORE if node in self.bound else default


class _ScopeVisitor(ScopeVisitor):
    """Visits what is below a node before LibCST would, which then has nothing to make anew."""

    def __init__(self, provider: _Scopes) -> None:
        super().__init__(provider)
        self._provider = provider

    def on_visit(self, node: cst.CSTNode) -> bool:
        kind = type(node)
        if kind in _TARGETS:
            self._provider.bound.update(_bound(_TARGETS[kind](node)))
        visit = _own_visit(kind)
        if visit is None or visit(self, node) is not False:
            for child in children(node):
                self.on_visit(child)
                self.on_leave(child)
        return False

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if _is_left_plainly(type(original_node)):
            self._provider.scopes[original_node] = self.scope
        else:
            super().on_leave(original_node)


@functools.cache
def _own_visit(
    kind: type[cst.CSTNode],
) -> Callable[[ScopeVisitor, cst.CSTNode], bool | None] | None:
    """Return what LibCST's visitor does at nodes of a type; None for nothing of its own."""
    visit: Callable[[ScopeVisitor, cst.CSTNode], bool | None] | None
    visit = vars(ScopeVisitor).get(f"visit_{kind.__name__}")
    return visit


@functools.cache
def _is_left_plainly(kind: type[cst.CSTNode]) -> bool:
    """Say whether LibCST's visitor only notes the scope when it leaves nodes of a type, which most are of."""
    is_expression = issubclass(kind, cst.BaseExpression | cst.Arg) and kind is not cst.NamedExpr
    return is_expression and f"leave_{kind.__name__}" not in vars(ScopeVisitor)


def scopes_of(module: cst.Module) -> Mapping[cst.CSTNode, Scope | None]:
    """Return the scopes of the nodes of a module."""
    provider = _Scopes()
    visitor = _ScopeVisitor(provider)
    module.visit(visitor)
    visitor.infer_accesses()
    return provider.scopes


# Start and end, in characters.
Span = tuple[int, int]


class _Positions(CodegenState):
    """Counts the characters of the code that a tree stands for, without putting it together."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline)
        if module.header or module.body or module.footer:
            self.tokens.append(
                ""
            )  # else LibCST adds the line break of a file that has nothing else
        self.spans: dict[cst.CSTNode, Span] = {}
        self.position = 0
        self._starts: list[int] = []

    def add_indent_tokens(self) -> None:
        self.position += sum(map(len, self.indent_tokens))

    def add_token(self, value: str) -> None:
        self.position += len(value)

    def before_codegen(self, node: cst.CSTNode) -> None:
        del node
        self._starts.append(self.position)

    def after_codegen(self, node: cst.CSTNode) -> None:
        start = self._starts.pop()
        if node not in self.spans:
            self.spans[node] = start, self.position

    def record_syntactic_position(  # type: ignore[override]
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> _Syntax:
        """Note where a node stands without the whitespace around it: what is done in the returned context."""
        return _Syntax(self, node, self.position, start_node, end_node)


class _Syntax(NamedTuple):
    """The time in which the code of a node is counted, without the whitespace around it."""

    positions: _Positions
    node: cst.CSTNode
    start: int
    first: cst.CSTNode | None
    last: cst.CSTNode | None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        spans = self.positions.spans
        start = spans[self.first][0] if self.first is not None else self.start
        end = spans[self.last][1] if self.last is not None else self.positions.position
        spans[self.node] = start, end


def spans_of(module: cst.Module) -> Mapping[cst.CSTNode, Span]:
    """Return where the nodes of a module stand, in characters of its text."""
    positions = _Positions(module)
    module._codegen(positions)  # noqa: SLF001 - as LibCST's providers of positions do
    return positions.spans
