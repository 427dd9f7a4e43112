"""What to do next with a repository: first the bridge, then streaming, unless it has decided otherwise."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass

from petastorm_codemods._model import Destination
from petastorm_codemods._options import Options, arguments

from .repository import Repository


@dataclass(frozen=True)
class Advice:
    """What comes next, in a word and a sentence, and the command for it.

    Attributes:
        way: ``none``, ``bridge``, ``streaming`` or ``stays``.
        reason: Why.
        command: What to do next; empty if there is nothing to do.
    """

    way: str
    reason: str
    command: str


def advise(repository: Repository, asked: Options, decided: str | None = None) -> Advice:
    """Return what comes next.

    Args:
        repository: The repository.
        asked: Paths and options that were given.
        decided: The destination in its ``pyproject.toml``, ``bridge`` or ``streaming``; None if there is none.
    """
    bridge, streaming = repository.bridge, repository.streaming
    if not (bridge.kinds or streaming.kinds or bridge.obstacles):
        return Advice("none", "nothing here needs Petastorm", "")
    if not bridge.rewritten and not streaming.rewritten:
        reason = "no place can be rewritten; the report says why for each"
        to = decided or "bridge"
        return Advice("stays", reason, _command(asked, decided, to, "--report", "markdown"))
    if decided == "bridge" and not bridge.rewritten:
        reason = "everything has moved to the bridge, which is where pyproject.toml wants it"
        return Advice("none", reason, "")
    if decided == "streaming" or not bridge.rewritten:
        reason = "pyproject.toml says so"
        if not decided:
            reason = "the code runs on the bridge, where it may stay; the second step makes calls streaming's own"
        return Advice("streaming", reason, _command(asked, decided, "streaming"))
    reason = "only imports change, and the batches stay the same"
    if bridge.stays:
        reason += "; what is listed above stays on Petastorm"
    if streaming.loaders > streaming.on_bridge:
        reason += "; streaming's own calls are the second step"
    if repository.own_format:
        reason += "; datasets in Petastorm's own format stay as they are, or `petastorm-bridge convert` makes MDS of them"
    return Advice("bridge", reason, _command(asked, decided, "bridge"))


def _command(asked: Options, decided: str | None, to: str, *options: str) -> str:
    asked = asked if decided else dataclasses.replace(asked, to=Destination(to))
    return shlex.join(["petastorm-bridge", "codemod", *arguments(asked), *options])
