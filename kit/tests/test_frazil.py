"""Frazil passes the cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import icechunk_kit.cases  # noqa: F401 - registers the cases
import pytest
from icechunk_kit.case import CASES
from icechunk_kit.runner import Adapter, run
from tests.support.patience import patience

KIT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def adapter() -> Iterator[Adapter]:
    with Adapter([sys.executable, str(KIT / "adapters" / "python_api.py"), "frazil"]) as adapter:
        yield adapter


@pytest.mark.sample(60)
@pytest.mark.parametrize("name", CASES)
def test_frazil_passes(adapter: Adapter, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(KIT / "src"))
    (result,) = run([adapter], [CASES[name]], patience(1))
    assert result.outcome == "passed", result.detail
