"""Manifests that split themselves, in repositories: sizes of commits, requests, other writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.changes import manifests as windows
from frazil.conflicts import ConflictDetector
from frazil.repository.settings.manifest_config import DEFAULT_SPLITTING
from frazil.testing import LatencyStorage

CAPACITY = 16
WIDE = 4


@pytest.fixture(autouse=True)
def _small_windows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "CAPACITY", CAPACITY)
        patch.setattr(windows, "_ENTRY_BYTES", 0.0)
        yield


def plain(storage: Any = None, **settings: Any) -> frazil.Repository:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0, **settings)
    return frazil.Repository.create(storage or frazil.in_memory_storage(), config)


def create(repo: frazil.Repository, rows: int, value: int = 1) -> None:
    with repo.transaction("main", message="an array") as store:
        array = zarr.create_array(store, name="x", shape=(rows, WIDE), chunks=(1, 1), dtype="i4")
        array[:] = value


def append(repo: frazil.Repository, value: int) -> None:
    with repo.transaction("main", message="a step") as store:
        array = zarr.open_array(store, path="x")
        rows = array.shape[0]
        array.resize((rows + 1, WIDE))
        array[rows] = value


def counts(repo: frazil.Repository) -> list[int]:
    return sorted(file.num_chunk_refs for file in repo.list_manifest_files(repo.lookup_branch("main")))


def content(repo: frazil.Repository) -> np.ndarray:
    return np.asarray(zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")[:])


def test_new_repositories_split_their_manifests() -> None:
    repo = plain()
    create(repo, 16)
    assert counts(repo) == [16] * 4
    for step in range(6):
        append(repo, step + 1)
    assert counts(repo) == [8, *[16] * 5]
    assert content(repo)[15:].max(axis=1).tolist() == [1, *range(1, 7)]


def test_rules_and_old_repositories_have_no_windows() -> None:
    by_rows = {frazil.ManifestSplitDimCondition.Axis(0): 8}
    rules = frazil.ManifestSplittingConfig.from_dict({frazil.ManifestSplitCondition.AnyArray(): by_rows})
    repo = plain(manifest=frazil.ManifestConfig(splitting=rules))
    create(repo, 16)
    assert counts(repo) == [32, 32]
    old = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    assert old.config.manifest is None


def test_an_old_repository_asks_for_windows() -> None:
    storage = frazil.in_memory_storage()
    repo = plain(storage, manifest=frazil.ManifestConfig(splitting=DEFAULT_SPLITTING))
    create(repo, 16)
    assert counts(repo) == [64]
    config = frazil.RepositoryConfig(manifest=frazil.ManifestConfig(splitting="auto"))
    repo = frazil.Repository.open(storage, config)
    append(repo, 5)
    assert counts(repo) == [4, 64]
    repo.rewrite_manifests("windows", branch="main")
    assert counts(repo) == [4, 16, 16, 16, 16]
    assert (
        frazil.Repository.open(storage, config).upkeep.compact("nothing", branch="main").apply().new_manifests
        == 0
    )


@pytest.mark.parametrize("rows", [4, 200])
def test_a_cold_look_up_costs_four_requests(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = frazil.in_memory_storage()
    create(plain(inner), rows)
    reads: list[str] = []
    for name in ("get", "get_versioned", "head"):
        method = getattr(LatencyStorage, name)

        def counted(self: LatencyStorage, key: str, *args: Any, method: Any = method) -> Any:
            reads.append(key)
            return method(self, key, *args)

        monkeypatch.setattr(LatencyStorage, name, counted)
    repo = frazil.Repository.open(LatencyStorage(inner))
    reads.clear()
    session = repo.readonly_session("main")
    assert session.workspace.read_chunk("/x", (rows - 1, 2)) is not None
    assert sorted(key.split("/")[0] for key in reads) == ["chunks", "manifests", "repo", "snapshots"]


def test_writers_of_one_window_rebase_and_merge() -> None:
    repo = plain()
    create(repo, 8)
    one, other = repo.writable_session("main"), repo.writable_session("main")
    zarr.open_array(one.store, path="x")[0, 0] = 7
    zarr.open_array(other.store, path="x")[1, 1] = 8
    one.commit("one")
    other.commit("other", rebase_with=ConflictDetector())
    session = repo.writable_session("main")
    forks = [session.fork() for _ in range(3)]
    for number, fork in enumerate(forks):
        zarr.open_array(fork.store, path="x")[2 + number, 2] = number + 20
    session.merge(*forks)
    session.commit("merged")
    assert counts(repo) == [16, 16]
    assert content(repo)[[0, 1, 2, 3, 4], [0, 1, 2, 2, 2]].tolist() == [7, 8, 20, 21, 22]


def test_compaction_agrees_with_the_windows() -> None:
    repo = plain()
    create(repo, 8)
    for step in range(9):
        append(repo, step + 1)
    before, values = counts(repo), content(repo)
    limits = frazil.CompactionLimits(manifests=True)
    repo.upkeep.compact("compact", branch="main", limits=limits).apply()
    assert counts(repo) == before == [4, 16, 16, 16, 16]
    assert (content(repo) == values).all()


@pytest.mark.deep
@pytest.mark.interop
def test_the_reference_reads_and_changes_windows(tmp_path: Path) -> None:
    repo = plain(frazil.local_filesystem_storage(str(tmp_path)))
    create(repo, 16)
    for step in range(5):
        append(repo, step + 1)
    icechunk = pytest.importorskip("icechunk")
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    read = zarr.open_array(theirs.readonly_session("main").store, path="x", mode="r")[:]
    assert (read == content(repo)).all()
    session = theirs.writable_session("main")
    zarr.open_array(session.store, path="x", mode="r+")[3, 3] = 99
    session.commit("theirs")
    assert counts(repo) == [84]
    append(repo, 77)
    assert counts(repo) == [4, 84]
    with repo.transaction("main", message="ours") as store:
        zarr.open_array(store, path="x", mode="r+")[20, 0] = 98
    assert max(counts(repo)) == CAPACITY
    read = zarr.open_array(theirs.readonly_session("main").store, path="x", mode="r")[:]
    assert (read == content(repo)).all()
    assert (int(read[3, 3]), int(read[20, 0]), int(read[21, 0])) == (99, 98, 77)
