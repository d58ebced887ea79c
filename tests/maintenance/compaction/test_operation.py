"""Compaction: fewer files with the same values, beside others and after crashes. Plans of upkeep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import zarr
from tests.maintenance.schedules import Interrupted, Killed, Seen, killing
from tests.maintenance.test_in_use import opened_by
from tests.repository.version_1 import copy_of
from tests.support.judge import same_by_reference
from tests.support.patience import patience
from tests.survey.test_survey import commits

import frazil
from frazil.errors import ConflictError, InvalidInputError, RefNotFoundError, StorageError
from frazil.maintenance import compaction
from frazil.storage import files as storage_files
from frazil.storage.memory import MemoryStorage

LATER = datetime.now(UTC) + timedelta(days=1)
CONFIG = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
LIMITS = frazil.CompactionLimits(pack_size=10_000)


def write(repo: frazil.Repository, at: int | slice, value: int, path: str = "t") -> None:
    with repo.transaction("main", message=f"{path} {value}") as store:
        zarr.open_array(store, path=path)[at] = value


def read(repo: frazil.Repository, path: str = "t", **version: Any) -> list[int]:
    session = repo.readonly_session(**(version or {"branch": "main"}))
    found: list[int] = frazil.read(session, path)[..., 0].tolist()
    return found


def small_files(storage: frazil.Storage, *, spec_version: int = 2, steps: int = 8) -> frazil.Repository:
    """A repository whose array ``t`` has one chunk in each of ``steps`` files."""
    repo = frazil.Repository.create(storage, CONFIG, spec_version=spec_version)
    with repo.transaction("main", message="arrays") as store:
        for name in "tu":
            zarr.create_array(store, name=name, shape=(16, 16), chunks=(2, 16), dtype="i8", compressors=None)
    for step in range(steps):
        write(repo, slice(2 * step, 2 * step + 2), step + 1)
    return repo


def dead_pack(storage: frazil.Storage) -> frazil.Repository:
    """A repository with a pack of 8 chunks, of which one is live. Other chunks are in a second pack."""
    repo = small_files(storage, steps=0)
    write(repo, slice(0, 16), 1)
    write(repo, slice(0, 14), 2)
    return repo


@cache
def template(make: Any) -> MemoryStorage:
    storage = MemoryStorage()
    make(storage)
    return storage


def files(storage: frazil.Storage) -> set[str]:
    return {each.key for each in storage.list("chunks")}


@pytest.mark.parametrize("spec_version", [1, 2])
def test_small_files_become_a_pack(spec_version: int) -> None:
    storage = MemoryStorage()
    repo = small_files(storage, spec_version=spec_version)
    values, before = read(repo), files(storage)
    plan = repo.upkeep.compact("merge", branch="main", limits=LIMITS).report
    assert (len(plan.files), plan.new_files, plan.bytes_moved, plan.snapshots) == (8, 1, 2048, {})
    assert files(storage) == before
    report = repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply()
    assert (len(report.files), report.new_files, report.bytes_moved) == (8, 1, 2048)
    assert {f"chunks/{row['file']}" for row in report.rows()} == before
    assert len(files(storage) - before) == 1
    assert report.snapshots == {"main": repo.lookup_branch("main")}
    assert read(repo) == read(frazil.Repository.open(storage)) == values
    assert repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply().is_empty
    assert repo.upkeep.leases() == []
    repo.expire_snapshots(LATER)
    repo.garbage_collect(LATER)
    assert len(files(storage)) == 1
    assert read(frazil.Repository.open(storage)) == values
    assert repo.upkeep.verify("checksum").ok


def test_live_chunks_leave_a_pack_that_is_mostly_dead() -> None:
    storage = MemoryStorage()
    repo = dead_pack(storage)
    [row] = repo.upkeep.compact("move", branch="main").report.rows()
    assert (row["live_bytes"], row["live_fraction"]) == (256, row["live_bytes"] / row["size"])
    few = frazil.CompactionLimits(live_fraction=0.1)
    assert repo.upkeep.compact("move", branch="main", limits=few).apply().is_empty
    assert repo.upkeep.compact("move", branch="main").apply().bytes_moved == 256
    assert read(repo) == [2] * 14 + [1] * 2
    repo.expire_snapshots(LATER)
    repo.garbage_collect(LATER)
    assert row["file"] not in " ".join(files(storage))
    assert read(frazil.Repository.open(storage)) == [2] * 14 + [1] * 2


def test_nothing_is_changed_for_readers_of_the_history(tmp_path: Path) -> None:
    repo = small_files(frazil.local_filesystem_storage(str(tmp_path)))
    before = repo.lookup_branch("main")
    id_ = repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply().snapshots["main"]
    assert repo.diff(from_snapshot_id=before, to_snapshot_id=id_).is_empty()
    assert read(repo, snapshot_id=before) == read(repo, snapshot_id=id_)
    same_by_reference(tmp_path)


def test_an_amend_replaces_the_last_commit() -> None:
    repo = small_files(MemoryStorage())
    first, *others = (info.id for info in repo.ancestry(branch="main"))
    report = repo.upkeep.compact("merge", branch="main", limits=LIMITS, commit_method="amend").apply()
    ids = [info.id for info in repo.ancestry(branch="main")]
    assert ids == [report.snapshots["main"], *others]
    diff = repo.diff(from_snapshot_id=others[0], to_snapshot_id=ids[0])
    assert diff.updated_chunks == {"/t": [[7, 0]]}
    assert first not in ids


def test_a_file_that_another_array_needs_stays() -> None:
    storage = MemoryStorage()
    repo = small_files(storage, steps=0)
    with repo.transaction("main", message="both") as store:
        for name in "tu":
            zarr.open_array(store, path=name)[:] = 5
    for name in "tu":
        write(repo, slice(0, 14), 6, name)
    only_t = frazil.CompactionLimits(arrays=("/t",))
    assert repo.upkeep.compact("move", branch="main", limits=only_t).apply().is_empty
    report = repo.upkeep.compact("move", branch="main").apply()
    assert (len(report.files), report.new_files) == (1, 1)  # the chunks of both arrays share the new pack
    assert read(repo, "u") == [6] * 14 + [5] * 2


def test_branches_share_new_files() -> None:
    storage = MemoryStorage()
    repo = small_files(storage)
    repo.create_branch("dev", repo.lookup_branch("main"))
    before = files(storage)
    report = repo.upkeep.compact("merge", branch=["main", "dev"], limits=LIMITS).apply()
    assert report.snapshots == {name: repo.lookup_branch(name) for name in ("main", "dev")}
    assert len(files(storage) - before) == 1
    assert read(repo) == read(repo, branch="dev")


def test_manifests_are_merged_with_the_splitting_of_the_configuration() -> None:
    storage = MemoryStorage()
    rule = frazil.ManifestSplitDimCondition
    split = frazil.ManifestSplittingConfig.from_dict(
        {frazil.ManifestSplitCondition.AnyArray(): {rule.Axis(0): 1}}
    )
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, manifest=frazil.ManifestConfig(splitting=split)
    )
    frazil.Repository.create(storage, CONFIG)
    repo = frazil.Repository.open(storage, config)
    with repo.transaction("main", message="an array") as store:
        data = np.arange(16).reshape(16, 1)
        zarr.create_array(store, name="t", data=data, chunks=(2, 1), compressors=None)
    assert len(repo.list_manifest_files(repo.lookup_branch("main"))) == 8
    assert repo.upkeep.compact("as configured", branch="main", limits=LIMITS).apply().is_empty
    repo = frazil.Repository.open(storage, CONFIG)
    report = repo.upkeep.compact("fewer manifests", branch="main").apply()
    assert (report.manifests, len(report.files)) == (8, 0)
    assert len(repo.list_manifest_files(report.snapshots["main"])) == 1
    assert read(repo) == list(range(16))
    again = frazil.Repository.open(storage, config)
    forced = frazil.CompactionLimits(manifests=True)
    id_ = again.upkeep.compact("more manifests", branch="main", limits=forced).apply().snapshots["main"]
    assert len(repo.list_manifest_files(id_)) == 8
    assert read(again) == list(range(16))


def test_deduplicated_chunks_stay_shared() -> None:
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        chunks=frazil.ChunksConfig(deduplicate=True),
        packing=frazil.PackingConfig(enabled=False),
    )
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, config)
    with repo.transaction("main", message="an array") as store:
        data = np.repeat(np.arange(1, 9), 8).reshape(64, 1)
        zarr.create_array(store, name="t", data=data, chunks=(4, 1), compressors=None)
    assert len(files(storage)) == 8
    report = repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply()
    assert (len(report.files), report.new_files, report.bytes_moved) == (8, 1, 8 * 32)
    new = set(files(storage)) - {f"chunks/{row['file']}" for row in report.rows()}
    assert [len(bytes(storage.get(key))) >= 8 * 32 for key in new] == [True]
    assert read(repo) == data[:, 0].tolist()
    assert repo.upkeep.verify("checksum").ok


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize("make", [small_files, dead_pack])
@pytest.mark.parametrize("others", ["write", "resize", "delete", "write, expire, collect"])
def test_beside_others_at_every_request(make: Any, others: str) -> None:
    """Others act between any two requests: their changes stay, and no chunk is lost."""
    for step in range(1, 200):
        storage = copy_of(template(make))
        seen = Interrupted(storage, step, lambda: act(frazil.Repository.open(storage, CONFIG), others))  # noqa: B023
        report = (
            opened_by(storage, seen, CONFIG).upkeep.compact("merge", branch="main", limits=LIMITS).apply()
        )
        acted = seen.count >= step
        repo = frazil.Repository.open(storage)
        expected = changed(read_base(make), others) if acted else read_base(make)
        assert (read(repo) if expected else None) == expected
        assert repo.upkeep.verify("checksum").ok
        assert report.snapshots or acted
        if not acted:
            break
    assert step > 10


def read_base(make: Any) -> list[int]:
    return read(frazil.Repository.open(template(make)))


def act(repo: frazil.Repository, others: str) -> None:
    if others == "delete":
        with repo.transaction("main", message="delete") as store:
            del zarr.open_group(store)["t"]
        return
    if others == "resize":
        with repo.transaction("main", message="resize") as store:
            zarr.open_array(store, path="t").resize((10, 16))
        return
    write(repo, slice(2, 4), 77)
    if "collect" in others:
        repo.expire_snapshots(LATER)
        repo.garbage_collect(LATER)


def changed(values: list[int], others: str) -> Any:
    if others == "delete":
        return None
    if others == "resize":
        return values[:10]
    return [*values[:2], 77, 77, *values[4:]] if others else values


def test_a_session_that_began_before_commits_without_conflict() -> None:
    repo = small_files(MemoryStorage())
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="t")[2:4] = 55
    repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply()
    session.commit("mine", rebase_with=frazil.ConflictDetector())
    assert read(repo)[:6] == [1, 1, 55, 55, 3, 3]


@pytest.mark.sample(1, 1)
@pytest.mark.parametrize("error", [Killed, StorageError("lost")])
@pytest.mark.deep
@pytest.mark.parametrize("make", [small_files, dead_pack])
def test_stopped_at_every_request_and_called_again(make: Any, error: Any) -> None:
    for step in range(200):
        storage = copy_of(template(make))
        repo = opened_by(storage, killing(storage, step, error), CONFIG)
        done = False
        try:
            repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply()
            done = True
        except (Killed, frazil.IcechunkError):
            pass
        repo = frazil.Repository.open(storage, CONFIG)
        assert read(repo) == read_base(make)
        assert repo.upkeep.verify("checksum").ok
        repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply()
        assert repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply().is_empty
        assert read(repo) == read_base(make)
        if done:
            break
    assert step > 10


def test_limits_and_branches_must_be_right() -> None:
    repo = frazil.Repository.create(MemoryStorage())
    with pytest.raises(RefNotFoundError):
        repo.upkeep.compact("x", branch="nowhere").apply()
    with pytest.raises(InvalidInputError, match="branch must name a branch"):
        repo.upkeep.compact("x", branch=[]).apply()
    with pytest.raises(ValueError, match="commit_method must be one of"):
        repo.upkeep.compact("x", branch="main", commit_method="other").apply()  # type: ignore[arg-type]


def written_by_others(storage: MemoryStorage, request: str) -> frazil.Repository:
    """A handle, before whose first request of a kind others write."""
    acts = [lambda: act(frazil.Repository.open(storage, CONFIG), "write")]

    def meet(what: str) -> None:
        if what.startswith(request) and acts:
            acts.pop()()

    return opened_by(storage, Seen(storage, meet), CONFIG)


def test_a_late_compaction_keeps_its_work() -> None:
    """Others commit after the chunks were copied: the chunks are not copied again, and the old files go."""
    storage = MemoryStorage()
    small_files(storage)
    before = files(storage)
    repo = written_by_others(storage, "put manifests")
    report = repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply()
    assert (report.new_files, report.bytes_moved) == (1, 2048)
    assert len(files(storage) - before) == 2
    repo = frazil.Repository.open(storage)
    assert read(repo)[:6] == [1, 1, 77, 77, 3, 3]
    repo.expire_snapshots(LATER)
    repo.garbage_collect(LATER)
    assert not files(storage) & before
    assert read(frazil.Repository.open(storage))[:6] == [1, 1, 77, 77, 3, 3]


def test_busy_writers_wait_for_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer commits before each attempt, unless the compaction has the turn."""
    repo = small_files(frazil.local_filesystem_storage(tmp_path))
    monkeypatch.setattr(storage_files, "TURN_SECONDS", patience(30))
    commit, writers = compaction.commit_manifests, list[Thread]()

    def write_rebased(repo: frazil.Repository, value: int) -> None:
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="u")[15] = value
        session.commit(f"u {value}", rebase_with=frazil.BasicConflictSolver())

    def commit_late(*args: Any, **options: Any) -> bytes:
        writer = Thread(target=write_rebased, args=(repo.reopen(), len(writers)))
        writers.append(writer)
        writer.start()
        writer.join(0.2)
        return commit(*args, **options)

    monkeypatch.setattr(compaction, "commit_manifests", commit_late)
    repo.upkeep.compact("merge", branch="main", limits=LIMITS).apply()
    for writer in writers:
        writer.join()
    assert len(writers) < 5
    assert [each.message for each in repo.ancestry(branch="main")].count("merge") == 1
    messages = {each.message for each in repo.ancestry(branch="main")}
    assert messages >= {f"u {value}" for value in range(len(writers))}


def test_an_amend_does_not_replace_the_commit_of_others() -> None:
    storage = MemoryStorage()
    small_files(storage)
    repo = written_by_others(storage, "put chunks")
    with pytest.raises(ConflictError):
        repo.upkeep.compact("merge", branch="main", limits=LIMITS, commit_method="amend").apply()
    assert read(frazil.Repository.open(storage))[2:4] == [77, 77]


@pytest.mark.parametrize(
    ("limits", "error", "message"),
    [
        ({"live_fraction": 1.5}, InvalidInputError, "live_fraction must be from 0 to 1, got 1.5"),
        ({"small_size": -1}, InvalidInputError, "small_size must be at least 0, got -1"),
        ({"pack_size": 0}, InvalidInputError, "pack_size must be from 1 to"),
        ({"arrays": "/t"}, TypeError, "arrays must be"),
        ({"arrays": (1,)}, TypeError, "arrays must be"),
        ({"live_fraction": "0.5"}, TypeError, "live_fraction must be"),
    ],
)
def test_limits_that_are_refused(limits: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        frazil.CompactionLimits(**limits)
    assert getattr(caught.value, "kind", "invalid-argument") == "invalid-argument"


TOMORROW = datetime.now(UTC) + timedelta(days=1)


def root_of(repo: frazil.Repository) -> str:
    *_, root = repo.ancestry(branch="main")
    return str(root.id)


def stored(repo: frazil.Repository) -> dict[str, bytes]:
    return {info.key: bytes(repo.storage.get(info.key)) for info in repo.storage.list("")}


PLANS: dict[str, Callable[[frazil.Repository], frazil.UpkeepPlan[Any, Any]]] = {
    "collect": lambda repo: repo.upkeep.collect(TOMORROW),
    "expire": lambda repo: repo.upkeep.expire(TOMORROW),
    "retain": lambda repo: repo.upkeep.retain(frazil.Retention(last=2)),
    "squash": lambda repo: repo.upkeep.squash("main", root_of(repo)),
    "compact": lambda repo: repo.upkeep.compact("merge", branch="main", limits=LIMITS),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_prints_becomes_json_and_is_applied(name: str) -> None:
    repo = small_files(MemoryStorage())
    repo.reset_branch("main", [*repo.ancestry(branch="main")][1].id)  # a version without a branch
    repo.storage.put("leases/ended", b'{"age": 1, "left": -60000000}')
    before = stored(repo)
    plan = PLANS[name](repo)
    document = json.loads(json.dumps(plan.as_dict()))
    assert "shown_as" not in document
    assert document["operation"] == name
    assert f"operation: {name}" in str(plan)
    assert stored(repo) == before
    plan.apply()
    assert stored(repo) != before
    again = PLANS[name](repo).as_dict()
    rows = [
        row for each in ("files", "removed") for row in again.get(each, ()) if row.get("kind") != "backups"
    ]
    assert rows == []


@pytest.mark.parametrize("message", [None, "one"])
def test_the_plan_of_a_squash_names_the_versions_that_leave(message: str | None) -> None:
    repo = small_files(MemoryStorage())
    plan = repo.upkeep.squash("main", root_of(repo), message=message)
    leaving, staying = (set(each.ids()) for each in (plan.report.removed, plan.report.retained))
    tip = plan.apply()
    after = {each.id for each in repo.ancestry(branch="main")}
    assert after == staying | {tip}
    assert not leaving & after


def test_a_plan_that_was_looked_at_reads_manifests_once() -> None:
    storage = commits(6)
    requests: list[str] = []
    plan = opened_by(storage, Seen(storage, requests.append)).upkeep.collect(TOMORROW)
    assert plan.report.chunks_deleted == plan.apply().chunks_deleted == 1
    reads = Counter(what.partition("/")[0] for what in requests)
    assert (reads["get snapshots"], reads["get manifests"]) == (7, 6)


def test_an_unknown_engine_is_refused_with_the_known_names() -> None:
    repo = frazil.Repository.create(MemoryStorage())
    with pytest.raises(frazil.errors.InvalidInputError, match=r"'inline'.*'processes'.*'spark'") as error:
        repo.upkeep.collect(TOMORROW, engine="fast")  # type: ignore[arg-type]
    assert error.value.kind == frazil.errors.ErrorKind.UNKNOWN_CHOICE
