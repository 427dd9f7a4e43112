"""``--vendor``: where the copies of the support module go in a run, and what becomes of each."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from petastorm_codemods._model import Failed, Outcome, Safety, Site, State, Success

from .assembly import PROPERTIES, assembled, names_in
from .files import repository_of
from .vendor import CODE, Home, Homes, imports_module, used_names

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
    given = [os.path.abspath(path) for path in paths]
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in given]

    def boundary(path: str) -> str:
        here = os.path.abspath(path)
        around = [each for each in folders if here.startswith(each.rstrip(os.sep) + os.sep)]
        return repository_of(path) or min(around, key=len, default=os.path.dirname(here))

    return Homes([path for path, data in sources if _USED.search(data)], boundary, imported)


def support_files(homes: Homes, texts: Mapping[str, bytes]) -> Iterator[Outcome]:
    """Yield the outcome of each copy of the support module, with what its users need of it.

    Args:
        homes: Where the copies go.
        texts: The files of the run as they are after it, by path.
    """
    users: dict[Home, list[bytes]] = {}
    for path, text in texts.items():
        home = homes.home(path)
        if imports_module(home.module, text) and os.path.abspath(path) != home.file:
            users.setdefault(home, []).append(text)
    # Handles are passed on to files that do not import the module.
    attributes = used_names(texts.values()) & PROPERTIES
    for home, importing in users.items():
        yield from _support_file(home, used_names(importing) | attributes)


def _support_file(home: Home, names: frozenset[str]) -> Iterator[Outcome]:
    """Yield the outcome of one copy; nothing if it has all the names already."""
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
    try:
        own = names_in(before.decode()) if before else frozenset()
    except (ValueError, SyntaxError) as error:
        yield Failed(path, str(error))
        return
    if names and not names <= own:
        after = assembled(names | own).encode()
        message = f"{home.module} holds what rewritten code imports"
        site = Site(CODE, 1, 1, None, message, Safety.SAFE, State.REWRITTEN)
        yield Success(path, before, after, (site,))
