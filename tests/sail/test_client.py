"""The client of Spark Connect has no JVM: `frazil.spark` needs neither Java nor py4j."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.program_runner import FORKS

PROGRAM = """
import sys
import frazil.spark
from frazil.errors import SessionStateError

for name in frazil.spark.__all__:
    getattr(frazil.spark, name)
assert "py4j" not in sys.modules
try:
    frazil.spark.get_spark()
except SessionStateError as error:
    print(error)
"""


@pytest.mark.skipif(find_spec("pysail") is None, reason="the extra `sail` is not installed: make test-sail")
def test_frazil_spark_needs_no_jvm(tmp_path: Path) -> None:
    assert find_spec("py4j") is None
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = FORKS.run(program, env={name: each for name, each in os.environ.items() if "SPARK" not in name})
    assert (done.returncode, done.stderr) == (0, "")
    assert "SPARK_REMOTE" in done.stdout
