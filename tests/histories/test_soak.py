"""Many commits in one process leave no handles, threads and files behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.histories.soak import Sample, growing, soak


@pytest.mark.weekly
@pytest.mark.deep
def test_nothing_grows_with_commits(tmp_path: Path) -> None:
    samples = [replace(sample, memory=0) for sample in soak(tmp_path, 200, 25)]
    assert len(samples) == 8
    assert list(growing(samples)) == []


@pytest.mark.parametrize("name", ["memory", "blocks", "handles", "threads", "backups", "repo_size", "files"])
def test_growth_is_reported(name: str) -> None:
    flat = [Sample(at, 2**22, 20_000, 10, 5, 40, 5000, 100, 1.0) for at in range(8)]
    assert list(growing(flat)) == []
    grown = [replace(each, **{name: getattr(each, name) * (4 + at) // 4}) for at, each in enumerate(flat)]
    assert [text.split()[0] for text in growing(grown)] == [name]
