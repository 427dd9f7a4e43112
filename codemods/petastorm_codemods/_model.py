"""The vocabulary of a run: destinations, safeties, edits, findings and outcomes of files."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Destination(enum.Enum):
    """Where call sites are taken."""

    BRIDGE = "bridge"
    STREAMING = "streaming"


class Safety(enum.Enum):
    """What a rewrite may change, and so who decides about it."""

    SAFE = "safe"
    BEHAVIOUR = "behaviour-changing"
    MANUAL = "manual"


class State(enum.Enum):
    """What became of one finding."""

    REWRITTEN = "rewritten"
    NEEDS_UNSAFE = "needs --unsafe"
    MANUAL = "needs a human"
    WORKS = "works as it is"


class Fact(enum.Enum):
    """What is known of a call that opens a loader, besides what the message says in words."""

    # Of calls that are rewritten: what a reviewer has to know.

    RANKS = "streaming splits rows by rank"
    SHORT_BATCHES = "an epoch may end with a smaller batch"
    LEFT_OUT = "rows that do not fill the last batch of a pass are left out of each"
    # What became of them.
    NATIVE = "streaming's own classes read it"
    ROW_BY_ROW = "its torch batches are made of single rows"
    ON_BRIDGE = "it runs on the bridge"
    HOROVOD = "its ranks are Horovod's"
    OTHER_RANKS = "its ranks come from a place that the codemod cannot see"


class Requirement(enum.Enum):
    """What becomes of a requirement on Petastorm in the lines of a file that install it."""

    REPLACED = "replaced"
    JOINED = "joined by the new one"
    KEPT = "kept"


# What Databricks mounts: files of an object store.
MOUNTED = ("/dbfs/", "/Volumes/")


@dataclass(frozen=True)
class Converted:
    """A dataset of Petastorm's that was converted to MDS.

    Attributes:
        url: What readers of it are opened with.
        directory: Where the MDS shards are: the path of a directory, or the URL of one in a store.
        columns: How each column is stored there, by its name; empty if that could not be seen.
    """

    url: str
    directory: str
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Target:
    """What code that is rewritten for streaming imports.

    Attributes:
        module: The support module.
        fast: Whether rows are read in whole batches.
        bridge: The requirement on petastorm-bridge that ``--requirement`` gives; empty for the version that runs.
        bridged: Whether a file imports the bridge itself, not only a support module of its repository's.
        requirement: What becomes of requirements on Petastorm.
        converted: Datasets of Petastorm's that streaming can read.
    """

    module: str = "petastorm_bridge.native"
    fast: bool = False
    bridge: str = ""
    bridged: bool = True
    requirement: Requirement = Requirement.REPLACED
    converted: tuple[Converted, ...] = ()

    @property
    def vendored(self) -> bool:
        """Whether the support module is a file of the repository."""
        return self.module != Target().module


# Text, or where it stands in the source.
Piece = str | tuple[int, int]
Pieces = tuple[Piece, ...]


@dataclass(frozen=True, order=True)
class Edit:
    """Replaces ``text[start:end]``, in characters of a source's text, by ``text``.

    Attributes:
        start: First character.
        end: The one behind the last.
        text: The replacement.
        pieces: What ``text`` is made of, if other edits may change what of the source is kept in it;
            edits of what is not kept have no effect then.
        lines: Whether ``text`` is whole lines of statements, to be laid out like the file's own.
    """

    start: int
    end: int
    text: str
    pieces: tuple[Piece, ...] = field(default=(), compare=False)
    lines: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Need:
    """A name that a rewrite uses and that has to be imported.

    Attributes:
        module: Where it comes from.
        name: The name.
        local: What it is called in the source.
    """

    module: str
    name: str
    local: str


@dataclass(frozen=True)
class ImportSlot:
    """An import that moves, which names that other rewrites need may join.

    Attributes:
        start: Where the statement starts.
        parts: What it imports then: modules with their names, as they are written.
    """

    start: int
    parts: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Finding:
    """What a rule has to say about one place, before the engine decides what to do with it.

    Attributes:
        code: Code of the rule.
        offset: Where, in characters of the source's text.
        message: What was found and what to do; plain ASCII, because it may become a comment in a
            file of any encoding.
        safety: Whether ``edits`` may be applied without being asked for.
        edits: The rewrite; empty for a manual finding.
        marker: Whether a comment is left in the code when nothing is rewritten.
        needs: Names that the rewrite uses.
        slots: Imports among what is rewritten.
        comments: Comments of the original that the rewrite has no room for.
        remark: What a comment in the code says of a rewrite; empty for no comment.
        told: Whether a summary tells of the rewrite, because something is lost by it.
        alone: What to do where nothing else in the file's code is rewritten, and this for that
            reason is not either; empty if the rewrite depends on no other.
        facts: What is known of the call.
    """

    code: str
    offset: int
    message: str
    safety: Safety
    edits: tuple[Edit, ...] = ()
    marker: bool = True
    needs: tuple[Need, ...] = ()
    slots: tuple[ImportSlot, ...] = ()
    comments: tuple[str, ...] = ()
    remark: str = ""
    told: bool = False
    alone: str = ""
    facts: frozenset[Fact] = frozenset()


@dataclass(frozen=True)
class Site:
    """One finding as it is reported.

    Attributes:
        code: Code of the rule.
        line: Line in the file, or in the cell of an ``.ipynb``, from 1.
        column: Column in characters, from 1.
        cell: Number of the cell in an ``.ipynb``, from 1; None elsewhere.
        message: What was found, and what to do where nothing was rewritten.
        safety: The safety of the rewrite.
        state: What became of it.
        told: Whether a summary tells of it even if it is rewritten.
        facts: What is known of the call.
    """

    code: str
    line: int
    column: int
    cell: int | None
    message: str
    safety: Safety
    state: State
    told: bool = False
    facts: frozenset[Fact] = frozenset()

    @property
    def confidence(self) -> str:
        """How sure the tool is of the result: high, medium or none."""
        if self.state not in {State.REWRITTEN, State.WORKS}:
            return "none"
        return "high" if self.safety is Safety.SAFE else "medium"


@dataclass(frozen=True)
class Unchanged:
    """Nothing to do in this file."""

    path: str
    sites: tuple[Site, ...] = ()
    noted: tuple[Site, ...] = ()  # sites without edits of their own, for reports alone


@dataclass(frozen=True)
class Rewritten:
    """What a file was, and what it becomes."""

    path: str
    before: bytes = field(repr=False)
    after: bytes = field(repr=False)
    sites: tuple[Site, ...] = ()
    noted: tuple[Site, ...] = ()  # sites without edits of their own, for reports alone


class Success(Rewritten):
    """Every finding of this file is rewritten in ``after``."""


class NeedsHuman(Rewritten):
    """Something is left to do by hand; ``after`` may hold rewrites and markers."""


@dataclass(frozen=True)
class Failed:
    """The file is left as it was: it could not be read, parsed, or its rewrite verified.

    Attributes:
        path: Path of the file.
        reason: What went wrong.
        sites: What was found before.
        abnormal: Whether the machine or this tool is to blame, and not what the file holds.
    """

    path: str
    reason: str
    sites: tuple[Site, ...] = ()
    abnormal: bool = False


Outcome = Unchanged | Success | NeedsHuman | Failed


@dataclass(frozen=True)
class Result:
    """The outcome of a run.

    Attributes:
        outcomes: One for each file that was looked into, sorted by path.
        scanned: Number of files that were found.
        shown: Path and line of texts, such as a README, whose code imports Petastorm.
    """

    outcomes: tuple[Outcome, ...]
    scanned: int
    shown: tuple[str, ...] = ()


def pending(outcome: Outcome) -> bool:
    """Say whether writing this outcome would change the file."""
    return isinstance(outcome, Rewritten) and outcome.before != outcome.after
