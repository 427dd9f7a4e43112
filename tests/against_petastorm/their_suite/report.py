"""How many of Petastorm's own tests pass with the bridge: ``python report.py``.

``python report.py --record`` runs them with the real package first, which takes a quarter of an hour, and
stores what became of them; names of parts behind it run only these. `test_their_suite.py` holds the bridge
to the figures.
"""

import json
import sys
import tempfile
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

import their_suite


def record(parts):
    """Stores what the real package does with the tests of some parts."""
    found = their_suite.original() if their_suite.ORIGINAL.exists() else {}
    files = {file for part in parts for file in their_suite.PARTS[part]}
    found = {name: kind for name, kind in found.items() if name.partition("::")[0] not in files}
    with tempfile.TemporaryDirectory() as folder:
        their_suite.written(Path(folder), swap=lambda source: source)
        for part in parts:
            outcomes = their_suite.outcomes(Path(folder), their_suite.PARTS[part])
            found |= {name: kind for name, (kind, _) in outcomes.items()}
            print(f"{part}: {len(outcomes)} tests", flush=True)
    text = json.dumps(dict(sorted(found.items())), indent=0)
    their_suite.ORIGINAL.write_text(text + "\n", "utf-8")


def show():
    """Prints a line for each file, then the exceptions with their reasons."""
    counts = their_suite.counts()
    for file, (able, mine) in counts.items():
        print(f"{file:<36} {mine:>4} of {able:>4}")
    able, mine = (sum(column) for column in zip(*counts.values(), strict=True))
    print(f"{'all':<36} {mine:>4} of {able:>4}, {mine / able:.1%} of what the real package passes")
    entries = {id(entry): entry for entry in their_suite.exceptions().values()}
    for entry in entries.values():
        print()
        print(*entry["tests"], sep="\n")
        print(textwrap.fill(entry["reason"], 100, initial_indent="  ", subsequent_indent="  "))
    print("\nNot run, as they are about what lies within Petastorm or is not offered:")
    for file, subject in their_suite.NOT_RUN.items():
        print(f"  {file}: {subject}")


if __name__ == "__main__":
    if "--record" in sys.argv:
        named = sys.argv[sys.argv.index("--record") + 1 :]
        record(named or list(their_suite.PARTS))
    show()
