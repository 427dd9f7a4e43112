"""The two methods that open loaders, and where a source uses them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from petastorm_codemods._meaning.analysis import Analysis

# What may stand before a closing bracket, and the bracket.
_CLOSING = re.compile(r"(?:[^)#]|#[^\r\n]*)*\)")


@dataclass(frozen=True)
class Method:
    """One of the two methods.

    Attributes:
        code: Code of the rule.
        name: The method.
        positions: The method's arguments, in order.
    """

    code: str
    name: str
    positions: tuple[str, ...]

    @property
    def is_torch(self) -> bool:
        """Whether it gives batches of torch tensors."""
        return self.name == TORCH.name


TORCH = Method(
    "PM102",
    "make_torch_dataloader",
    ("batch_size", "num_epochs", "workers_count", "shuffling_queue_capacity", "data_loader_fn"),
)
TENSORFLOW = Method(
    "PM103",
    "make_tf_dataset",
    ("batch_size", "prefetch", "num_epochs", "workers_count", "shuffling_queue_capacity"),
)
METHODS = {each.name: each for each in (TORCH, TENSORFLOW)}
# Codes of their rules.
LOADERS = frozenset(each.code for each in METHODS.values())


@dataclass(frozen=True, eq=False)
class Site:
    """One use of a method.

    Attributes:
        method: The method.
        attribute: What is called or passed on.
        call: The call; None if the method is passed on.
        start: Where the method's name stands.
    """

    method: Method
    attribute: cst.Attribute
    call: cst.Call | None
    start: int

    @classmethod
    def of(cls, analysis: Analysis, attribute: cst.Attribute, call: cst.Call | None) -> Site:
        """Return the use that an attribute is."""
        name = attribute.attr.value
        return cls(METHODS[name], attribute, call, analysis.span(attribute)[1] - len(name))


def receiver_end(analysis: Analysis, node: cst.Attribute) -> int:
    """Return where the expression before a method ends, its own parentheses included."""
    end = analysis.span(node.value)[1]
    for _ in getattr(node.value, "rpar", ()):
        closing = _CLOSING.match(analysis.source.text, end)
        assert closing is not None
        end = closing.end()
    return end
