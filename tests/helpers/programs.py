"""Whole programs, written for Petastorm: rewritten in every form, and run.

They are specimens of other people's style: the suffix ``.txt`` keeps our own formatter away from them.
"""

import dataclasses
import json
import os
import re
import shutil
import sys
from pathlib import Path

import shared_memory
import warm

from petastorm_codemods._model import Destination, NeedsHuman, Success, Target, Unchanged
from petastorm_codemods._run import run as codemod
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.decode import write_atomically

CODEMODS = Path(__file__).parents[1] / "codemods"
STREAMING = Settings(Destination.STREAMING)
FORMS = {
    "bridge": Settings(Destination.BRIDGE),
    "streaming": STREAMING,
    "vendored": dataclasses.replace(STREAMING, vendor=True),
    "fast": dataclasses.replace(STREAMING, target=Target(fast=True)),
}
NATIVE = [form for form in FORMS if form != "bridge"]

# With --vendor a reader of the bridge on a converter's directory is left to a human: what streaming's writer
# wrote does not say which columns were booleans or timestamps. This one has none.
MARKED = {"reader_on_converter.py"}


def programs_in(folder):
    """The programs of a folder by name: files, or folders with a ``main``."""
    return {
        path.name.split(".")[0]: path / "main.py.txt" if path.is_dir() else path
        for path in sorted((CODEMODS / folder).iterdir())
    }


def write_form(folder, source, form):
    """Write the programs of a folder into another one in a form, ``original`` or one of FORMS."""
    for path in (CODEMODS / source).rglob("*.txt"):
        place = folder / path.relative_to(CODEMODS / source).with_suffix("")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    if form in FORMS:
        rewrite(folder, FORMS[form])


def rewrite(folder, settings):
    for outcome in codemod([str(folder)], settings).outcomes:
        marked = os.path.basename(outcome.path) in MARKED and settings.vendor
        assert isinstance(outcome, NeedsHuman if marked else Success | Unchanged), outcome
        if isinstance(outcome, Success | NeedsHuman):
            write_atomically(outcome.path, outcome.after)


# On busy machines Petastorm's readers may end before the first row, without an error. Such programs run again, as those
# do whose shared memory had another owner.
_NO_ROW = re.compile(r"expected a non-empty list of Tensors|StopIteration")


def run(out, folder, names, *, cache=None, ranks=None, environment=None):
    """Run programs, one after the other in a process, or on several ranks of torchrun.

    Args:
        out: Folder to make, for the recordings.
        folder: Where the programs are.
        names: Of the programs.
        cache: URL in which each has a directory for its CACHE; None for one beside ``out``.
        ranks: How many; None for no launcher.
        environment: Of the process, None for this one's.

    Returns:
        What came of each program by name; of ranks a list of that.
    """
    cache, environment = cache or f"file://{out}-cache", environment or os.environ
    if ranks:
        found = _launch(out, folder, names, cache, ranks, environment)
        if any(map(_stopped_by_an_engine, (result for rank in found for result in rank.values()))):
            print("launched again, for a fault of an engine's own")
            return _launch(out, folder, names, cache, ranks, environment)
        return found
    found = _run(out, folder, names, cache, 1, environment)[0]
    stopped = [name for name in names if _stopped_by_an_engine(found[name])]
    if stopped:
        print("run again, for a fault of an engine's own:", *stopped)
        again = out.with_name(f"{out.name}-again")
        found |= _run(again, folder, stopped, cache, 1, environment)[0]
        for name in stopped:
            shutil.rmtree(out / name, ignore_errors=True)
            if (again / name).exists():  # it has recorded something
                shutil.move(again / name, out)
    return found


def _stopped_by_an_engine(result):
    error = result.get("error", "")
    return any(fault.search(error) for fault in (_NO_ROW, shared_memory.NAME_WAS_TAKEN))


def _launch(out, folder, names, cache, ranks, environment):
    shutil.rmtree(out, ignore_errors=True)  # of a launch that failed
    return _run(out, folder, names, cache, ranks, environment)


def _run(out, folder, names, cache, ranks, environment):
    written = [out / f"programs.{rank}.json" for rank in range(ranks)]
    for path in written:
        path.unlink(missing_ok=True)  # of other programs
    launcher = []
    if ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = warm.run(
        [sys.executable, *launcher, CODEMODS / "run_programs.py", out, folder, cache, *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        cwd=out.parent,
        # Spark's workers have the support module from here.
        env={**environment, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
    )
    ended = f"exit code {done.returncode}\n{done.stderr[-8000:]}"
    assert all(path.exists() for path in written), ended
    return [json.loads(path.read_text()) for path in written]
