"""A verification sees the damage that its documentation promises, never what is whole, and never raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.fixtures import fixture_folders
from tests.repository.version_1 import copy_of

import frazil
from frazil.errors import ConflictError, InvalidInputError
from frazil.format.ids import id_to_text, ids_to_text
from frazil.format.transaction_log import decode_transaction_log, encode_transaction_log
from frazil.maintenance.verification import plan
from frazil.maintenance.verification.repo_state import state_of
from frazil.storage.memory import MemoryStorage

LATER = datetime.now(UTC) + timedelta(days=1)


def config(**changes: Any) -> frazil.RepositoryConfig:
    return frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        packing=frazil.PackingConfig(enabled=False),
        num_updates_per_repo_info_file=4,
        **changes,
    )


def small(spec_version: int = 2, **changes: Any) -> frazil.Repository:
    """Four commits, of two arrays with different chunks, and a tag for each."""
    if changes:
        return frazil.Repository.open(_small(spec_version, **changes))
    return frazil.Repository.open(copy_of(_template(spec_version)))


@cache
def _template(spec_version: int) -> MemoryStorage:
    return _small(spec_version)


def _small(spec_version: int, **changes: Any) -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, config(**changes), spec_version=spec_version)
    repo.save_config()
    for value in range(4):
        with repo.transaction("main", message=f"{value}") as store:
            for name in "ab":
                if not value:
                    zarr.create_array(store, name=name, shape=(4,), chunks=(2,), dtype="i8", compressors=None)
                zarr.open_array(store, path=name)[:] = np.arange(4) + 10 * value + 100 * (name == "b")
        repo.create_tag(f"v{value}", repo.lookup_branch("main"))
    return storage


def keys(storage: Any, folder: str) -> list[str]:
    return sorted(each.key for each in storage.list(folder))


def test_damage_of_repo_is_a_finding_that_names_a_backup() -> None:
    repo = small()
    backups = keys(repo.storage, "overwritten")
    repo.storage.put("repo", b"")
    (finding,) = repo.upkeep.verify().findings
    assert (finding.key, backups[0] in finding.detail) == ("repo", True)
    for key in backups:
        repo.storage.put(key, b"")
    assert "no backup can be read" in repo.upkeep.verify().findings[0].detail


def test_a_tip_of_spec_version_1_that_cannot_be_read_hides_what_is_before() -> None:
    repo = small(1)
    repo.delete_tag("v3")
    tip = f"snapshots/{repo.lookup_branch('main')}"
    repo.storage.put(tip, b"")
    assert {each.key for each in repo.upkeep.verify("checksum").problems} == {tip}


# Logs against snapshots


def changed_log(repo: frazil.Repository, change: Callable[[Any], Any]) -> str:
    """The tip's log with other content."""
    id_ = repo.lookup_branch("main")
    key = f"transactions/{id_}"
    log = decode_transaction_log(repo.storage.get(key), key)
    repo.storage.put(key, encode_transaction_log(change(log)))
    return key


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("name", ["new_arrays", "deleted_arrays", "updated_arrays", "new_groups"])
def test_logs_that_say_less_or_more_than_the_snapshots(name: str, count: int) -> None:
    repo = small()
    with repo.transaction("main", message="everything") as store:
        zarr.create_array(store, name="new", shape=(1,), dtype="i8")
        zarr.create_group(store, path="group")
        del zarr.open_group(store)["b"]
        zarr.open_array(store, path="a").attrs["units"] = "m"
    assert repo.upkeep.verify().ok
    others = np.arange(8 * count, dtype=np.uint8).reshape(count, 8)
    key = changed_log(repo, lambda log: replace(log, **{name: others}))
    (finding,) = repo.upkeep.verify().problems
    assert (finding.check, finding.key) == ("log-nodes", key)
    assert name.replace("_", " ") in finding.detail


def test_logs_that_create_and_delete_what_is_in_a_snapshot() -> None:
    repo = small()
    with repo.transaction("main", message="one more") as store:
        zarr.create_array(store, name="c", shape=(1,), dtype="i8")
    key = changed_log(repo, lambda log: replace(log, deleted_arrays=log.new_arrays))
    assert [(each.check, each.key) for each in repo.upkeep.verify().problems] == [("log-nodes", key)]


def test_chunks_of_arrays_that_are_in_no_snapshot() -> None:
    repo = small()
    strange = {bytes(range(8)): np.zeros((1, 1), np.uint32)}
    changed_log(repo, lambda log: replace(log, updated_chunks=strange))
    findings = {each.check: each for each in repo.upkeep.verify().problems}
    assert set(findings) == {"log-nodes", "log-chunks"}  # the log has lost the true chunks, too
    assert "updated chunks" in findings["log-nodes"].detail


def test_an_ops_log_that_always_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    repo = small()
    states = state_of

    def moved(context: Any) -> Any:
        state = states(context)
        assert state.info is not None
        number = next(numbers)
        return replace(state, info=replace(state.info, repo_before_updates=f"repo.{number}.A"))

    numbers = count()
    monkeypatch.setattr(plan, "state_of", moved)
    with pytest.raises(ConflictError, match=r"^the ops log changed its backups") as caught:
        repo.upkeep.verify()
    assert caught.value.kind == "repo-info-updated"


# What is whole


def amended(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 99
    session.amend("amended")


def moved(repo: frazil.Repository) -> None:
    session = repo.rearrange_session("main")
    session.move("/a", "/moved")
    session.commit("moved")


def detached(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 99
    session.flush("detached")


def expired(repo: frazil.Repository) -> None:
    repo.expire_snapshots(LATER, delete_expired_tags=True)


def collected(repo: frazil.Repository) -> None:
    amended(repo)
    expired(repo)
    repo.garbage_collect(LATER)


def rewritten(repo: frazil.Repository) -> None:
    repo.rewrite_manifests("anew", branch="main")


def resized(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="smaller") as store:
        zarr.open_array(store, path="a").resize((2,))
        del zarr.open_group(store)["b"]


def reset(repo: frazil.Repository) -> None:
    newest, before, *_ = repo.ancestry(branch="main")
    repo.reset_branch("main", before.id)
    repo.delete_tag("v3")
    assert newest.id != before.id


STORIES = [amended, moved, detached, expired, collected, rewritten, resized, reset]


@pytest.mark.sample(1, 6)
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("spec_version", [1, 2])
def test_what_is_whole_has_no_findings(spec_version: int, story: Callable[[Any], None]) -> None:
    repo = small(spec_version)
    if spec_version == 1 and story in (amended, moved, detached, collected):
        pytest.skip("not in spec version 1")
    for step in (story, rewritten, expired):
        step(repo)
        report = repo.upkeep.verify("checksum")
        assert report.ok, report
    if spec_version == 1:
        repo = frazil.upgrade_icechunk_repository(repo, dry_run=False)
        assert repo.upkeep.verify("checksum").ok


@pytest.mark.sample(6, 15)
@pytest.mark.parametrize(
    "folder", fixture_folders("v[12]*/*"), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_repositories_of_other_writers_are_whole(folder: Path) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(folder / "repo")))
    report = repo.upkeep.verify("checksum")
    assert [each for each in report.problems if not each.key.startswith(("file:", "vcc:", "s3:"))] == []


# The report


def test_other_levels_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="metadata, exists, checksum, decode"):
        small().upkeep.verify("all")  # type: ignore[arg-type]


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_finding_names_the_versions_that_it_affects(spec_version: int) -> None:
    repo = frazil.Repository.create(MemoryStorage(), config(), spec_version=spec_version)
    for name in "abc":
        with repo.transaction("main", message=name) as store:
            zarr.create_array(store, name=name, shape=(2,), chunks=(1,), dtype="i4", compressors=None)[:] = 1
        if name == "b":
            repo.create_tag("v1", repo.lookup_branch("main"))
    with repo.transaction("main", message="without b") as store:
        del zarr.open_group(store)["b"]
    repo.create_branch("dev", repo.lookup_tag("v1"))
    session = repo.readonly_session(tag="v1")
    table = session.chunk_table("/b")
    repo.storage.delete([f"chunks/{each}" for each in ids_to_text(table.chunk_ids)])
    findings = repo.upkeep.verify("exists").problems
    assert {(each.affected.branches, each.affected.tags, each.affected.snapshots) for each in findings} == {
        (("dev",), ("v1",), 2)
    }
    assert {each.affected.arrays for each in findings} == {("/b",)}
    array = session.workspace.require_array("/a").array
    assert array is not None
    repo.storage.delete([f"manifests/{id_to_text(each.id)}" for each in array.manifests])
    (lost,) = [each for each in repo.upkeep.verify().problems if each.key.startswith("manifests/")]
    assert lost.affected.snapshots == 4
    assert "/a" in lost.affected.arrays
    assert {row["snapshots"] for row in repo.upkeep.verify().rows() if row["severity"] == "loss"} == {4}
