"""The benchmarks run, in sizes that say nothing about speed."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.weekly
@pytest.mark.servers
@pytest.mark.interop
@pytest.mark.spark
def test_every_workload_runs_and_the_tables_are_whole(tmp_path):
    output = tmp_path / "results.md"
    command = [sys.executable, BENCHMARKS / "run.py", "--quick", "--output", output]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = output.read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    tables = text.split("\n### ")[1:]
    assert len(tables) == 34
    assert all(table.count("\n|") >= 3 for table in tables)
    # A ratio, in bold, wherever both implementations have a measurement.
    compared = [table for table in tables if "smallest and largest" in table]
    assert len(compared) == 27
    assert all("**" in table for table in compared)
    for table in tables:
        assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) == 1
    [lost] = [row for row in rows if row[0].strip() == "acknowledged and lost, commits"]
    assert lost[1].strip() == "0"


@pytest.mark.deep
def test_a_measurement_that_fails_fails_the_run():
    command = [
        sys.executable,
        BENCHMARKS / "measure.py",
        '[["no_such_package", "commits.alone", {"commits": 1}]]',
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "no_such_package" in done.stderr
