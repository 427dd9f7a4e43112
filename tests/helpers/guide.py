"""Commands and programs of the pages, for tests that do what the pages say."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "migration_guide"
_BLOCK = re.compile(
    r"^([ ]*)(?:<!-- test: ([\w.-]+) -->\n\1)?```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL
)


def blocks(page):
    """The blocks of a page as (name or None, language, code), in order; its name is below the root."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for indent, name, language, code in _BLOCK.findall(text):
        lines = (line.removeprefix(indent) for line in code.splitlines(keepends=True))
        yield name or None, language, "".join(lines)


def named(page):
    """The blocks of a page that have names."""
    return {name: code for name, _, code in blocks(page) if name}


def commands(page):
    """The commands of a page, without prompts, comments and what they print."""
    found = []
    for _, language, code in blocks(page):
        if language in {"sh", "console"}:
            lines = code.replace("\\\n", " ").splitlines()
            if language == "console":
                lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
            found += [" ".join(line.split("  #")[0].split()) for line in lines if line]
    return found


def follow(page, command, folder, *, codes=(0,), said=None):
    """Runs a command in a folder, if the page has it word for word, and returns what it prints."""
    assert command in commands(page), f"{page} has no command {command!r}: {commands(page)}"
    return bridge(command, folder, codes=codes, said=said)


def bridge(command, folder, *, codes=(0,), said=None):
    """Runs a command in a folder; ``petastorm-bridge`` is the one of this interpreter."""
    own = f"{sys.executable} -m petastorm_bridge"
    started = time.monotonic()
    done = subprocess.run(
        ["bash", "-ec", re.sub(r"\bpetastorm-bridge(?= )", own, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if noted := os.environ.get("PETASTORM_BRIDGE_STEPS"):  # by tools/ten_minutes.py
        with open(noted, "a", encoding="utf-8") as file:
            file.write(json.dumps([command, time.monotonic() - started]) + "\n")
    assert done.returncode in codes, (command, done.returncode, done.stdout, done.stderr)
    printed = done.stdout + done.stderr
    assert said is None or said in printed, (command, printed)
    return printed
