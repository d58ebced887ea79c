"""After any changes by two libraries, and after killed refreshes, results are those from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.derivation.machine import run, steps, weekdays_of_pairs

import frazil
from frazil.pipeline import Engine, Target, derived, refresh


@pytest.mark.deep
@pytest.mark.sample(4, 6)
@pytest.mark.parametrize("seed", range(24))
def test_results_are_those_from_nothing(seed: int) -> None:
    counts = run(range(seed, seed + 1), 25)
    assert counts["refreshes"]
    assert counts["compared results"] >= 5


@pytest.mark.deep
def test_results_of_every_engine_are_those_from_nothing(every_engine: Engine) -> None:
    counts = run(range(100, 101), 12, (every_engine,))
    assert counts["compared results"] >= 10


def test_a_plan_knows_labels_that_it_would_compute(tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    encoding = {"t": {"chunks": (2, 8, 12)}, "time": {"chunks": (200,), "units": "days since 2019-01-01"}}
    how: dict[str, Any] = {"group": "data", "zarr_format": 3, "consolidated": False}
    with repo.transaction("main", message="data") as store:
        steps(0, 200, 0).to_zarr(store, encoding=encoding, **how)
    weekdays_of_pairs(repo, "data/t", Target(repo, group="out"), "inline")
    with repo.transaction("main", message="append") as store:
        steps(200, 202, 1).to_zarr(store, append_dim="time", **how)
    files = sorted(tmp_path.rglob("*"))
    rows = derived(repo).arrays
    assert {str(each.state) for each in rows} == {"behind"}
    assert (rows[0].operation, rows[0].chunks, rows[0].of_chunks, rows[0].reason) == ("coarsen", 1, 51, "")
    assert all(each.chunks for each in rows)
    assert sorted(tmp_path.rglob("*")) == files
    refresh(repo, mode="strict", engine="inline").apply()
    assert derived(repo).is_current
