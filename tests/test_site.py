"""The documentation site: both builders build it, and its links and its search need no other host."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types
from tests.support.browser import browser as browser
from tests.support.docstrings import PUBLIC_MODULES, public_names
from tests.support.patience import patience

import frazil
from frazil.cli.command import VERBS
from frazil.errors import ErrorKind

pytest.importorskip("zensical", reason="needs the group `docs`")
pytestmark = pytest.mark.xdist_group("site")  # one build

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "scripts" / "site"))  # as for a program there: `pages.py` imports its neighbour
PAGES = runpy.run_path(str(ROOT / "scripts" / "site" / "pages.py"))
CHECK = runpy.run_path(str(ROOT / "scripts" / "site" / "check.py"))
#: What users type into the search -> the pages that answer it.
SENTENCES = {
    "share data with a colleague": {"explorer", "share"},
    "append new files every day": {"ingest", "daily-pipeline", "pipelines"},
    "GeoTIFF stack of scenes": {"ingest-formats", "gallery", "collections"},
    "migrate from icechunk": {"coming-from-icechunk"},
    "colleague": {"explorer", "share"},
    "who changed this value": {"history"},
    "how do I delete a branch": {"version-control"},
    "how large should chunks be": {"sizes"},
    "slow reads": {"performance", "sizes"},
    "read from S3 with credentials": {"storage"},
    "noleap calendar": {"arrow", "ingest", "quickstart"},
    "undo a commit": {"history"},
    "merge conflict": {"conflicts"},
    "kerchunk": {"virtual-datasets"},
    "jupyter widget": {"explorer"},
    "CORS": {"explorer"},
    "rename an array": {"moving"},
    "Windows": {"storage"},
    "kubernetes": {"deploying"},
    "geotiff scenes": {"ingest-formats", "gallery", "collections"},
    "query my arrays with duckdb": {"arrow"},
    "The disk is full. What can I delete?": {"expiration", "upkeep"},
    "is it safe to write from two processes?": {"reliability", "parallel-writes"},
    "regrid to a lower resolution": {"transform"},
    "remove personal data from all versions": {"withdraw"},
    "check whether my data are corrupt": {"verify"},
}
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
NAV = [page for _, page in PAGES["pages_of"](CONFIG["nav"])]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with both sites. The check of `scripts/build-docs` has passed."""
    directory = tmp_path_factory.mktemp("site")
    build = [str(ROOT / "scripts" / "build-docs"), "--check", str(directory)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_the_navigation_has_every_page_and_every_public_module() -> None:
    modules = {f"reference/{module}.md" for module in PUBLIC_MODULES}
    sections = dict.fromkeys(section for section, _ in PAGES["pages_of"](CONFIG["nav"]))
    assert [*sections] == ["Home", "Tutorial", "How-to", "Explanation", "Reference"]
    others = {f"reference/{name}.md" for name in ("index", "error-kinds", "commands", "checks")}
    assert sorted(NAV) == sorted({path.name for path in (ROOT / "docs").glob("*.md")} | modules | others)


def resolve_name(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_both_builders_build_every_page(built: Path) -> None:
    for site in (built / "site", built / "material"):
        assert [page for page in NAV if not (site / page).with_suffix(".html").exists()] == []
    for kind in ErrorKind:
        page = (built / "site" / "reference" / "errors" / f"{kind}.html").read_text()
        assert "Cause:" in page, kind
    lost = (built / "site" / "reference" / "errors" / "commit-conflict.html").read_text()
    assert "frazil.errors.html#frazil.errors.ConflictError" in lost
    assert "src/frazil/repository/session/commit.py" in lost
    checks = (built / "site" / "reference" / "checks.html").read_text()
    assert [check.name for check in frazil.Repository.upkeep.checks() if check.name not in checks] == []
    commands = (built / "site" / "reference" / "commands.html").read_text()
    assert [name for name in VERBS if f'id="frazil-{name.replace(" ", "-")}"' not in commands] == []
    storages = (built / "site" / "reference" / "frazil.storage.html").read_text()
    assert 'id="frazil.storage.s3_storage"' in storages
    assert "allow_http" in storages  # an option that only an import shows
    pages = "".join(page.read_text() for page in (built / "build" / "docs" / "reference").glob("*.md"))
    documented = {id(resolve_name(name)) for name in re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE)}
    functions = [name for name in public_names() if id(name.owner or name.function) not in documented]
    # `frazil.errors` has no `__all__`, and imports this class from a module that is not public.
    assert {name.name for name in functions} <= {"frazil.errors.Remedy.for_shell"}
    addresses = re.findall(
        r"^- \[.+\]\((.+)\): .+\.", (built / "site" / "llms.txt").read_text(), re.MULTILINE
    )
    assert addresses == [page.replace(".md", ".html") for page in NAV]


def test_the_index_of_the_reference_lists_its_pages(tmp_path: Path) -> None:
    nav: list[Any] = ["reference/index.md", {"Errors": ["a.md", "reference/b.md"]}, "c.md"]
    (tmp_path / "reference").mkdir()
    for page in ("a.md", "reference/b.md", "c.md"):
        (tmp_path / page).write_text(f"# Title of {page}\n\nA [first](x.md) sentence. Another one.\n")
    lines = PAGES["reference_index"](nav, tmp_path).splitlines()
    assert [line for line in lines if line.startswith(("- ", "## "))] == [
        "- [Title of c.md](../c.md): A first sentence.",
        "## Errors",
        "- [Title of a.md](../a.md): A first sentence.",
        "- [Title of reference/b.md](../reference/b.md): A first sentence.",
    ]


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_pages_show_the_version_and_lead_to_their_sources(built: Path) -> None:
    for site in (built / "site", built / "material"):
        edit = re.findall(r'href="([^"]+)"[^>]* rel="edit"', (site / "ingest.html").read_text())
        assert edit == [f"{CONFIG['repo_url']}/edit/main/docs/ingest.md"]
        assert f'--version: "{frazil.__version__}"' in (site / "assets" / "extra.css").read_text()
        assert 'error-kinds.html"' in (site / "reference" / "index.html").read_text()


def open_search(page: Any) -> None:
    """Press the key until the page reacts: its script may listen only after the page has loaded."""
    while not page.locator("input:focus").count():
        page.keyboard.press("/")
        page.wait_for_timeout(500)


def questions() -> dict[str, set[str]]:
    """The questions of docs/questions.md, and the pages of their answers."""
    rows = re.findall(r"^\| (.+\?) \| (.+) \|$", (ROOT / "docs" / "questions.md").read_text(), re.MULTILINE)
    return {question: set(re.findall(r"\]\(([\w-]+)\.md", answer)) for question, answer in rows}


def test_questions_have_an_answer_with_a_page() -> None:
    assert len(questions()) > 20
    assert all(questions().values())


def hits_of(page: Any, sentence: str) -> list[str]:
    """The names of the pages of the results, in their order."""
    field, results = page.locator("input:focus"), page.locator("a[href*='?h=']")
    field.fill("")
    page.keyboard.press("End")
    results.first.wait_for(state="detached")
    field.fill(sentence)
    page.keyboard.press("End")
    results.first.wait_for()
    addresses = results.evaluate_all("links => links.map(link => link.getAttribute('href'))")
    return [address.partition(".html?")[0].rpartition("/")[2] for address in addresses]


@pytest.mark.browser
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["site", "material"])
def test_the_search_finds_the_page_of_a_sentence(built: Path, browser: Any, name: str) -> None:
    """From a file, without a request to another host, without matches inside of words."""
    page = browser.new_page()
    page.set_default_timeout(1000 * patience(20))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((built / name / "reference" / "frazil.html").as_uri())
    open_search(page)
    page.keyboard.press("Control+a")
    page.keyboard.type("climatolog")  # the beginning of a word
    page.locator("a[href*='reduce.html']", has_text="climatolog").first.wait_for()
    assert hits_of(page, "kerchnuk")[0] == "virtual-datasets"  # a typing error
    assert hits_of(page, "What is CORS, and how can I use it?") == hits_of(page, "CORS")
    more = questions() if name == "site" else {}
    found = {sentence: hits_of(page, sentence) for sentence in SENTENCES | more}
    if name == "material":  # it shows all sections of a page together
        found = {sentence: [*dict.fromkeys(hits)] for sentence, hits in found.items()}
    wrong = [(each, found[each][:3]) for each, pages in SENTENCES.items() if not pages & {*found[each][:3]}]
    assert wrong == []
    for question, pages in more.items():
        others = [hit for hit in dict.fromkeys(found[question]) if hit != "questions"]
        assert pages & {*others[:5]}, (question, others[:5])
    page.goto((built / name / "explorer.html").as_uri() + "?h=how+do+I+share+with+a+colleague")
    page.locator("mark").first.wait_for()
    marks = page.locator("mark").evaluate_all("marks => marks.map(mark => mark.textContent.toLowerCase())")
    assert {*marks} == {"share", "colleague"}
    page.close()
    assert [address for address in requests if not address.startswith(("file:", "blob:", "data:"))] == []


@pytest.mark.browser
@pytest.mark.timeout(900)
def test_keys_and_screen_readers_on_the_pages(built: Path, browser: Any) -> None:
    """What scrolls has the focus, boxes of buttons are no landmarks, the dark menu has contrast."""
    context = browser.new_context(color_scheme="dark", viewport={"width": 390, "height": 860})
    page = context.new_page()
    for name in ("quickstart", "performance"):
        page.goto((built / "site" / f"{name}.html").as_uri())
        page.wait_for_function(
            "document.querySelector('nav.md-code__nav, .md-typeset__scrollwrap')?.isConnected"
        )
        for selector, attribute in (
            (".md-typeset__scrollwrap, pre > code", "tabindex"),
            ("nav.md-code__nav", "role"),
        ):
            page.wait_for_function(
                "([nodes, name]) => [...document.querySelectorAll(nodes)].every(x => x.hasAttribute(name))",
                arg=[selector, attribute],
            )
    accent = page.evaluate("getComputedStyle(document.body).getPropertyValue('--md-accent-fg-color')")
    red, green, blue = (int(accent.strip()[at : at + 2], 16) for at in (1, 3, 5))
    assert 0.2126 * red + 0.7152 * green + 0.0722 * blue > 140
    context.close()


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<a href="b.html#there">', ""),
        ('<a href="https://example.org">', ""),
        ('<a href="c.html">', "c.html links nowhere"),
        ('<a href="b.html#elsewhere">', "b.html has no such section"),
        ('<a href="../index.html">', "outside of the site"),
        ('<script src="https://example.org/a.js"></script>', "another host"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "another host"),
    ],
)
def test_the_check_finds(tmp_path: Path, page: str, problem: str) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "index.html").write_text("")
    (site / "b.html").write_text('<h2 id="there">')
    (site / "a.html").write_text(page)
    assert bool(CHECK["problems"](site)) == bool(problem), CHECK["problems"](site)


def test_links_to_files_outside_of_docs_lead_to_the_repository() -> None:
    rewrite = PAGES["with_links_to_the_repository"]
    text = "[a](../README.md#install) [b](../design) [c](ingest.md) [d](https://example.org/../x)"
    assert rewrite(text, "https://host/r") == (
        "[a](https://host/r/blob/main/README.md#install) [b](https://host/r/tree/main/design) "
        "[c](ingest.md) [d](https://example.org/../x)"
    )
