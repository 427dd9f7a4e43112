"""Where the nodes of a module stand, and the scopes of its names: LibCST's, by shorter walks.

LibCST's own way makes a tree anew whenever one is walked, and walks this one four times, whitespace included. Its
visitors are used here without either, which takes a third of the time; what they find is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import libcst as cst
from libcst.metadata import (
    CodeSpan,
    ExpressionContext,
    ExpressionContextProvider,
    Scope,
    ScopeProvider,
)
from libcst.metadata.expression_context_provider import ExpressionContextVisitor
from libcst.metadata.scope_provider import ScopeVisitor
from libcst.metadata.span_provider import ByteSpanPositionProvider, SpanProvidingCodegenState

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
    names = dict.fromkeys([*order.fields, *(field.name for field in dataclasses.fields(node))])
    return tuple(
        name for name in names if name not in _TRIVIA and not name.startswith("whitespace")
    )


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the nodes directly below a node, in the order of the text, but for whitespace and punctuation."""
    fields = _fields.get(type(node))
    if fields is None:
        fields = _fields[type(node)] = _in_order(node)
    for name in fields:
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (list, tuple)):
            for each in value:
                if isinstance(each, cst.CSTNode):
                    yield each


class _Walk(cst.CSTVisitor):
    """Visits what is below a node before LibCST would, which then has nothing to make anew."""

    def on_visit(self, node: cst.CSTNode) -> bool:
        if super().on_visit(node):
            for child in children(node):
                child.visit(self)
        return False


class _ContextVisitor(_Walk, ExpressionContextVisitor):
    pass


class _ScopeVisitor(_Walk, ScopeVisitor):
    pass


class _Scopes(ScopeProvider):
    """Takes what the visitors say of nodes: first whether names are read or bound, then their scopes."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: dict[cst.CSTNode, ExpressionContext] = {}
        self.scopes: dict[cst.CSTNode, Scope | None] = {}

    def set_metadata(self, node: cst.CSTNode, value: Any) -> None:
        self.scopes[node] = value

    def get_metadata(self, key: Any, node: cst.CSTNode, default: Any = None) -> Any:
        return (self.contexts if key is ExpressionContextProvider else self.scopes).get(
            node, default
        )


class _Contexts(ExpressionContextProvider):
    def __init__(self, contexts: dict[cst.CSTNode, ExpressionContext]) -> None:
        super().__init__()
        self._contexts = contexts

    def set_metadata(self, node: cst.CSTNode, value: Any) -> None:
        self._contexts[node] = value


def scopes_of(module: cst.Module) -> Mapping[cst.CSTNode, Scope | None]:
    """Return the scopes of the nodes of a module."""
    provider = _Scopes()
    module.visit(_ContextVisitor(_Contexts(provider.contexts), ExpressionContext.LOAD))
    visitor = _ScopeVisitor(provider)
    module.visit(visitor)
    visitor.infer_accesses()
    return provider.scopes


class _Spans(ByteSpanPositionProvider):
    """Keeps positions in characters."""

    def of(self, module: cst.Module) -> Mapping[cst.CSTNode, CodeSpan]:
        state = SpanProvidingCodegenState(
            default_indent=module.default_indent,
            default_newline=module.default_newline,
            provider=self,
            get_length=len,
        )
        module._codegen(state)  # noqa: SLF001 - as LibCST's providers of positions do
        spans: Mapping[cst.CSTNode, Any] = self._computed
        return spans


def spans_of(module: cst.Module) -> Mapping[cst.CSTNode, CodeSpan]:
    """Return where the nodes of a module stand, in characters of its text."""
    return _Spans().of(module)
