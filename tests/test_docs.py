"""The pages of docs/: their Python runs, from top to bottom of each page, and their links lead somewhere."""

from __future__ import annotations

import builtins
import importlib
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import xarray as xr
from tests.support.program_runner import FORKS, ONE_PROCESS

import frazil

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
PAGES_AND_FILES = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
#: Pages whose repositories xarray opens as a tree: data, and results beside them.
TREES = {"ingest", "transform", "reduce", "publish"}


def code_of(page: Path) -> str:
    return "\n".join(BLOCK.findall(page.read_text()))


def uses_spark(page: Path) -> bool:
    return "get_spark(" in code_of(page)


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    if "pysail" in code_of(page):
        return [pytest.mark.skipif(find_spec("pysail") is None, reason="the extra `sail`: make test-sail")]
    if uses_spark(page):
        return [pytest.mark.spark, pytest.mark.deep]
    return [] if page.stem in FIRST_PAGES else [pytest.mark.deep]


#: Pages of the first tier: what a new user reads first.
FIRST_PAGES = {"README", "quickstart", "storage", "version-control", "conflicts"}
README = ROOT / "README.md"
WITH_CODE = [
    pytest.param(page, id=page.stem, marks=marks_of(page)) for page in [README, *PAGES] if code_of(page)
]


@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_runs(page: Path, tmp_path: Path) -> None:
    code = code_of(page)
    program = tmp_path / "program.py"
    program.write_text(code)
    programs = ONE_PROCESS if uses_spark(page) else FORKS
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ICECHUNK")}
    # A cluster on a busy machine logs delays, and one that stops its open connections
    done = programs.run(program, cwd=tmp_path, env=environment | {"DASK_LOGGING__DISTRIBUTED": "error"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    # What a comment says that a `print` prints is printed.
    for line in code.splitlines():
        printed = re.fullmatch(r"\s*print\(.*\)  # (.*)", line)
        if printed and "..." not in printed[1]:
            assert printed[1] in done.stdout.splitlines(), f"{line}\nfound:\n{done.stdout}"
    if page.stem in TREES:
        roots = [file.parent for file in tmp_path.rglob("repo") if file.with_name("snapshots").is_dir()]
        assert roots
        for root in roots:
            assert_opens_as_a_tree(root)


def assert_opens_as_a_tree(root: Path) -> None:
    """Every branch: a group that is not aligned with those above it is refused."""
    repo = frazil.Repository.open(frazil.local_filesystem_storage(root))
    for branch in sorted(repo.list_branches()):
        store = repo.readonly_session(branch).store
        xr.open_datatree(store, engine="zarr", consolidated=False).close()  # type: ignore[arg-type]


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES_AND_FILES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        name, _, section = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(link)
        elif section:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            if section not in map(anchor, titles):
                broken.append(link)
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    assert [page.name for page in PAGES if page.name != "index.md" and f"({page.name})" not in index] == []


def test_every_how_to_has_a_page() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    how_to = (ROOT / "examples" / "how_to").glob("*.py")
    assert [path.name for path in how_to if f"(../examples/how_to/{path.name})" not in pages] == []


def test_names_that_pages_mention_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"`(frazil(?:\.\w+)+)`", page.read_text()):
            module, _, attribute = name.rpartition(".")
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                assert hasattr(importlib.import_module(module), attribute), f"{page.name}: {name}"
        for name in re.findall(r"`([A-Z]\w+(?:Error|Config|Storage|Session))\b", page.read_text()):
            assert hasattr(frazil, name) or hasattr(builtins, name), f"{page.name}: {name}"


# Design pages: their numbers, and the files that they and CONTRIBUTING.md name

DESIGN = sorted((ROOT / "design").glob("[0-9]*.md"))
NAMED = [*DESIGN, ROOT / "design" / "glossary.md", ROOT / "CONTRIBUTING.md"]
#: `room/module.py` in backquotes, below src/frazil, tests or the root.
MODULE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.py)")


@pytest.mark.parametrize("page", NAMED, ids=lambda page: page.stem)
def test_the_named_modules_exist(page: Path) -> None:
    named = {name for name in MODULE.findall(page.read_text()) if "NAME" not in name}
    folders = (ROOT / "src" / "frazil", ROOT, ROOT / "tests")
    assert [name for name in sorted(named) if not any((folder / name).exists() for folder in folders)] == []


def test_numbers_are_used_once() -> None:
    numbers = [page.stem[:3] for page in DESIGN]
    assert len(numbers) == len(set(numbers))
