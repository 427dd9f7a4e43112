"""The two methods that open loaders, the arguments that such methods have, and where a source uses them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from petastorm_bridge._tables.options import OPTIONS
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

# Arguments of the methods and of make_batch_reader, by what becomes of them in streaming's words.
TRANSLATED = frozenset(
    {
        "batch_size",
        "cur_shard",
        "data_loader_fn",
        "num_epochs",
        "seed",
        "shard_count",
        "shard_seed",
        "shuffle_row_groups",
        "shuffle_rows",
        "shuffling_queue_capacity",
        "transform_spec",
        "workers_count",
    }
)
# Arguments that change what is read.
REFUSED = {
    "drop_last": "leave it out: streaming repeats rows where a rank lacks some",
    "filters": "filter the DataFrame",
    "predicate": "filter the DataFrame",
    "rowgroup_selector": "filter the DataFrame",
    "schema_fields": "select the columns of the DataFrame, or name them in a PandasCollate",
}
ARGUMENTS = frozenset(
    {option.name for option in OPTIONS if option.api in {"make_batch_reader", *METHODS}}
    | {"min_after_retrieve"}  # of older releases of Petastorm
)
# They say how rows are read, not which; streaming finds its ranks by itself.
DROPPED = ARGUMENTS - TRANSLATED - REFUSED.keys() - {"dataset_url_or_urls"}


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
