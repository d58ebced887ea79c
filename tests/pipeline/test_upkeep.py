"""Upkeep by tasks does what upkeep in one process does."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import zarr
from tests.maintenance.compaction.test_operation import CONFIG, LIMITS, read, small_files
from tests.support.virtual_chunks import allow_folder

import frazil
from frazil.format.ids import id_to_text
from frazil.maintenance.verification.findings import VerifyLevel
from frazil.pipeline import Inline, Progress, Threads

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with packed, single, inline and virtual chunks, several versions, and garbage."""
    place = tmp_path_factory.mktemp("upkeep")
    (place / "foreign").mkdir()
    for name in "ab":
        (place / "foreign" / name).write_bytes(bytes(range(64)))
    repo = open_(place, create=True)
    with repo.transaction("main", message="native") as store:
        create(store, "packed", np.arange(40))
        create(store, "small", np.arange(3))
    for value in range(3):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.open_array(store, path="packed", mode="r+")[10 * value : 10 * value + 10] = value
    with repo.transaction("main", message="virtual") as store:
        create(store, "virtual", np.zeros(16))
        for at, name in enumerate("ab"):
            url = f"file://{place}/foreign/{name}"
            when = datetime.fromtimestamp(os.path.getmtime(place / "foreign" / name) + 2, UTC)
            for chunk in range(2):
                store.set_virtual_ref(
                    f"virtual/c/{2 * at + chunk}", url, offset=16 * chunk, length=32, checksum=when
                )
    with repo.transaction("main", message="gone") as store:
        create(store, "gone", np.arange(20))
    repo.reset_branch("main", list(repo.ancestry(branch="main"))[1].id)
    return place


def create(store: Any, name: str, values: Any) -> None:
    chunks = (4,) if len(values) > 3 else (3,)
    zarr.create_array(store, name=name, data=np.asarray(values, "i8"), chunks=chunks, compressors=None)


def open_(place: Path, *, create: bool = False) -> frazil.Repository:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=24)
    make = frazil.Repository.create if create else frazil.Repository.open
    return make(place / "repo", **allow_folder(place / "foreign", config))


@pytest.fixture
def repo(root: Path) -> Any:
    """A copy to damage. Virtual references name where the foreign objects were made: these are put back."""
    foreign, backup = root / "foreign", root / "backup"
    if not backup.exists():
        shutil.copytree(root / "repo", backup)
    shutil.rmtree(root / "repo")
    shutil.copytree(backup, root / "repo")
    times = {path: (path.read_bytes(), os.stat(path).st_mtime_ns) for path in foreign.iterdir()}
    yield open_(root)
    for path, (data, modified) in times.items():
        path.write_bytes(data)
        os.utime(path, ns=(modified, modified))


def files(place: Path) -> set[str]:
    folders = ("snapshots", "transactions", "manifests", "chunks")
    return {f"{folder}/{each.name}" for folder in folders for each in (place / "repo" / folder).iterdir()}


def act(plan: Any, dry_run: bool) -> Any:
    return plan.report if dry_run else plan.apply()


@pytest.mark.sample(1)
@pytest.mark.parametrize("dry_run", [True, False])
def test_the_same_garbage_goes(root: Path, repo: frazil.Repository, dry_run: bool) -> None:
    before = files(root)
    summary = act(repo.upkeep.collect(LATER, engine=Inline()), dry_run)
    after = files(root)
    shutil.rmtree(root / "repo")
    shutil.copytree(root / "backup", root / "repo")
    expected = act(open_(root).upkeep.collect(LATER), dry_run)
    assert str(summary) == str(expected)
    assert summary.snapshots_deleted == 1
    assert after == files(root)
    assert (after == before) == dry_run


def test_the_same_statistics_and_findings(root: Path, repo: frazil.Repository) -> None:
    stats = repo.upkeep.statistics(engine=Inline())
    assert str(stats) == str(repo.chunk_storage_stats())
    assert min(stats.native_bytes, stats.virtual_bytes, stats.inlined_bytes) > 0
    session = repo.readonly_session("main")
    packs = sorted({ref.tobytes() for ref in session.chunk_table("/packed").chunk_ids})
    (root / "repo" / "chunks" / id_to_text(packs[0])).unlink()
    (root / "foreign" / "a").unlink()
    damaged = min((root / "repo" / "transactions").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    for level in get_args(VerifyLevel.__value__):
        by_tasks = open_(root).upkeep.verify(level, engine=Inline())
        assert by_tasks.rows()
        assert by_tasks.rows() == open_(root).upkeep.verify(level).rows()


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_tasks_read_only_what_is_new(engine: Any, tmp_path: Path) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), config)
    for number in range(4):
        with repo.transaction("main", message=str(number)) as store:
            zarr.create_array(store, name=f"a{number}", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    steps = Steps()
    repo.upkeep.collect(LATER, engine=engine, progress=steps).apply()
    assert steps.expected == steps.done == 5 + 4
    for name in ("snapshots", "manifests"):  # nobody reads them again
        (tmp_path / name).rename(tmp_path / f"{name} away")
    steps = Steps()
    repo.upkeep.collect(LATER, engine=engine, progress=steps).as_dict()
    assert steps.expected == 0
    for name in ("snapshots", "manifests"):
        (tmp_path / f"{name} away").rename(tmp_path / name)


class Steps:
    """Counts the steps of an operation."""

    def __init__(self) -> None:
        self.expected = self.done = 0

    def expect(self, tasks: int) -> None:
        self.expected += tasks

    def advance(self, *, bytes: int = 0) -> None:
        self.done += 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", [Inline(), Threads(2)])
def test_the_same_compaction(engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repo = small_files(frazil.local_filesystem_storage(str(tmp_path)))
    values = read(repo)
    plan = repo.upkeep.compact("merge", branch="main", limits=LIMITS, engine=engine).report
    with Progress("compact", 0, sys.stdout) as bar:
        report = repo.upkeep.compact(
            "merge", branch="main", limits=LIMITS, engine=engine, progress=bar
        ).apply()
    assert (len(plan.files), plan.bytes_moved) == (len(report.files), report.bytes_moved) == (8, 2048)
    assert "compact 100%" in capsys.readouterr().out
    repo = frazil.Repository.open(repo.storage, CONFIG)
    assert read(repo) == values
    assert repo.upkeep.verify("checksum").ok
    assert repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply().is_empty
