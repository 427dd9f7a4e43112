"""The guide as a site: it is built without a warning, loads nothing from elsewhere, and leaves no page out."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = ROOT / "migration_guide"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="comes with the development tools")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # of what comes after this generator
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not re.search("WARNING|ERROR", done.stderr), done.stderr
    return place


def test_every_page_is_in_the_site(site):
    pages = {path.stem for path in site.glob("*.html")}
    assert {path.stem for path in GUIDE.glob("*.md")} - {"README"} | {"index"} <= pages
    start = (site / "index.html").read_text("utf-8")
    for page in GUIDE.glob("*.md"):
        name = "index" if page.stem == "README" else page.stem
        assert f'href="{name}.html' in start, f"{page.name} is not in the navigation"


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.glob("*.html"):
        text = page.read_text("utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]+)"', text)
        loaded += re.findall(
            r'<link[^>]* rel="(?:stylesheet|icon|preload)"[^>]* href="([^"]+)"', text
        )
        assert loaded
        assert not [url for url in loaded if re.match(r"(?:https?:)?//", url)], page.name


def test_the_search_knows_every_page(site):
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {f"{path.stem}.html" for path in GUIDE.glob("*.md")} - {"README.html"} <= found
