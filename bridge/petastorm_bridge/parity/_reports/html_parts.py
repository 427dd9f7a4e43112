"""What several parts of the page are made of."""

from __future__ import annotations

from html import escape

from petastorm_bridge.parity._result import Result, State

_MARKS = {State.SAME: "✓", State.DIFFERENT: "✗", State.ALLOWED: "!", State.UNCHECKED: "–"}


def state_mark(state: State) -> str:
    """Return how something fared, as a coloured word with a mark."""
    return f'<span class="state {state.value}">{_MARKS[state]} {state.word}</span>'


def heads(result: Result) -> str:
    """Return the labels of both sides as cells of a table's head."""
    return (
        f'<th class="side-a">{escape(result.a.label)}</th>'
        f'<th class="side-b">{escape(result.b.label)}</th>'
    )
