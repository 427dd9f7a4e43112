"""Names of columns and of recordings that would steer a terminal, or end what a report puts them in."""

import os
import re
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from petastorm_bridge.cli import app
from petastorm_bridge.parity import CannotCompareError, recorder
from petastorm_bridge.parity._running.runner import _remove_recording

NAMES = (
    "\x1b]0;title\x07",
    "\x1b[31mred",
    "line\nbreak",
    "tick`s ![picture](http://example.invalid/x.png)",
    "|<b>\x9b31m\u202e",
)
_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def loader(first):
    return [{name: np.arange(4) + first for name in NAMES}]


def call(*arguments):
    return CliRunner().invoke(app, ["parity", *arguments])


@pytest.mark.parametrize("first", [0, 1])
def test_no_name_steers_what_reads_the_report(tmp_path, monkeypatch, first):
    monkeypatch.chdir(tmp_path)
    a, b = "a\x1b[31m", "b`\x07"
    recorder.record(loader(0), a)
    recorder.record(loader(first), b)
    kinds = ("html", "markdown", "junit", "json")
    reports = [part for kind in kinds for part in (f"--{kind}", kind)]
    answer = call("compare", a, b, *reports)
    assert answer.exit_code == bool(first), answer.output
    texts = {kind: (tmp_path / kind).read_text("utf-8") for kind in kinds[:3]}
    texts["terminal"] = answer.output
    for kind, text in texts.items():
        made = text.replace("\r", "")
        assert _STEERING.findall(made) == [], kind
        if first and kind != "junit":
            assert "31mred" in made, kind
    # Outside of a span of code nothing is a picture, and no name ends its span.
    plain = re.sub(r"(`+) .*?[^`] \1(?!`)|`[^`]*`", "", texts["markdown"].replace(r"\`", ""))
    assert "![picture]" not in plain
    assert "<b>" not in plain.replace("&lt;b>", "")


def test_what_the_recorder_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "steered_loaders.py").write_text(
        f"import numpy as np\ndef make(): return [{{name: np.arange(4) for name in {NAMES!r}}}]\n"
    )
    assert recorder.main(["steered_loaders:make", "--out", "a\x1b[31m"]) == 0
    assert recorder.main(["steered_loaders:make", "--out", "a\x1b[31m"]) == 2
    said = capsys.readouterr()
    assert _STEERING.findall(said.out + said.err) == []
    assert "\\x1b[31mred" in said.out


def test_only_recordings_are_replaced_where_they_are_kept(tmp_path):
    mine = tmp_path / "petastorm-0"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    with pytest.raises(CannotCompareError, match="is no recording; remove it"):
        _remove_recording(str(mine))
    recorder.record(loader(0), tmp_path / "kept")
    os.symlink(tmp_path / "kept", tmp_path / "bridge-0")
    with pytest.raises(CannotCompareError, match="is no recording; remove it"):
        _remove_recording(str(tmp_path / "bridge-0"))
    assert (tmp_path / "kept" / "manifest.json").exists()
    for rank in range(2):
        recorder.record(loader(0), tmp_path / "ranks", rank=rank, world_size=2)
    for name in ("kept", "ranks", "nothing"):
        _remove_recording(str(tmp_path / name))
        assert not (tmp_path / name).exists()
    assert (mine / "thesis.txt").read_text() == "mine"
