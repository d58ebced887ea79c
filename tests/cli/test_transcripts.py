"""The transcripts of the pages about the command line."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from tests.cli.transcripts import PAGES, replayed

from frazil.cli.main import frazil


def masked(text: str) -> str:
    """A text with times and ids by their order, because each change of a commit changes these.

    The size of a compressed file depends on its ids.
    """
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"<id {numbers.setdefault(match[0][:8], len(numbers))}>"

    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?", "<time>", text)
    text = re.sub(r"\b\d+\.\d s\b", "<seconds>", text)
    text = re.sub(r'("size_bytes": |\d objects \()[\d.]+', r"\1<size>", text)
    return re.sub(r"\b(?:[0-9A-HJKMNP-TV-Z]{20}|[0-9A-HJKMNP-TV-Z]{8})\b", number, text)


@pytest.mark.deep
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_transcripts(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m tests.cli.transcripts` writes the pages anew."""
    pytest.importorskip("xarray")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    text = page.read_text()
    assert "$ frazil log" in text
    assert masked(replayed(text)) == masked(text)


def test_each_command_has_a_transcript() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    names = set(frazil.list_commands(click.Context(frazil)))
    names.remove("completion")  # it prints a program for the shell
    assert [each for each in names if not re.search(rf"^\$ frazil {each}\b", text, re.MULTILINE)] == []
