"""Golden cases as files: ``cases/*.case`` hold an input and what it becomes, many to a file.

A case begins with ``#### name`` and flags (``to=bridge``, ``path=cell.ipynb``, ``unsafe``, ``converted``, ``human`` for one
that leaves something to do, ``failed``). ``{version}`` is the package's. The line ``####>`` separates input and output; without it
the input must not change.
"""

import dataclasses
import pathlib
import re

import pytest

from petastorm_bridge import __version__
from petastorm_codemods._meaning.other_files import METHODS, Project
from petastorm_codemods._model import Converted, Destination, Target
from petastorm_codemods._settings import Settings

CASES = pathlib.Path(__file__).parent / "cases"
# What cases with the flag ``converted`` say of datasets: one was seen, the others are elsewhere.
CONVERTED = (
    Converted(
        "file:///data/seen",
        "/data/seen-mds",
        (("id", "int32"), ("image", "png"), ("name", "str"), ("name__is_null", "uint8")),
    ),
    Converted("file:///data/plain", "/data/plain-mds", (("id", "int32"), ("x", "ndarray:float32"))),
    Converted("file:///data/digits", "/data/digits-mds"),
    Converted("hdfs:///data/far", "s3://bucket/far"),
)


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    path: str
    destination: str
    flags: frozenset
    before: str
    after: str

    @property
    def settings(self):
        # Other files of a run make converters, unless a case stands alone.
        defines = {name for name in METHODS if f"defines-{name}" in self.flags}
        project = Project(
            converters="alone" not in self.flags,
            defines=frozenset(defines),
            modules=frozenset({"ours"}),
        )
        converted = CONVERTED if "converted" in self.flags else ()
        return Settings(
            Destination(self.destination),
            unsafe="unsafe" in self.flags,
            target=Target(fast="fast" in self.flags, converted=converted),
            project=project,
        )

    def __str__(self):
        return self.name


def read_cases():
    found = []
    for file in sorted(CASES.glob("*.case")):
        text = file.read_text(encoding="utf-8").replace("{version}", __version__)
        for part in re.split(r"^#### ", text, flags=re.MULTILINE)[1:]:
            header, _, body = part.partition("\n")
            name, *words = header.split()
            options = dict(word.split("=") for word in words if "=" in word)
            before, separator, after = body.partition("####>\n")
            found.append(
                Case(
                    name=f"{file.stem}-{name}",
                    path=options.get("path", "module.py"),
                    destination=options.get("to", file.stem.partition("_")[0]),
                    flags=frozenset(word for word in words if "=" not in word),
                    before=before,
                    after=after if separator else before,
                )
            )
    names = [case.name for case in found]
    assert len(set(names)) == len(names), "two cases have one name"
    return found


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", read_cases(), ids=str)
    if "text_case" in metafunc.fixturenames:
        # The newlines of a notebook's cells are not those of its file.
        cases = [case for case in read_cases() if not case.path.endswith(".ipynb")]
        metafunc.parametrize("text_case", cases, ids=str)


@pytest.fixture
def all_cases():
    return read_cases()
