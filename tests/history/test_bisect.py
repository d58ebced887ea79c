"""Bisection: the first bad version, the number of checks, and versions that are left out."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.history.versions import BisectReport


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    """Versions ``0`` to ``9`` write ``a`` if they are even, else ``b``; ``m`` moves ``c`` before the last."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="create") as store:
        for name in "abc":
            zarr.create_array(store, name=name, shape=(2,), dtype="i4", dimension_names=("x",))[:] = -1
    repo.create_tag("good", "main")
    for number in range(10):
        if number == 9:
            session = repo.rearrange_session("main")
            session.move("/c", "/d")
            session.commit("m")
        with repo.transaction("main", message=str(number)) as store:
            zarr.open_array(store, path="b" if number % 2 else "a")[0] = number
    return repo


def below(limit: int, path: str = "a") -> Any:
    def check(session: frazil.Session) -> bool:
        return bool(np.asarray(zarr.open_array(session.store, path=path, mode="r")[0]) < limit)

    return check


@pytest.mark.parametrize("limit", range(9))
def test_the_first_bad_version(repo: frazil.Repository, limit: int) -> None:
    report = repo.history.bisect(below(limit), good="good")
    assert report.first_bad.message == str(limit + limit % 2)
    assert report.last_good.id == report.first_bad.parent_id
    assert (report.versions, report.skipped) == (11, 0)
    assert len(report.checks) <= ceil(log2(11))


def test_versions_that_cannot_differ_are_left_out(repo: frazil.Repository) -> None:
    report = repo.history.bisect(below(6), good="good", path="a")
    assert report.first_bad.message == "6"
    assert report.last_good.message == "5"
    assert report.skipped == 5  # all that write only `b`; a move can bring another array to the path
    assert len(report.checks) <= ceil(log2(6))


def test_a_path_of_a_group_and_several_paths(repo: frazil.Repository) -> None:
    assert repo.history.bisect(below(6), good="good", path="/").skipped == 0
    report = repo.history.bisect(below(7, "b"), good="good", path=["b", "c"])
    assert (report.first_bad.message, report.skipped) == ("7", 5)


def test_a_report_counts_by_its_verdict(repo: frazil.Repository) -> None:
    class Verdict:
        def __init__(self, ok: bool) -> None:
            self.ok = ok

    check = below(4)
    report = repo.history.bisect(lambda session: Verdict(check(session)), good="good")
    assert report.first_bad.message == "4"
    assert all(isinstance(passed, bool) for _, passed in report.checks)
    assert "first_bad" in repr(report)


def test_rules_of_the_pipeline(repo: frazil.Repository) -> None:
    pytest.importorskip("pyarrow")  # of the extra `pipeline`
    pipeline = pytest.importorskip("frazil.pipeline")
    report: BisectReport = repo.history.bisect(
        pipeline.RuleCheck(repo, [pipeline.Range("/a", -1, 5)]), good="good"
    )
    assert (report.first_bad.message, report.skipped) == ("6", 5)


def test_expired_versions_and_lost_logs_are_not_left_out(repo: frazil.Repository) -> None:
    copy = frazil.Repository.open(repo.storage)
    bad = next(each for each in copy.ancestry(branch="main") if each.message == "5")
    log = f"transactions/{bad.id}"
    data = repo.storage.get(log)
    repo.storage.delete([log])
    try:
        assert copy.history.bisect(below(6), good="good", path="a").skipped == 4
    finally:
        repo.storage.put(log, data)


def test_wrong_arguments(repo: frazil.Repository) -> None:
    for good, bad in (("main", "good"), ("main", "main")):
        with pytest.raises(frazil.InvalidInputError, match="before the bad version"):
            repo.history.bisect(below(1), good=good, bad=bad)
    with pytest.raises(frazil.NotFoundError):
        repo.history.bisect(below(1), good="nothing")
    with pytest.raises(frazil.InvalidInputError, match="no commit between"):
        repo.history.bisect(below(1), good="good", bad=list(repo.ancestry(branch="main"))[-4].id, path="c")
    with pytest.raises(TypeError, match="check"):
        repo.history.bisect(["a"], good="good")  # type: ignore[arg-type]  # what is tested
