"""Upkeep by tasks does what upkeep in one process does; and what is damaged is found, all of it."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from pyspark.sql import SparkSession

import frazil
from frazil.credentials import LocalFileSystemAccess
from frazil.errors import InvalidInputError
from frazil.format.chunk_check import check_file
from frazil.format.ids import id_from_text, id_to_text
from frazil.pipeline import Progress, maintenance
from frazil.spark import Inline, OnSpark

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
    prefix = f"file://{place}/foreign/"
    container = frazil.VirtualChunkContainer(prefix, frazil.local_filesystem_store(str(place / "foreign")))
    config.set_virtual_chunk_container(container)
    storage = frazil.local_filesystem_storage(str(place / "repo"))
    make = frazil.Repository.create if create else frazil.Repository.open
    return make(storage, config, authorize_virtual_chunk_access={prefix: LocalFileSystemAccess})


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


@pytest.mark.sample(1)
@pytest.mark.parametrize("dry_run", [True, False])
def test_the_same_garbage_goes(root: Path, repo: frazil.Repository, dry_run: bool) -> None:
    before = files(root)
    summary = maintenance.garbage_collect(repo, LATER, engine=Inline(), dry_run=dry_run)
    after = files(root)
    shutil.rmtree(root / "repo")
    shutil.copytree(root / "backup", root / "repo")
    expected = open_(root).garbage_collect(LATER, dry_run=dry_run)
    assert str(summary) == str(expected)
    assert summary.snapshots_deleted == 1
    assert after == files(root)
    assert (after == before) == dry_run


def test_the_same_statistics(repo: frazil.Repository) -> None:
    stats = maintenance.storage_stats(repo, engine=Inline())
    expected = repo.chunk_storage_stats()
    assert str(stats) == str(expected)
    assert min(stats.native_bytes, stats.virtual_bytes, stats.inlined_bytes) > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["new_commit", "amend"])
def test_the_same_manifests(repo: frazil.Repository, method: Any) -> None:
    dims = {frazil.ManifestSplitDimCondition.Axis(0): 3}
    splitting = frazil.ManifestSplittingConfig.from_dict({frazil.ManifestSplitCondition.AnyArray(): dims})
    config = frazil.RepositoryConfig(manifest=frazil.ManifestConfig(splitting=splitting))
    repo = repo.reopen(config)
    before = repo.readonly_session("main")
    tables = {path: before.chunk_table(path) for path in ("/packed", "/small", "/virtual")}
    id_ = maintenance.rewrite_manifests(
        repo,
        "anew",
        branch="main",
        engine=Inline(),
        commit_method=method,
        manifests_on_executors_above=5,
    )
    assert repo.lookup_branch("main") == id_
    after = repo.readonly_session("main")
    for path, table in tables.items():
        new_table = after.chunk_table(path)
        rows = np.arange(len(table))
        assert np.array_equal(new_table.index, table.index)
        assert table.same(rows, new_table, rows).all()
    node = after.workspace.require_array("/packed")
    assert node.array is not None
    assert len(node.array.manifests) == 4
    verification = maintenance.verify(repo, "checksum", engine=Inline())
    assert verification.rows() == []
    if method == "new_commit":
        newest, parent, *_ = repo.ancestry(branch="main")
        assert repo.diff(from_snapshot_id=parent.id, to_snapshot_id=newest.id).is_empty()


@pytest.mark.parametrize("level", ["metadata", "exists", "checksum"])
def test_what_is_whole_has_no_findings(repo: frazil.Repository, level: Any) -> None:
    done = maintenance.verify(repo, level, engine=Inline())
    assert done.rows() == []
    assert (done.snapshots, done.manifests > 3) == (6, True)
    # Whole files are read, and what two references name of one object once.
    assert done.bytes_read > 40 * 8 if level == "checksum" else done.bytes_read == 0


@pytest.mark.parametrize("upgraded", [False, True])
def test_spec_version_1_is_whole(upgraded: bool) -> None:
    """Its first snapshot has no transaction log."""
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
    with repo.transaction("main", message="data") as store:
        create(store, "x", np.arange(12))
    if upgraded:
        frazil.upgrade_icechunk_repository(repo, dry_run=False)
        repo = frazil.Repository.open(repo.storage)
    assert maintenance.verify(repo, "checksum", engine=Inline()).rows() == []
    log = next(info.key for info in repo.storage.list("transactions") if "1CECHNKREP" not in info.key)
    repo.storage.delete([log])
    (row,) = maintenance.verify(repo, "metadata", engine=Inline()).rows()
    assert (row["check"], row["key"]) == ("missing", log)


def test_all_damage_is_detected(root: Path, repo: frazil.Repository) -> None:
    session = repo.readonly_session("main")
    packs = {ref.tobytes() for ref in session.chunk_table("/packed").chunk_ids}
    lost, short = [root / "repo" / "chunks" / id_to_text(each) for each in sorted(packs)[:2]]
    lost.unlink()
    trailer = check_file(id_from_text(short.name), short.read_bytes()).trailer
    assert trailer is not None
    short.write_bytes(short.read_bytes()[: trailer.size - 1])
    (root / "foreign" / "a").unlink()
    changed = root / "foreign" / "b"
    os.utime(changed, (2**31, 2**31))
    damaged = min((root / "repo" / "transactions").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])

    def problems(level: Any) -> set[tuple[str, str, str | None, Any]]:
        rows = maintenance.verify(open_(root), level, engine=Inline()).rows()
        return {
            (row["check"], Path(row["key"]).name, row["path"], tuple(row["coordinates"] or ()))
            for row in rows
        }

    log = ("file-payload", damaged.name, None, ())
    assert problems("metadata") == {log}
    table = session.chunk_table("/packed")
    names = [id_to_text(table.chunk_ids[source].tobytes()) for source in table.source.tolist()]
    holders = list(zip(map(tuple, table.index.tolist()), names, strict=True))
    for level in ("exists", "checksum"):
        rows = problems(level)
        assert log in rows
        missing = {at for *what, at in rows if what == ["missing", lost.name, "/packed"]}
        assert missing >= {at for at, name in holders if name == lost.name}
        assert len([row for row in rows if row[:3] == ("short", short.name, "/packed")]) >= 1
        gone = {(problem, at) for problem, key, path, at in rows if path == "/virtual" and key == "a"}
        assert {at for _, at in gone} == {(0,), (1,)}
        then = {(problem, at) for problem, key, path, at in rows if path == "/virtual" and key == "b"}
        assert then == {("virtual-modified", (2,)), ("virtual-modified", (3,))}


def test_damaged_manifests_are_detected(root: Path, repo: frazil.Repository) -> None:
    ids = repo.readonly_session("main").workspace.snapshot.manifests.ids  # not of the version without a ref
    one, other, *_ = [root / "repo" / "manifests" / id_to_text(id_.tobytes()) for id_ in ids]
    one.unlink()
    other.write_bytes(other.read_bytes()[:-1])
    rows = maintenance.verify(open_(root), engine=Inline()).rows()
    gone = maintenance.garbage_collect(open_(root), LATER - timedelta(days=30), engine=Inline())
    assert gone.manifests_deleted == 0
    assert {Path(row["key"]).name for row in rows} <= {one.name, other.name}
    assert rows
    assert {(row["check"], row["severity"]) for row in rows} == {
        ("missing", "loss"),
        ("file-payload", "loss"),
    }


def test_other_levels_are_refused(repo: frazil.Repository) -> None:
    with pytest.raises(InvalidInputError, match="level"):
        maintenance.verify(repo, "all", engine=Inline())  # type: ignore[arg-type]


@pytest.mark.deep
@pytest.mark.spark
def test_on_spark(root: Path, repo: frazil.Repository, spark: SparkSession) -> None:
    engine = OnSpark(spark)
    (root / "foreign" / "a").unlink()
    rows = maintenance.verify(repo, "exists", engine=engine).rows()
    assert {(row["path"], *row["coordinates"]) for row in rows} == {("/virtual", 0), ("/virtual", 1)}
    assert str(maintenance.storage_stats(repo, engine=engine)) == str(repo.chunk_storage_stats())
    assert maintenance.garbage_collect(repo, LATER, engine=engine).snapshots_deleted == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", ["inline", "local"])
def test_tasks_read_only_what_is_new(engine: Any, tmp_path: Path) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), config)
    for number in range(4):
        with repo.transaction("main", message=str(number)) as store:
            zarr.create_array(store, name=f"a{number}", shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    steps = Steps()
    maintenance.garbage_collect(repo, LATER, engine=engine, progress=steps)
    assert steps.expected == steps.done == 5 + 4
    for name in ("snapshots", "manifests"):  # nobody reads them again
        (tmp_path / name).rename(tmp_path / f"{name} away")
    steps = Steps()
    maintenance.garbage_collect(repo, LATER, engine=engine, progress=steps, dry_run=True)
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


@pytest.mark.parametrize("version", [1, 2])
def test_the_steps_of_an_expiration(version: int) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=version)
    repo.create_branch("dev", repo.lookup_branch("main"))
    steps = Steps()
    repo.expire_snapshots(LATER, progress=steps)
    if version > 1:
        repo.apply_retention(frazil.Retention(last=1), progress=steps)
    assert steps.expected == steps.done == 2
    with pytest.raises(TypeError, match="progress"):
        repo.expire_snapshots(LATER, progress=object())  # type: ignore[call-overload]


def test_the_progress_bar_of_jobs(capsys: pytest.CaptureFixture[str], repo: frazil.Repository) -> None:
    with Progress("collect", 0, sys.stdout) as bar:
        repo.garbage_collect(LATER, progress=bar)
    assert "collect 100%" in capsys.readouterr().out
