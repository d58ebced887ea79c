"""The example of a declarative pipeline runs with Spark's own command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.patience import patience

PROGRAM = Path(__file__).parents[2] / "examples" / "declarative" / "run.py"


@pytest.mark.connect
@pytest.mark.timeout(600)
def test_a_declarative_pipeline_writes_rows_to_arrays(tmp_path: Path) -> None:
    # SPARK_TESTING: any free port instead of 15002
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path],
        capture_output=True,
        text=True,
        timeout=patience(600),
        env=os.environ | {"SPARK_TESTING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "times: [6, 7]\nvalues: [[271.5, 268.0], [nan, 268.5]]\ncommits: 1\n" in done.stdout
