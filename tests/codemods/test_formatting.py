"""Files of ordinary layout need no formatter before their rewrite is read."""

import dataclasses
import pathlib
import subprocess
import sys

import pytest

from petastorm_codemods._engine import process
from petastorm_codemods._meaning.other_files import Project
from petastorm_codemods._model import Destination, Target
from petastorm_codemods._project.listing import is_dependency_file
from petastorm_codemods._run import run
from petastorm_codemods._settings import Settings

pytest.importorskip("ruff")
PROGRAMS = pathlib.Path(__file__).parent / "programs"
FORMS = {
    "bridge": Settings(Destination.BRIDGE),
    "streaming": Settings(Destination.STREAMING),
    "fast": Settings(Destination.STREAMING, target=Target(fast=True)),
}


def samples(cases):
    """Text and settings of all cases and of all programs, by name."""
    found = {
        case.name: (case.before, case.settings)
        for case in cases
        if case.path.endswith(".py") and not is_dependency_file(case.path)
    }
    for path in sorted(PROGRAMS.rglob("*.py.txt")):
        name = "-".join(path.relative_to(PROGRAMS).parts).removesuffix(".py.txt")
        for form, settings in FORMS.items():
            own = dataclasses.replace(settings, project=Project(converters=True))
            found[f"{form}-{name}"] = path.read_text(), own
    return found


def formatted(folder, texts, width):
    """What Ruff makes of files, by their names."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    options = ["--isolated", "--quiet", "--line-length", str(width)]
    command = [sys.executable, "-m", "ruff", "format", *options, str(folder)]
    subprocess.run(command, check=False)  # some cases do not parse
    return {name: (folder / f"{name}.py").read_text() for name in texts}


@pytest.mark.slow
def test_what_was_formatted_seldom_needs_the_formatter_again(tmp_path, all_cases):
    """New calls are laid out as a formatter does it; the user's own lines, longer or shorter now, keep their breaks."""
    known = samples(all_cases)
    befores = {name: text for name, (text, _) in known.items()}
    befores = formatted(tmp_path / "before", befores, 88)
    afters = {}
    for name, before in befores.items():
        outcome = process("module.py", before.encode(), known[name][1])
        after = getattr(outcome, "after", b"").decode()
        if after and after != before:
            afters[name] = after
    assert len(afters) > 250
    again = formatted(tmp_path / "after", afters, 88)
    others = {name: after for name, after in afters.items() if again[name] != after}
    assert len(others) < len(afters) / 12


MAKER = "from petastorm.spark import make_spark_converter\n\nconv = make_spark_converter(df)\n"
LOADER = (
    "with conv.make_torch_dataloader(batch_size=n, num_epochs=1) as loader:\n    train(loader)\n"
)


def rewritten(folder, text):
    (folder / "train.py").write_text(text)
    (outcome,) = run([str(folder / "train.py")], Settings()).outcomes
    return outcome.after.decode()


@pytest.mark.parametrize(
    ("line", "wide"),
    [
        pytest.param("x = 1", 88, id="narrow"),
        pytest.param(f"x = f({', '.join(['abc'] * 18)})", 95, id="between the usual limits"),
        pytest.param(f"# {'x' * 96}", 88, id="a comment"),
        pytest.param(f"x = f({', '.join(['abc'] * 30)})", 100, id="wider than any"),
    ],
)
def test_lines_are_as_wide_as_the_files_own(tmp_path, line, wide):
    """What would be as wide is on one line; one character more, and it is not."""
    call = (
        "    StreamingDataset(remote=conv.remote, local=conv.local, shuffle=True, batch_size={}),"
    )
    for more in (0, 1):
        size = "n" * (wide - len(call.format("")) + more)
        loader = LOADER.replace("batch_size=n", f"batch_size={size}")
        after = rewritten(tmp_path, f"{MAKER}{line}\n{loader}")
        assert (call.format(size) in after) == (not more), after


def test_comments_stay_with_their_arguments(tmp_path):
    loader = (
        "with conv.make_torch_dataloader(\n"
        "    # as many as fit\n"
        "    batch_size=64,\n"
        "    num_epochs=1,  # one pass\n"
        "    transform_spec=spec,  # augments\n"
        ") as loader:\n    train(loader)\n"
    )
    assert rewritten(tmp_path, MAKER + loader).endswith(
        "# one pass\n"
        "loader = StreamingDataLoader(\n"
        "    StreamingDataset(remote=conv.remote, local=conv.local, shuffle=True, batch_size=64),\n"
        "    # as many as fit\n"
        "    batch_size=64,\n"
        "    collate_fn=spec,  # augments\n"
        ")\n"
        "train(loader)\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("MDSWriter", "MDSWriter, StreamingDataLoader, StreamingDataset"),
        ("StreamingDataLoader, StreamingDataset", "StreamingDataLoader, StreamingDataset"),
        ("base, StreamingDataset", "base, StreamingDataset, StreamingDataLoader"),
        ("(\n    MDSWriter,\n)", "MDSWriter, StreamingDataLoader, StreamingDataset"),
    ],
)
def test_names_join_the_import_of_their_module(tmp_path, before, after):
    text = rewritten(tmp_path, f"from streaming import {before}\n{MAKER}{LOADER}")
    assert f"from streaming import {after}\n" in text
    assert text.count("from streaming import") == 1


def test_an_import_below_the_first_use_is_not_joined(tmp_path):
    text = rewritten(tmp_path, f"{MAKER}{LOADER}from streaming import MDSWriter\n")
    assert text.index("import StreamingDataLoader") < text.index("conv.remote")
