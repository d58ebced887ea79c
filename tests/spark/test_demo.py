"""The demo runs over what an earlier run left, finds everything equal, and would notice if it were not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.program_runner import ONE_PROCESS

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.deep]


def test_everything_is_equal(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "left-over").touch()  # of the run before
    run = ONE_PROCESS.run(DEMO, str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    text = run.stdout
    assert text.splitlines()[-1].startswith("OK: everything is equal, bit by bit.")
    assert text.count(": 0 differences") == 2
    assert "writing 100%  25/25 tasks  534 rows  49 chunks  5.2 MB" in text
    assert "/e1/air_temperature: 2 chunks, (15, 0, 0) (16, 0, 0)" in text
    assert "2050                282.74 K            282.34 K   -0.40" in text
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "repository" / "left-over").exists()
