"""The transcripts of `docs/command-line.md`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.transcripts import PAGE, replayed


def masked(text: str) -> str:
    """A text with times and ids by their order, because each change of a commit changes these."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"<id {numbers.setdefault(match[0][:8], len(numbers))}>"

    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?", "<time>", text)
    return re.sub(r"\b(?:[0-9A-HJKMNP-TV-Z]{20}|[0-9A-HJKMNP-TV-Z]{8})\b", number, text)


@pytest.mark.deep
def test_transcripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m tests.cli.transcripts` writes the page anew."""
    pytest.importorskip("xarray")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    text = PAGE.read_text()
    assert "$ frazil log" in text
    assert masked(replayed(text)) == masked(text)
