"""The doctor: each check finds its case, and nothing in a healthy repository."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import zarr

import frazil
from frazil.host import time_us
from frazil.maintenance import doctor


@pytest.fixture
def repo() -> frazil.Repository:
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    with repo.transaction("main", message="data") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(1,), dtype="i4")[:] = 1
        zarr.create_array(store, name="u", shape=(4,), chunks=(1,), dtype="i4")[:] = 1
    return repo


def test_a_healthy_repository_has_no_findings(repo: frazil.Repository) -> None:
    report = repo.upkeep.doctor()
    assert report.ok
    assert report.checks == tuple(doctor.CHECKS)
    assert str(report) == "no findings in 16 checks\n"
    assert "checks" in repr(report)


@pytest.mark.parametrize(
    ("limit", "value", "check", "detail", "command"),
    [
        ("_MANY_FILES", 3, "small-chunk-files", "8 of 8 chunk files are smaller", "repo.upkeep.compact("),
        ("_BACKUP_BYTES", 1, "backups", "backups of `repo`", "repo.garbage_collect("),
        ("_MANY_REFERENCES", 3, "unsplit-manifest", "2 manifests with more than 3", "rewrite_manifests("),
        ("_MANY_FILES", 2, "over-split", "2 manifests with 4 references on average", "rewrite_manifests("),
    ],
)
def test_a_limit_that_is_exceeded(
    limit: str,
    value: int,
    check: str,
    detail: str,
    command: str,
    repo: frazil.Repository,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repo.create_branch("same", "main")  # branches on one snapshot are one finding
    monkeypatch.setattr(doctor, limit, value)
    report = repo.upkeep.doctor()
    (finding,) = (each for each in report.findings if each.check == check)
    assert detail in finding.detail
    assert command in finding.command
    assert f"    {finding.command}\n" in str(report)
    eval(finding.command, {"repo": repo, "datetime": datetime})  # the command runs


def test_a_clock_that_was_wrong(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "now_us", lambda: time_us() - 3_600_000_000)  # of this machine
    (finding,) = repo.upkeep.doctor().findings
    assert (finding.check, "in the future" in finding.detail) == ("wrong-clock", True)
    assert finding.remedy.for_shell("ice").startswith("`frazil ops ice`")


def test_a_stale_lease_and_its_command(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    fork = repo.writable_session("main").fork()
    assert repo.upkeep.doctor().ok
    monkeypatch.setattr(doctor, "_STALE_US", -10_000_000)
    (finding,) = repo.upkeep.doctor().findings
    assert (finding.check, finding.detail.startswith("fork since")) == ("stale-lease", True)
    eval(finding.command, {"repo": repo})
    assert repo.upkeep.doctor().ok
    assert fork.snapshot_id


def test_a_lease_that_cannot_be_read(repo: frazil.Repository) -> None:
    repo.storage.put("leases/A", b"{}")
    (finding,) = repo.upkeep.doctor().findings
    assert (finding.check, finding.subject) == ("unreadable-lease", "lease A")
    eval(finding.command, {"repo": repo})
    assert repo.upkeep.doctor().ok


@pytest.mark.parametrize(
    ("key", "limit", "value", "check", "subject"),
    [
        ("collections/A", "LONGEST", timedelta(seconds=-10), "killed-collection", "collections/A"),
        ("staging/abc/1", "_STAGED_US", -10_000_000, "staged-job", "`staging/abc`"),
    ],
)
def test_files_of_what_has_not_ended(
    repo: frazil.Repository,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    limit: str,
    value: Any,
    check: str,
    subject: str,
) -> None:
    repo.storage.put(key, b"{}")
    assert repo.upkeep.doctor().ok
    monkeypatch.setattr(doctor, limit, value)
    (finding,) = repo.upkeep.doctor().findings
    assert (finding.check, finding.subject) == (check, subject)


def test_virtual_chunks_without_a_container(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    spec = frazil.VirtualChunkSpec([0], "s3://nowhere/data/x.nc", 0, 4)
    session.store.set_virtual_refs("t", [spec], validate_containers=False)
    session.commit("virtual")
    (finding,) = repo.upkeep.doctor().findings
    assert (finding.check, finding.subject) == ("missing-container", "branch `main`")
    assert "`s3://nowhere/data/`" in finding.detail


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("folder", ["manifests", "snapshots", "transactions"])
def test_files_of_a_tip_that_cannot_be_read(repo: frazil.Repository, folder: str, damaged: bool) -> None:
    before = {each.key for each in repo.storage.list(folder)}
    with repo.transaction("main", message="again") as store:
        zarr.open_array(store, path="t")[:] = 2
    (key,) = {each.key for each in repo.storage.list(folder)} - before
    repo.create_branch("dev", "main")
    session = repo.rearrange_session("dev")
    session.move("/t", "/moved")
    session.commit("move")
    repo.storage.delete([key])
    if damaged:
        repo.storage.put(key, b"damage")
    findings = frazil.Repository.open(repo.storage).upkeep.doctor().findings
    assert {each.check for each in findings} == {"unreadable-file"}
    assert {each.remedy.for_shell("ice") for each in findings} == {"frazil repair ice"}
    details = {each.subject: each.detail for each in findings}
    assert all(key in each for each in details.values())
    if folder == "manifests":  # both branches have it
        assert details["branch `main`"].endswith("It has references of `/t`")
        assert details.pop("branch `dev`").endswith("It has references of `/moved`")
    assert list(details) == ["branch `main`"]


def other_writer(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> None:
    """Do some work as another implementation does, which does not know protections."""
    with monkeypatch.context() as patch:
        patch.setattr("frazil.repository.catalog.context.require_allowed", lambda *_: None)
        work()


def test_a_protection_that_another_writer_broke(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = list(repo.ancestry(branch="main"))[1].id
    repo.create_branch("dev", "main")
    repo.protect_branch("main")
    repo.protect_branch("d*")
    with repo.transaction("main", message="forward") as store:
        zarr.create_group(store, path="g")
    repo.reset_branch("dev", "main")
    assert repo.upkeep.doctor().ok
    other_writer(repo, monkeypatch, lambda: repo.reset_branch("main", first))
    other_writer(repo, monkeypatch, lambda: repo.delete_branch("dev"))
    findings = {each.subject: each.detail for each in repo.upkeep.doctor().findings}
    assert findings["branch `main`"].startswith("it lost commits")
    assert findings["branch `dev`"].startswith("it was deleted")
    repo.history.undo(branch="dev").apply()
    other_writer(repo, monkeypatch, lambda: repo.history.undo(branch="main").apply())
    assert repo.upkeep.doctor().ok


def test_a_tip_without_an_audit(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.protect_branch("main", rules=[{"rule": "Exists", "path": "/t"}])
    assert repo.upkeep.doctor().ok

    def work() -> None:
        with repo.transaction("main", message="not audited") as store:
            zarr.create_group(store, path="g")

    other_writer(repo, monkeypatch, work)
    (finding,) = repo.upkeep.doctor().findings
    assert "no audit" in finding.detail


def test_a_long_history_tells_what_each_commit_costs(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_LONG_HISTORY", 1)
    monkeypatch.setattr(doctor, "_MIB", 1024)
    (finding,) = repo.upkeep.doctor().findings
    assert (finding.check, finding.subject) == ("long-history", "repo")
    assert finding.detail.startswith("2 versions have 1 MiB in `repo`, which each commit writes whole")
    assert "`Repository.upkeep.retain`" in finding.command
