"""Bytes in, bytes out: encodings, newlines, and the checks of our own output."""

import dataclasses
import json

import pytest

from petastorm_codemods import _plan, _registry
from petastorm_codemods._engine import process
from petastorm_codemods._meaning.other_files import Project
from petastorm_codemods._model import (
    Converted,
    Destination,
    Edit,
    Failed,
    Finding,
    NeedsHuman,
    Safety,
    State,
    Success,
    Target,
    Unchanged,
)
from petastorm_codemods._settings import Settings
from petastorm_codemods._text.decode import decode_python, newline_of, write_atomically
from petastorm_codemods._text.edits import apply_edits, overlaps
from petastorm_codemods._text.verify import undefined_names

BRIDGE = Settings(Destination.BRIDGE)
OLD, NEW = b"from petastorm import TransformSpec", b"from petastorm_bridge import TransformSpec"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbf" + OLD + b"  # \xc3\xa9", b"\xef\xbb\xbf" + NEW + b"  # \xc3\xa9"),
        (
            b"# coding: latin-1\nx = '\xe9'; " + OLD + b"\n",
            b"# coding: latin-1\nx = '\xe9'; " + NEW + b"\n",
        ),
        (b"x = '\xf0\x9f\x9a\x80'; " + OLD, b"x = '\xf0\x9f\x9a\x80'; " + NEW),
        (b"x = 1\r\n" + OLD + b"\ny = 2\r", b"x = 1\r\n" + NEW + b"\ny = 2\r"),
        (OLD + b"\n\x0c\n\n   ", NEW + b"\n\x0c\n\n   "),
        (OLD + b"\n# end\\", NEW + b"\n# end\\"),
    ],
)
def test_other_bytes_stay(before, after):
    outcome = process("x.py", before, BRIDGE)
    assert isinstance(outcome, Success), outcome
    assert outcome.after == after


@pytest.mark.parametrize(
    "data",
    [b"# coding: no-such\nimport petastorm", b"petastorm = '\xff'", b"import petastorm\0", b"("],
)
def test_unreadable_files_fail_with_a_reason(data):
    outcome = process("x.py", data, BRIDGE)
    assert isinstance(outcome, Failed)
    assert outcome.reason


# Marks are left in files only in which something moves.
MOVED = b"from petastorm import TransformSpec\r\n"


def test_markers_use_the_newline_and_indent_of_the_place():
    outcome = process(
        "x.py", MOVED + b"def f():\r\n\tfrom petastorm import local_disk_cache\r\n", BRIDGE
    )
    assert isinstance(outcome, NeedsHuman)
    first, marker, last = outcome.after.split(b"\r\n")[1:4]
    assert marker.startswith(b"\t# petastorm-bridge rule PM003: ")
    assert (first, last) == (b"def f():", b"\tfrom petastorm import local_disk_cache")


def test_markers_stand_above_decorators():
    source = b"@f\n@__import__('x')\nclass A: from petastorm import local_disk_cache\n"
    outcome = process("x.py", MOVED + source, BRIDGE)
    assert outcome.after.split(b"\n")[2:] == source.split(b"\n")


def test_sites_say_where():
    source = b"import os\nif 1:\n    from petastorm import TransformSpec, local_disk_cache\n"
    outcome = process("x.py", source, BRIDGE)
    found = [(s.code, s.line, s.column, s.state, s.confidence) for s in outcome.sites]
    assert found == [
        ("PM001", 3, 5, State.REWRITTEN, "high"),
        ("PM003", 3, 5, State.MANUAL, "none"),
    ]


def settings_with(monkeypatch, check, safety=Safety.SAFE):
    """Settings under which one made-up rule is the only one."""
    rule = dataclasses.replace(_registry.all_rules()[0], code="PM999", check=check, safety=safety)
    monkeypatch.setattr(_plan, "rules_for", lambda _: (rule,))
    return BRIDGE


def edit_once(old, new):
    def check(analysis):
        at = analysis.source.text.find(old)
        if at >= 0:
            edit = Edit(at, at + len(old), new)
            yield Finding("PM999", at, "test", Safety.SAFE, (edit,))

    return check


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        ("x = (", "does not parse"),
        ("return 1", "parse"),
        ("x = nowhere", "nothing defines: nowhere"),
        ("x = 1; y = 1", "second run"),
        ('x = """', "statements that it should not touch"),
    ],
)
def test_a_bad_rewrite_leaves_the_file_alone(monkeypatch, new, complaint):
    settings = settings_with(monkeypatch, edit_once("x = 1", new))
    outcome = process("x.py", b'x = 1  # petastorm\ny = 2\nz = \'"""#\'\n', settings)
    if complaint == "parse":  # `return` at the top is a matter of compiling, not of syntax
        assert isinstance(outcome, Success)
    else:
        assert isinstance(outcome, Failed)
        assert complaint in outcome.reason


def test_a_rewrite_may_break_no_cell_where_another_is_broken(monkeypatch):
    cells = [
        {"cell_type": "code", "source": text} for text in ("a = = 1", "x = 1", "petastorm = 1")
    ]
    data = json.dumps({"cells": cells}).encode()
    settings = settings_with(monkeypatch, edit_once("x = 1", "x = = 1"))
    outcome = process("n.ipynb", data, settings)
    assert isinstance(outcome, Failed)
    assert "has a cell that does not parse" in outcome.reason


def test_a_rule_that_raises_fails_the_file_only(monkeypatch):
    def check(analysis):
        raise RuntimeError(f"no idea about {analysis.source.path}")

    outcome = process("x.py", b"x = 1\n", settings_with(monkeypatch, check))
    assert outcome == Failed("x.py", "no idea about x.py", abnormal=True)


def test_behaviour_changing_rewrites_wait_for_unsafe(monkeypatch):
    def check(analysis):
        if "x = 1" in analysis.source.text:
            yield Finding("PM999", 0, "changes x", Safety.BEHAVIOUR, (Edit(0, 5, "x = 2"),))

    settings = settings_with(monkeypatch, check)
    outcome = process("x.py", b"x = 1\n", settings)
    assert isinstance(outcome, NeedsHuman)
    assert [site.state for site in outcome.sites] == [State.NEEDS_UNSAFE]
    assert outcome.after == outcome.before
    unsafe = process("x.py", b"x = 1\n", dataclasses.replace(settings, unsafe=True))
    assert (type(unsafe), unsafe.after) == (Success, b"x = 2\n")
    assert [site.confidence for site in unsafe.sites] == ["medium"]


def test_overlapping_rewrites_are_left_to_a_human(monkeypatch):
    def check(analysis):
        if analysis.source.text.startswith("abc"):
            yield Finding("PM999", 0, "first", Safety.SAFE, (Edit(0, 2, "x"),))
            yield Finding("PM999", 1, "second", Safety.SAFE, (Edit(1, 3, "y"),))

    outcome = process("x.py", b"abc = 1\n", settings_with(monkeypatch, check))
    assert [site.state for site in outcome.sites] == [State.REWRITTEN, State.MANUAL]


def test_nothing_to_do_is_unchanged():
    assert process("x.py", b"x = 1\n", BRIDGE) == Unchanged("x.py")


def test_warnings_about_the_users_code_are_not_ours(recwarn):
    text = b"from petastorm.spark import make_spark_converter\nok = '\\d' if 1 is 1 else 2\n"
    assert isinstance(process("x.py", text, Settings()), Success)
    assert not recwarn.list


def test_edits():
    assert apply_edits("abcdef", [Edit(4, 6, "Z"), Edit(0, 1, "A"), Edit(1, 1, "+")]) == "A+bcdZ"
    assert overlaps([Edit(0, 2, ""), Edit(1, 3, "")])
    assert not overlaps([Edit(0, 2, ""), Edit(2, 3, "")])
    with pytest.raises(ValueError, match="two rewrites"):
        apply_edits("abc", [Edit(0, 2, ""), Edit(1, 3, "")])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x = 1\nprint(x, y)", {"y"}),
        ("def f(a):\n    global g\n    g = 1\n    return a + h\ng", {"h"}),
        ("class A:\n    b = 1\n    def f(self): return b", {"b"}),
        ("import a.b as c, d.e\nfrom f import g\nc, d, g, __name__, spark", set()),
        ("[i for i in range(3)]; lambda z: (z, w)", {"w"}),
        ("for k in k2: pass\nwith o as p: p\ntry: pass\nexcept E as e: e", {"k2", "o", "E"}),
    ],
)
def test_undefined_names(text, names):
    assert undefined_names(text) == names


def test_undefined_names_of_another_python():
    assert undefined_names("print 'x'") is None


def test_newline_of():
    assert [newline_of(text) for text in ("", "a", "a\n", "a\r\nb\n", "a\rb")] == [
        "\n",
        "\n",
        "\n",
        "\r\n",
        "\r",
    ]


def test_decoding_and_encoding_again():
    for data in (b"\xef\xbb\xbfx", b"# vim: fileencoding=cp1252\n\x80", b""):
        decoded = decode_python(data)
        assert decoded.encode(decoded.text) == data


def test_writing_keeps_permissions_and_links(tmp_path):
    target, link = tmp_path / "real.py", tmp_path / "link.py"
    target.write_bytes(b"old")
    target.chmod(0o751)
    link.symlink_to(target)
    write_atomically(str(link), b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o751
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_a_failed_write_leaves_nothing(tmp_path):
    target = tmp_path / "x.py"
    target.write_bytes(b"old")
    with pytest.raises(TypeError):
        write_atomically(str(target), "text, not bytes")
    assert [path.name for path in tmp_path.iterdir()] == ["x.py"]
    assert target.read_bytes() == b"old"


def test_selection():
    codes = [rule.code for rule in _registry.selected(Destination.BRIDGE, ["PM00"], ["PM002"])]
    assert codes == ["PM000", "PM001", "PM003"]
    with pytest.raises(ValueError, match="no rule has the code 'PM9'"):
        list(_registry.selected(Destination.BRIDGE, ["PM9"]))


@pytest.mark.parametrize(
    ("select", "ignore"),
    [(["PM101"], []), (["PM102"], []), ([], ["PM102"]), (["PM1"], ["PM101"])],
)
def test_converters_and_their_loaders_are_selected_together(select, ignore):
    with pytest.raises(ValueError, match="choose all of PM101, PM102, PM103"):
        list(_registry.selected(Destination.STREAMING, select, ignore))
    assert list(_registry.selected(Destination.STREAMING, ["PM10"], ["PM105"]))
    assert list(_registry.selected(Destination.STREAMING, ["PM0"]))


def test_rules_are_documented_and_examples_do_what_they_say():
    for rule in _registry.all_rules():
        assert rule.text, rule.code
        if not rule.after or rule.code == "PM010":
            continue
        for destination in rule.destinations:
            target = Target(converted=(Converted("file:///data/digits", "/data/digits-mds"),))
            project = Project(converters=True)
            settings = Settings(destination, unsafe=True, target=target, project=project)
            outcome = process("x.py", rule.before.encode(), settings)
            assert getattr(outcome, "after", b"").decode() == rule.after, rule.code
