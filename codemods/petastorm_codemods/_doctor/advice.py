"""Which way fits a repository, and the next command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from .repository import Repository, by_code


@dataclass(frozen=True)
class Advice:
    """What fits, in a word and a sentence, and the next command.

    Attributes:
        way: ``none``, ``bridge``, ``streaming`` or ``stays``.
        reason: Why.
        command: What to do next; empty if there is nothing to do.
    """

    way: str
    reason: str
    command: str


def advise(found: Repository) -> Advice:
    """Return what fits a repository."""
    bridge, streaming = found.bridge, found.streaming
    if not bridge.kinds and not streaming.kinds:
        return Advice("none", "nothing here needs Petastorm", "")
    if not bridge.rewritten and not streaming.rewritten:
        reason = "no place can be rewritten; the report says why of each"
        return Advice("stays", reason, _command(found, "--report", "markdown"))
    if not bridge.rewritten:
        reason = "imports have moved already; the calls are left to take to streaming's own"
        return Advice("streaming", reason, _command(found, "--to", "streaming"))
    if by_code(streaming.kinds, "PM102", "PM103") and not (streaming.stays or streaming.on_bridge):
        reason = "each loader has a counterpart in streaming"
        return Advice("streaming", reason, _command(found, "--to", "streaming"))
    reason = "imports change and nothing else: the same batches as before"
    if bridge.stays:
        reason += "; what is listed above stays on Petastorm"
    if found.own_format:
        reason += "; `petastorm-bridge convert` makes MDS of datasets of Petastorm's own"
    return Advice("bridge", reason, _command(found, "--to", "bridge"))


def _command(found: Repository, *options: str) -> str:
    return shlex.join(["petastorm-bridge", "codemod", found.path, *options])
