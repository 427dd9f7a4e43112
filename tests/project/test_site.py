"""The guide as a site: it is built without a warning, loads nothing from elsewhere, and leaves no page out."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from browser import BROWSER, Browser
from guide import blocks
from readable import BROKEN, CUT, FAINT

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = ROOT / "migration_guide"
# Where pictures of pages are put, for people to look at; nowhere if this is not set.
PICTURES = os.environ.get("PETASTORM_BRIDGE_PICTURES")
IN_BROWSER = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


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


def test_options_are_not_broken_behind_their_hyphens(site):
    start = (site / "index.html").read_text("utf-8")
    assert 'codemod . <span class="short">--to</span> streaming</code>' in start
    assert '<code class="short">--fast</code>' in start


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@IN_BROWSER
@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_cut_off_or_unreadable(site, browser, dark):
    """Colours and places have little to do with each other: not every width is looked at in the dark."""
    for width in (400, 1600) if dark else (400, 800, 1000, 1280, 1600):
        browser.look(width, dark=dark)
        for page in sorted(site.glob("*.html")):
            if page.name == "404.html":
                continue
            browser.open(page.as_uri())
            assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0, (
                page.name,
                width,
            )
            if width in {400, 1600}:
                assert browser.run(FAINT) == [], (page.name, width)
            if PICTURES:
                name = f"site-{page.stem}-{width}-{'dark' if dark else 'light'}.png"
                browser.photograph(pathlib.Path(PICTURES).absolute() / name)
            browser.run("document.querySelectorAll('details').forEach(e => e.open = true)")
            for found in (CUT, BROKEN):
                assert browser.run(found) == [], (page.name, width)
    scheme = browser.run("document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if dark else "default")


FOUND = """new Promise((found, failed) => {
  const input = document.querySelector('.md-search__input');
  document.querySelector('#__search').click();
  input.focus();
  const end = Date.now() + 20000;
  (function wait() {
    input.value = %s;
    input.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
    const links = [...document.querySelectorAll('.md-search-result__link')].map(e => e.getAttribute('href'));
    if (links.length) found(links);
    else if (Date.now() > end) failed(new Error('nothing found'));
    else setTimeout(wait, 50);
  })();
})"""


@IN_BROWSER
@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "page"), [("AF_UNIX", "trouble"), ("float32", "trouble"), ("LOCAL_CACHE", "tuning")]
)
def test_the_search_works_from_a_folder(site, browser, word, page):
    """Without a server, and without anything from elsewhere."""
    browser.look(1200, dark=False)
    browser.open((site / "index.html").as_uri())
    links = browser.run(FOUND % json.dumps(word))
    assert any(f"{page}.html" in link for link in links), links


@IN_BROWSER
@pytest.mark.slow
@pytest.mark.parametrize("picture", sorted(GUIDE.glob("images/*.svg")), ids=lambda path: path.stem)
def test_pictures_of_bars_are_whole(browser, picture):
    """Whatever font the machine has for their texts."""
    browser.look(800, dark=True)
    browser.open(picture.as_uri())
    beyond = """[...document.querySelectorAll('text, rect')].filter(e => {
      const box = e.getBBox(), view = document.documentElement.viewBox.baseVal;
      return box.x < 0 || box.x + box.width > view.width || box.y + box.height > view.height;
    }).map(e => e.textContent)"""
    assert browser.run(beyond) == []
    bars, texts = (
        browser.run(f"document.querySelectorAll('{what}').length")
        for what in ("rect", "text:not(.title)")
    )
    assert 2 <= bars == texts / 2  # each has a name and a figure


def test_forms_and_recipes_are_yaml():
    """Those of the code host, the citation, and what the page on many repositories gives to copy."""
    yaml = pytest.importorskip("yaml", reason="comes with the development tools")
    forms = [*(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"), ROOT / "CITATION.cff"]
    assert len(forms) == 5
    for form in forms:
        found = yaml.safe_load(form.read_text("utf-8"))
        for field in found.get("body", ()):
            assert field["type"] in {"markdown", "textarea"}
            assert field["attributes"].get("label") or field["type"] == "markdown"
    assert {"cff-version", "message", "title", "authors"} <= found.keys()
    checks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    lint = (ROOT / "Makefile").read_text("utf-8").partition("\nlint:")[2].partition("\n\n")[0]
    for hook in checks["repos"][0]["hooks"]:  # what `make lint` runs
        program = " ".join(hook["entry"].partition(" -- ")[2].split()[:4])
        assert f"@$(DEV) {program.removesuffix(' --quiet')}" in lint, program
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["all"]["steps"] if "run" in step]
    assert commands == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    page = "migration_guide/many-repositories.md"
    hooks, action, pipeline = (
        yaml.safe_load(code) for _, language, code in blocks(page) if language == "yaml"
    )
    (hook,) = hooks["repos"][0]["hooks"]
    published = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (same,) = (one for one in published if one["id"] == hook["id"])
    for key in ("pass_filenames", "always_run", "require_serial"):
        assert hook[key] == same[key]
    steps = action["jobs"]["codemod"]["steps"]
    assert sum("petastorm-bridge codemod" in step.get("run", "") for step in steps) == 3
    report = pipeline["petastorm"]["artifacts"]["reports"]["codequality"]
    assert any(report in line for line in pipeline["petastorm"]["script"])
