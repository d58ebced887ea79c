"""Results of pipelines print on a screen, and as HTML."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.ingest.netcdf_files import daily_files

import frazil
import frazil.pipeline as ops
from frazil.pipeline.ingest.report import Report as InspectReport

#: Lines of a screen that a result may take, and characters of a line.
LINES, WIDTH = 12, 120
#: Markup in every text that comes from outside.
BAD = "<b>&amp;"


def version() -> ops.Version:
    return ops.Version(frazil.Repository.create(frazil.in_memory_storage()), "ABCDEFGHJKMNPQRSTVWX", BAD)


METRICS = ops.Metrics(3, 1, 2, 10**6, 5, 10**9, 10**8, 12, 10**7, 10**6, 900, 1.25, 3.5, 2.0)


def report(rows: int) -> ops.Report:
    result_rows = (
        ops.Row("Units", f"/{BAD}/{number}", number % 2 == 0, "K", BAD * 100) for number in range(rows)
    )
    return ops.Report("ABC", tuple(result_rows))


def step(number: int = 0) -> ops.Step:
    reads = {"repository": BAD, "branch": "main", "snapshot": "A", "paths": ["/a"], "digest": "0"}
    parameters = {f"p{each}": list(range(1000)) for each in range(50)}
    when = datetime(2026, 1, 2, tzinfo=UTC)
    return ops.Step(f"S{number}", when, BAD * 50, "mean", "id", parameters, (reads,) * 30, ("/b",), {}, {})


def plan(blocks: int) -> ops.Plan:
    some = tuple(ops.Block(f"/{BAD}{n}", (n,), (n + 1,)) for n in range(blocks))
    return ops.Plan(some, (1,) * blocks, (8,) * blocks)


@cache
def files() -> list[str]:
    return daily_files(Path(tempfile.mkdtemp()), 3, names=[f"tas_{number}" for number in range(30)])


@cache
def ingested() -> ops.IngestResult:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    return ops.ingest(files(), repo, engine=ops.Inline())


#: A result of each class, with as much in it as may be.
RESULTS: dict[type, Callable[[], Any]] = {
    ops.JobResult: lambda: ops.JobResult(
        BAD * 50, version(), METRICS, values=tuple(np.zeros(10**6) for _ in range(3))
    ),
    ops.IngestResult: ingested,
    ops.Metrics: lambda: METRICS,
    InspectReport: lambda: ops.inspect_files(files(), engine=ops.Inline()),
    ops.PublishSummary: lambda: ops.PublishSummary(version(), report(100), value=BAD * 500),
    ops.Report: lambda: report(100),
    ops.CopySummary: lambda: ops.CopySummary(10**6, 10**12, 5),
    ops.StagedJob: lambda: ops.StagedJob("1", BAD, "main", "ABC", datetime(2026, 1, 2, tzinfo=UTC), 7),
    ops.Plan: lambda: plan(10_000),
    ops.WriteResult: lambda: ops.WriteResult(12, 10**5, 10**9, 7),
    ops.Step: step,
    ops.Graph: lambda: ops.Graph(tuple(map(step, range(100)))),
    ops.Version: version,
}


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_results_fit_on_a_screen_and_are_escaped_in_html(kind: Any) -> None:
    result: Any = RESULTS[kind]()
    assert type(result) is kind
    text = repr(result)
    lines = text.rstrip("\n").split("\n")
    assert lines[0] == f"<frazil.{kind.shown_as}>"
    assert len(lines) <= LINES
    assert all(len(line) <= WIDTH for line in lines), text
    assert all(": " in line for line in lines[1:])
    html = result._repr_html_()
    assert BAD not in html
    assert "<b>" not in html
    for tag in ("div", "details", "summary", "span", "table", "tr", "td", "th"):
        assert html.count(f"<{tag}>") + html.count(f"<{tag} ") == html.count(f"</{tag}>")
