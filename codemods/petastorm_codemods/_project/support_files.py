"""``--vendor``: where the copies of the support module go in a run, and what becomes of each."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from petastorm_codemods._model import Failed, Outcome, Safety, Site, State, Success

from .files import tops_of
from .vendor import CODE, Home, Homes, imports_module, support_module

# Who imports these, or calls that, may need the module.
_IMPORTED = rb"^[ \t\"]*(?:from|import)[ \t]+petastorm|^[ \t\"]*from[ \t].*\bmake_spark_converter"
_USED = re.compile(rb"%s|make_tf_dataset" % _IMPORTED, re.MULTILINE)


def homes_for(
    sources: Iterable[tuple[str, bytes]], imported: Collection[str], paths: Iterable[str]
) -> Homes:
    """Return where copies of the support module go.

    Args:
        sources: Path and bytes of the files of a run.
        imported: Dotted names of the modules that these and others import.
        paths: The files and directories that it was asked for.
    """
    return Homes([path for path, data in sources if _USED.search(data)], tops_of(paths), imported)


def support_files(homes: Homes, texts: Mapping[str, bytes]) -> Iterator[Outcome]:
    """Yield the outcome of each copy of the support module.

    Args:
        homes: Where the copies go.
        texts: The files of the run as they are after it, by path.
    """
    used = {
        home
        for path, text in texts.items()
        if imports_module((home := homes.home(path)).module, text)
        and os.path.abspath(path) != home.file
    }
    for home in sorted(used, key=lambda home: home.file):
        yield from _support_file(home)


def _support_file(home: Home) -> Iterator[Outcome]:
    """Yield the outcome of one copy; nothing if it is there already."""
    path = os.path.relpath(home.file)
    if os.path.islink(home.file):
        yield Failed(path, "it is a link, and nothing is written through links")
        return
    if os.path.exists(home.file) and not os.path.isfile(home.file):
        yield Failed(path, "left alone, because it is no regular file", abnormal=True)
        return  # reading a pipe could wait for ever
    try:
        with open(home.file, "rb") as stream:
            before = stream.read()
    except FileNotFoundError:
        before = b""
    after = support_module()
    title, _, _ = after.partition(b"\n")
    if before and not before.startswith(title.rstrip(b'."')):
        yield Failed(path, f"{os.path.basename(path)} exists and is something else")
    elif before != after:
        message = f"{home.module} holds what rewritten code imports"
        site = Site(CODE, 1, 1, None, message, Safety.SAFE, State.REWRITTEN)
        yield Success(path, before, after, (site,))
