"""The benchmarks run, in sizes that say nothing about speed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.weekly
@pytest.mark.servers
@pytest.mark.interop
@pytest.mark.spark
def test_every_workload_runs_and_the_tables_are_whole(tmp_path: Path, benchmark_module: Any) -> None:
    run = benchmark_module("run")
    # A quick run omits workloads that differ only in their sizes.
    workloads = {(each.run, json.dumps(each.quick)): each for each in run.WORKLOADS if not each.large}
    output = tmp_path / "results.md"
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = output.read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    tables = text.split("\n### ")[1:]
    assert len(tables) == len(workloads)
    assert all(table.count("\n|") >= 3 for table in tables)
    # A ratio, in bold, wherever both implementations have a measurement.
    compared = [table for table in tables if "smallest and largest" in table]
    assert len(compared) == sum(
        any(run.installed(first) and run.installed(second) for first, second in each.pairs())
        for each in workloads.values()
    )
    assert len(compared) > 25
    assert all("**" in table for table in compared)
    for table in tables:
        assert len({line.count("|") for line in table.splitlines() if line.startswith("|")}) == 1
    lost = [row[1].strip() for row in rows if row[0].strip() == "acknowledged and lost, commits"]
    assert lost
    assert set(lost) == {"0"}


@pytest.mark.deep
def test_a_measurement_that_fails_fails_the_run() -> None:
    command = [
        sys.executable,
        str(BENCHMARKS / "measure.py"),
        '[["no_such_package", "commits.alone", {"commits": 1}]]',
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "no_such_package" in done.stderr


REPORT = """# Frazil beside the reference

### Few

|  | frazil | icechunk | ratio to icechunk | smallest and largest | expected |
| --- | ---: | ---: | ---: | ---: | ---: |
| read, s | 0.1 | 1 | **0.10** | 0.08 – 0.12 | at most 0.4 |
| write, s | 2 | 1,000 | **0.00** |  |  |

io.local: 10 chunks, 16 chunk_kib, zstd codec. Rounds: 3.

### Many

|  | frazil | icechunk | ratio to icechunk | smallest and largest |
| --- | ---: | ---: | ---: | ---: |
| read, s | 10 | 10 | **1.00** |  |

io.local: 1000 chunks, 16 chunk_kib, zstd codec. Rounds: 1.
"""


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_a_report_is_read_as_it_was_written(benchmark_module: Any) -> None:
    tables = benchmark_module("results").read_tables(REPORT)
    few = tables["Few"]
    assert (few.function, dict(few.sizes)) == ("io.local", {"chunks": 10, "chunk_kib": 16})
    assert few.variant == "zstd codec"
    assert few.medians == {
        "read, s": {"frazil": 0.1, "icechunk": 1.0},
        "write, s": {"frazil": 2.0, "icechunk": 1000.0},
    }
    assert (few.ratios["read, s"].low, few.ratios["read, s"].high) == (0.08, 0.12)
    assert tables["Many"].ratios["read, s"].low == 0.9


@pytest.mark.parametrize(
    ("seconds", "mark"),
    [([0.1, 0.11], ""), ([0.13, 0.2], "WORSE"), ([0.11, 0.2], ""), ([0.05, 0.06], "better")],
)
def test_a_trend_is_worse_if_all_rounds_are(benchmark_module: Any, seconds: Any, mark: Any) -> None:
    results, workload = benchmark_module("results"), benchmark_module("workload")
    few = workload.Workload("Few", "io.local", {}, {})
    rounds = [{"frazil": {"read, s": each}, "icechunk": {"read, s": 1.0}} for each in seconds]
    [line] = results.trends(few, rounds, results.read_tables(REPORT))
    assert "0.10 ->" in line
    assert [word for word in ("WORSE", "better") if word in line] == [mark] * bool(mark)


def test_the_daily_workloads_exist(benchmark_module: Any) -> None:
    workloads = benchmark_module("workloads")
    assert {each.title for each in workloads.WORKLOADS} >= workloads.DAILY
