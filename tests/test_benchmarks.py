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
    tables = json.loads(output.with_suffix(".json").read_text())
    assert len(tables) == len(workloads)
    assert all(table["medians"] for table in tables.values())
    # A ratio, wherever both implementations have a measurement.
    compared = [table for table in tables.values() if any(table["ratios"].values())]
    assert len(compared) == sum(
        any(run.installed(first) and run.installed(second) for first, second in each.pairs())
        for each in workloads.values()
    )
    assert len(compared) > 25
    lost = [table["medians"].get("acknowledged and lost, commits") for table in tables.values()]
    assert {number for each in lost if each for number in each.values()} == {0}


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


REPORT: dict[str, Any] = {
    "Few": {
        "function": "io.local",
        "sizes": {"chunks": 10, "chunk_kib": 16, "codec": "zstd"},
        "rounds": 3,
        "medians": {
            "read, s": {"frazil": 0.1, "icechunk": 1.0},
            "write, s": {"frazil": 2.0, "icechunk": 1000.0},
        },
        "ratios": {
            "read, s": {"ratio to icechunk": [0.1, 0.08, 0.12]},
            "write, s": {"ratio to icechunk": [0.002]},
        },
    }
}


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(REPORT))
    return path


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_a_report_is_read_as_it_was_written(benchmark_module: Any, report: Path) -> None:
    few = benchmark_module("results").read_tables(report)["Few"]
    assert (few.function, dict(few.sizes)) == ("io.local", {"chunks": 10, "chunk_kib": 16})
    assert few.variant == "zstd codec"
    assert few.medians == REPORT["Few"]["medians"]
    read, write = (few.ratios[name]["ratio to icechunk"] for name in ("read, s", "write, s"))
    assert (read.low, read.high) == (0.08, 0.12)
    assert write.low == pytest.approx(0.0018)  # of one round


def test_a_table_has_medians_and_the_spread_of_ratios(benchmark_module: Any) -> None:
    report, workload = benchmark_module("report"), benchmark_module("workload")
    few = workload.Workload("Few", "io.local", {"chunks": 10}, {})
    rounds = [{"frazil": {"read, s": each}, "icechunk": {"read, s": 2.0}} for each in (1.0, 4.0, 2.0)]
    assert report.table(few, rounds) == {
        "function": "io.local",
        "sizes": {"chunks": 10},
        "rounds": 3,
        "medians": {"read, s": {"frazil": 2.0, "icechunk": 2.0}},
        "ratios": {"read, s": {"ratio to icechunk": [1.0, 0.5, 2.0]}},
    }


def test_the_page_agrees_with_the_tables(benchmark_module: Any) -> None:
    targets, page = benchmark_module("targets"), (BENCHMARKS / "RESULTS.md").read_text()
    assert targets.with_targets(page, targets.read_tables(BENCHMARKS / "results.json")) == page


@pytest.mark.parametrize(
    ("seconds", "mark"),
    [([0.1, 0.11], ""), ([0.13, 0.2], "WORSE"), ([0.11, 0.2], ""), ([0.05, 0.06], "better")],
)
def test_a_trend_is_worse_if_all_rounds_are(
    benchmark_module: Any, report: Path, seconds: Any, mark: Any
) -> None:
    results, workload = benchmark_module("results"), benchmark_module("workload")
    few = workload.Workload("Few", "io.local", {}, {})
    rounds = [{"frazil": {"read, s": each}, "icechunk": {"read, s": 1.0}} for each in seconds]
    [line] = results.trends(few, rounds, results.read_tables(report))
    assert "0.10 ->" in line
    assert [word for word in ("WORSE", "better") if word in line] == [mark] * bool(mark)


def test_the_daily_workloads_exist(benchmark_module: Any) -> None:
    workloads = benchmark_module("workloads")
    assert {each.title for each in workloads.WORKLOADS} >= workloads.DAILY
