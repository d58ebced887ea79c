"""Frazil passes the cases for readers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import icechunk_kit.cases  # noqa: F401 - registers the cases
import pytest
from icechunk_kit.case import CASES
from icechunk_kit.runner import Adapter, run

KIT = Path(__file__).parents[1]
READER = [name for name, case in CASES.items() if case.level == "reader"]
DEEP = ("scale.*", "damage.word.*", "damage.truncated.*", "damage.bomb.*", "damage.manifest.repeated")


@pytest.fixture(scope="module")
def adapter() -> Iterator[Adapter]:
    with Adapter([sys.executable, str(KIT / "adapters" / "python_api.py"), "frazil"]) as adapter:
        yield adapter


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.deep] * any(fnmatch(name, pattern) for pattern in DEEP))
        for name in READER
    ],
)
def test_frazil_passes(adapter: Adapter, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(KIT / "src"))
    (result,) = run([adapter], [CASES[name]])
    assert result.outcome == "passed", result.detail
