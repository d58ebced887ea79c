"""The pictures of docs/: pages use all of them and say what they show. A script draws them again."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "site" / "pictures.py"))
#: The pages whose pictures are drawings.
DRAWN = ("how-a-commit-works", "format-drawn", "sizes", "spark-what-runs-where")


def pictures_of(page: Path) -> list[tuple[str, str]]:
    """The words and the name of each picture. The picture of a dark page has the words of its light one."""
    text = page.read_text()
    pictures = re.findall(r"!\[([^\]]*)\]\((?:[./]*docs/)?pictures/([^)#]+)(?:#[\w-]+)?\)", text)
    for element in re.findall(r"<picture>.*?</picture>", text, re.DOTALL):
        words = " ".join(re.findall(r'alt="([^"]*)"', element))
        names = re.findall(r'(?:src|srcset)="(?:docs/)?pictures/([^"]+)"', element)
        pictures += [(words, name) for name in names]
    return pictures


def test_pages_use_all_pictures_and_describe_them() -> None:
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md"), ROOT / "README.md"]
    pictures = [each for page in pages for each in pictures_of(page)]
    assert {name for _, name in pictures} == {path.name for path in PICTURES.iterdir()}
    assert [name for words, name in pictures if len(words.split()) < 4] == []


@pytest.mark.parametrize("page", DRAWN)
def test_drawings_have_a_title_and_colours_for_a_dark_page(page: str) -> None:
    names = [name for _, name in pictures_of(ROOT / "docs" / f"{page}.md")]
    assert names
    for name in names:
        text = (PICTURES / name).read_text()
        drawing = ElementTree.fromstring(text)
        x, y, width, height = map(float, drawing.attrib["viewBox"].split())
        assert drawing.findtext("{*}title"), name
        assert "prefers-color-scheme: dark" in text, name
        for each in drawing.findall(".//{*}text"):  # inside of the drawing
            assert x <= float(each.attrib["x"]) <= width, (name, each.text)
            assert y <= float(each.attrib["y"]) <= height, (name, each.text)


@pytest.mark.weekly
@pytest.mark.browser
@pytest.mark.timeout(600)
def test_the_script_draws_the_pictures_of_the_pages(tmp_path: Path) -> None:
    needed = ("iris_sample_data", "matplotlib", "cfgrib", "rasterio", "duckdb", "netCDF4", "playwright")
    for name in needed:
        pytest.importorskip(name, reason="needs the group `test`")
    drawn = {path.name for path in SCRIPT["draw"](tmp_path)}
    used = {name for page in SCRIPT["PAGES"] for _, name in pictures_of(ROOT / "docs" / f"{page}.md")}
    assert drawn in (used, {name for name in used if not name.endswith(".webp")})  # without a browser
    for name in drawn:
        assert name in used
        assert (PICTURES / name).stat().st_size < SCRIPT["LARGEST"]
        with Image.open(tmp_path / name) as new, Image.open(PICTURES / name) as old:
            assert new.size == old.size, name
