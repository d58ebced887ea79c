"""Design pages: their numbers, and the files that they and CONTRIBUTING.md name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "design").glob("[0-9]*.md"))
NAMED = [*PAGES, ROOT / "design" / "glossary.md", ROOT / "CONTRIBUTING.md"]
#: `room/module.py` in backquotes, below src/frazil, tests or the root.
MODULE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.py)")


@pytest.mark.parametrize("page", NAMED, ids=lambda page: page.stem)
def test_the_named_modules_exist(page: Path) -> None:
    named = {name for name in MODULE.findall(page.read_text()) if "NAME" not in name}
    folders = (ROOT / "src" / "frazil", ROOT, ROOT / "tests")
    assert [name for name in sorted(named) if not any((folder / name).exists() for folder in folders)] == []


def test_numbers_are_used_once() -> None:
    numbers = [page.stem[:3] for page in PAGES]
    assert len(numbers) == len(set(numbers))
