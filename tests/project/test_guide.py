"""The guide: generated pages are current, links lead somewhere, and its code runs."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = ROOT / "migration_guide"
PAGES = sorted(GUIDE.glob("*.md"))
LAYOUT = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]


def anchors(page):
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def test_generated_pages_are_current():
    command = [sys.executable, str(ROOT / "tools" / "build_docs.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name) if name else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize("page", LAYOUT, ids=lambda page: page.name)
def test_files_and_folders_are_where_the_layout_says(page):
    there = "\n".join(
        path.relative_to(ROOT).as_posix() + ("/" if path.is_dir() else "")
        for top in (
            "bridge",
            "codemods",
            "tests",
            "tools",
            "requirements",
            "benchmarks",
            "examples",
        )
        for path in (ROOT / top).rglob("*")
    )
    named = set(re.findall(r"[\w./-]*\w(?:\.py|/)(?=[\s`,;:)]|$)", page.read_text("utf-8")))
    named -= {"codemods/petastorm_codemods/rules/pm0xx_name.py"}
    assert len(named) > 20
    for name in named:
        assert re.search(rf"(?:^|/){re.escape(name)}(?:$|\w)", there, re.MULTILINE), name


def test_messages_name_anchors_that_exist():
    found = set()
    for path in (ROOT / "bridge").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"migration_guide/([\w\-]+\.md)(?:#([\w\-{}.]+))?", text))
    assert ("differences.md", "tf-null-warning") in found
    for name, anchor in found:
        assert (GUIDE / name).exists(), name
        if anchor and "{" not in anchor:
            assert anchor in anchors(GUIDE / name), f"{name}#{anchor}"


def test_every_option_has_an_anchor():
    from petastorm_bridge._tables.options import OPTIONS

    known = anchors(GUIDE / "options.md")
    for option in OPTIONS:
        assert f"{option.api}-{option.name}" in known


@pytest.mark.spark
@pytest.mark.tf
@pytest.mark.slow
def test_code_of_the_swap_page_runs(tmp_path):
    text = (GUIDE / "swap-the-import.md").read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- test: (\w+) -->\n```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == text.count("```python") > 5
    program = tmp_path / "swap_the_import.py"
    program.write_text("\n".join(code for _, code in blocks) + "\nprint('complete')\n")
    result = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.stdout.strip().endswith("complete"), result.stdout + result.stderr


# Runs the blocks of each page in names of their own; one Spark session serves them all.
RUN_PAGES = """
import json, sys
for name, code in json.load(open(sys.argv[1])).items():
    print("page", name, flush=True)
    exec(compile(code, name, "exec"), {"__name__": name})
print("complete")
"""


@pytest.mark.spark
@pytest.mark.tf
@pytest.mark.slow
def test_code_of_the_shorter_pages_runs(tmp_path):
    pages = {}
    for name in ("keras", "storage"):
        text = (GUIDE / f"{name}.md").read_text(encoding="utf-8")
        blocks = re.findall(r"<!-- test: \w+ -->\n```python\n(.*?)```", text, re.DOTALL)
        assert len(blocks) == text.count("```python") > 2
        pages[name] = "\n".join(blocks)
    (tmp_path / "pages.json").write_text(json.dumps(pages))
    result = subprocess.run(
        [sys.executable, "-c", RUN_PAGES, str(tmp_path / "pages.json")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert result.stdout.strip().endswith("complete"), result.stdout + result.stderr
    shown = re.search(r"```text\n(Parquet.*?)```", text, re.DOTALL)[1]
    (found,) = re.findall(r"page storage\n(.*)complete", result.stdout, re.DOTALL)
    for line, measured in zip(shown.splitlines(), found.splitlines(), strict=True):
        what, size = line.rsplit("  ", 1)
        assert measured.startswith(what)
        # Versions of the codecs differ a little.
        assert float(measured.split()[-2]) == pytest.approx(float(size.split()[0]), rel=0.15)


MESSAGES_OF_OTHERS = {
    "No module named 'pyarrow.filesystem'": "petastorm",
    "default auth: cannot configure default credentials": "databricks",
    "Your input ran out of data": "keras",
    "Reused local directory": "streaming",
}


def test_the_page_of_trouble_quotes_messages_that_there_are():
    text = (GUIDE / "trouble.md").read_text(encoding="utf-8")
    messages = re.findall(r"^### (.+)$", text[: text.index("## What one sees")], re.MULTILINE)
    assert len(messages) > 10
    sources = [path.read_text("utf-8") for path in (ROOT / "bridge").rglob("*.py")]
    # A message that goes over lines stands in several literals.
    joined = [re.sub(r'"\s*\n\s*f?"', "", source) for source in sources]
    for message in messages:
        if message in MESSAGES_OF_OTHERS:
            continue
        wanted = message.removesuffix(" float32")
        assert any(wanted in source for source in joined), message


@pytest.mark.spark
@pytest.mark.slow
def test_code_of_the_page_on_datasets_runs(tmp_path):
    """With its command, which prints what the page says."""
    pytest.importorskip("streaming", reason="needs the extra [streaming]")
    text = (GUIDE / "petastorm-datasets.md").read_text(encoding="utf-8")
    text = text.replace("/tmp/", f"{tmp_path}/")
    blocks = dict(re.findall(r"<!-- test: (\w+) -->\n```\w+\n(.*?)```", text, re.DOTALL))
    assert len(blocks) == text.count("```") / 2 == 3
    code = f"{blocks['write']}\n{blocks['read']}\nprint('complete')\n"
    program = tmp_path / "datasets.py"
    program.write_text(code)
    result = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.stdout.strip().endswith("complete"), result.stdout + result.stderr
    command, _, said = blocks["convert"].partition("\n")
    arguments = command.removeprefix("$ petastorm-bridge ").split()
    result = subprocess.run(
        [sys.executable, "-m", "petastorm_bridge", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    size = r"[\d,]+ bytes"  # what zstd of another release makes of it
    assert re.sub(size, "", result.stdout) == re.sub(size, "", said)


@pytest.mark.spark
@pytest.mark.tf
@pytest.mark.slow
def test_code_of_the_native_page_runs(tmp_path):
    """Of its part on rewritten code; and what that says of ranks and of resumption."""
    pytest.importorskip("streaming", reason="needs the extra [streaming]")
    text = (GUIDE / "native-streaming.md").read_text(encoding="utf-8")
    part = text[text.index('<a id="after">') : text.index("## Whole batches")]
    blocks = re.findall(r"<!-- test: ([\w.]+) -->\n```python\n(.*?)```", part, re.DOTALL)
    assert len(blocks) == part.count("```python") > 5
    program = tmp_path / "native.py"
    code = "\n".join(code for name, code in blocks if name != "train.py")
    program.write_text(f"{code}\nprint('complete')\n")
    result = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.stdout.strip().endswith("complete"), result.stdout + result.stderr
    train = tmp_path / "train.py"
    train.write_text(dict(blocks)["train.py"])
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    both = ranks_of([*launcher, str(train)], tmp_path)
    assert [len(rows) for rows in both.values()] == [500, 500]
    assert sorted(both[0] + both[1]) == list(range(1000))
    begun = ranks_of([str(train)], tmp_path, STEPS="3")[0]
    went_on = ranks_of([*launcher, str(train)], tmp_path)
    assert len(begun) == 192
    assert sorted(begun + went_on[0] + went_on[1]) == list(range(1000))


def ranks_of(command, folder, **environment):
    """The rows that each rank of a program prints."""
    result = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found, left, decoder = {}, result.stdout.strip(), json.JSONDecoder()
    while left:  # the ranks share a pipe, into which one may write between a text and its newline
        (rank, rows), end = decoder.raw_decode(left)
        found.setdefault(rank, []).extend(rows)
        left = left[end:].lstrip()
    return dict(sorted(found.items()))
