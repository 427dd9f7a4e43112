"""Positions and scopes by shorter walks are those that LibCST's own providers give."""

import libcst as cst
import pytest
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ScopeProvider

from petastorm_codemods._meaning.analysis import Analysis
from petastorm_codemods._meaning.places import scopes_of, spans_of
from petastorm_codemods._model import Destination
from petastorm_codemods._text.sources import read_source

pytestmark = pytest.mark.modern

SHAPES = """
import typing as t, a.b.c
from x import y as z, w
def f(p: "t.List[q]" = z, *args, k=w, **kw) -> "w":
    global g
    g = [i for i in p if (j := i) for l in i.m]
    def inner():
        nonlocal_ = lambda v=g, *r: (v, r, nonlocal_)
        return {a: b for a, b in nonlocal_.items()}, {s for s in kw}, (u for u in args)
    with open(p) as (h, *o), inner() as h.q: del h[0], o
    try:
        for e in inner(): e += 1
    except (ValueError, w) as error: raise error from None
    return t.cast("z", g), t.NewType("N", "w"), inner
class C(t.Generic[z], metaclass=w):
    attribute: "z" = f(z)
    @property
    def method(self): return self.attribute, C, attribute
    async def other(self):
        async for é in self: await é.b
match f:
    case C(attribute=1) as found: print(f"{found!r:>{z}} {w}")
"""


def described(scope, node):
    if scope is None:
        return None
    names = sorted(f"{type(each).__name__} {each.name}" for each in scope.assignments)
    reads = sorted(len(each.references) for each in scope.assignments)
    meanings = sorted(str(each) for each in scope.get_qualified_names_for(node))
    return type(scope).__name__, names, reads, meanings


def compare(module):
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    theirs, ours = wrapper.resolve(ScopeProvider), scopes_of(module)
    spans, spans_in_bytes = spans_of(module), wrapper.resolve(ByteSpanPositionProvider)
    text = module.code.encode()
    named = 0
    for node in theirs:
        # Those in annotations that are strings are parsed anew each time.
        if node in spans and isinstance(node, cst.Name | cst.Attribute | cst.Call):
            assert described(ours[node], node) == described(theirs[node], node)
            named += 1
    for node, span in spans_in_bytes.items():
        start, end = span.start, span.start + span.length
        begin, length = len(text[:start].decode()), len(text[start:end].decode())
        assert spans[node] == (begin, begin + length)
    return named


def test_every_shape_of_code():
    assert compare(cst.parse_module(SHAPES)) > 80


def test_the_cases(case):
    if case.path.endswith((".py", ".ipynb")) and "failed" not in case.flags:
        compare(read_source(case.path, case.before.encode()).module)


def test_rules_are_given_comments_in_the_order_of_the_text():
    text = "# one\nf(  # two\n    1,\n    # three\n)\nif x:\n    y  # four\n    # five\n# six\n"
    analysis = Analysis(read_source("module.py", text.encode()), Destination.BRIDGE)
    comments = analysis.nodes(cst.Comment)
    assert [node.value for node in comments] == [
        f"# {word}" for word in ("one", "two", "three", "four", "five", "six")
    ]
    assert [analysis.code(node) for node in comments] == [node.value for node in comments]
