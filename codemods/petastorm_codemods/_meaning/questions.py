"""Questions whose answers depend on each other's, each worked out once, however deep and in whatever circle."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Reply = TypeVar("Reply")

# What works out an answer, with its arguments, which are compared by identity or value.
Question = tuple[Any, ...]
# It yields the questions that it needs answers of.
Answer = Generator[Question, Reply | None, Reply | None]


@dataclass
class _Step(Generic[Reply]):
    """A question that is being worked on, or whose answer waits for one that is.

    Attributes:
        work: What works out the answer.
        order: How many questions were open before it.
        earliest: The order of the earliest open question that the answer depends on.
        reply: The answer as far as it is known.
    """

    work: Answer[Reply]
    order: int
    earliest: int
    reply: Reply | None = None


class Questions(Generic[Reply]):
    """Answers of questions about one source, and the only place that keeps them.

    Whatever depends on itself, by way of others, adds nothing to its own answer. All in such a circle
    have the same answer: that of the first, because answers are only ever combined. This is Tarjan's
    algorithm for strongly connected components, with a stack of its own instead of Python's.
    """

    def __init__(self) -> None:
        self._known: dict[Question, Reply | None] = {}

    def answer(self, question: Question) -> Reply | None:
        """Return the answer to a question, in time that is linear in what it depends on."""
        if question in self._known:
            return self._known[question]
        waiting: dict[Question, _Step[Reply]] = {}
        path = [_opened(question, waiting)]
        reply: Reply | None = None
        while path:
            step = path[-1]
            try:
                asked = step.work.send(reply)
            except StopIteration as end:
                path.pop()
                reply = step.reply = end.value
                if step.earliest == step.order:
                    self._settle(step, waiting)
                elif path:
                    path[-1].earliest = min(path[-1].earliest, step.earliest)
                continue
            reply = None
            if asked in self._known:
                reply = self._known[asked]
            elif asked in waiting:
                reply = waiting[asked].reply
                step.earliest = min(step.earliest, waiting[asked].order)
            else:
                path.append(_opened(asked, waiting))
        return self._known[question]

    def _settle(self, first: _Step[Reply], waiting: dict[Question, _Step[Reply]]) -> None:
        while len(waiting) > first.order:
            question, _ = waiting.popitem()
            self._known[question] = first.reply


def _opened(question: Question, waiting: dict[Question, _Step[Reply]]) -> _Step[Reply]:
    work: Callable[..., Answer[Reply]] = question[0]
    order = len(waiting)
    waiting[question] = _Step(work(*question[1:]), order, order)
    return waiting[question]
