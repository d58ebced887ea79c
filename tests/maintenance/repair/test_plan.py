"""Every damage of a table is repaired: the contents are the original ones, and nothing is left to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, override

import numpy as np
import pytest
import zarr
from tests.maintenance.schedules import killing
from tests.maintenance.test_single_damages import WAYS, flipped, harm
from tests.maintenance.test_verification import config, keys, small
from tests.repository.version_1 import copy_of, fill
from tests.support.errors import of_kind
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.judge import readable_by_reference
from tests.support.tiers import deep
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil.errors import (
    ConflictError,
    ErrorKind,
    FormatError,
    InvalidInputError,
    RepositoryNotFoundError,
    StorageError,
)
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.manifest import NativeRef
from frazil.format.repo_info import decode_repo_info
from frazil.handle.repository import context_of
from frazil.maintenance.repair.copies import rebuilt_log
from frazil.maintenance.repair.storages import Overlay, Quarantine
from frazil.repository.catalog import repo_update
from frazil.storage.base import ALWAYS, Condition
from frazil.storage.memory import MemoryStorage
from frazil.testing.storage_suite import StorageSuite

repair = frazil.Repository.upkeep.repair

FOLDERS = ("snapshots", "transactions", "manifests", "chunks", "overwritten", "repo")
CHANGES = {way: WAYS[way][0] for way in ("deleted", "cut", "empty")}
CHANGES |= {f"a bit at {at}": flipped(at) for at in (0.6, 1.0)}
FIRST_LOG = "transactions/1CECHNKREP0F1RSTCMT0"


@cache
def original(spec_version: int = 2) -> MemoryStorage:
    storage: MemoryStorage = small(spec_version).storage  # type: ignore[assignment]
    return storage


@cache
def tiny() -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, config())
    with repo.transaction("main", message="0") as store:
        zarr.create_array(store, name="a", shape=(4,), chunks=(2,), dtype="i8", compressors=None)[:] = 7
    repo.create_tag("v0", repo.lookup_branch("main"))
    return storage


def contents(storage: Any) -> dict[str, bytes]:
    """All files but those put aside, and those of the update that restores ``repo``."""
    changing = ("quarantine/", "overwritten/", "repo")
    return {
        each.key: bytes(storage.get(each.key))
        for each in storage.list("")
        if not each.key.startswith(changing)
    }


def values(storage: Any) -> dict[str, Any]:
    """The arrays of every tag."""
    repo = frazil.Repository.open(storage)
    sessions = {tag: repo.readonly_session(tag=tag) for tag in repo.list_tags()}
    return {
        f"{tag}/{name}": frazil.read(each, name).tolist() for tag, each in sessions.items() for name in "ab"
    }


def affected(storage: Any, folder: str) -> list[str]:
    if folder == "repo":
        return ["repo"]
    if folder == "overwritten":  # only backups that hold a part of the ops log are verified
        info = decode_repo_info(storage.get("repo"), "repo")
        return [f"overwritten/{info.repo_before_updates}"]
    return keys(storage, folder)[-1:]


def aside(storage: Any) -> dict[str, bytes]:
    return {each.key.split("/", 2)[2]: bytes(storage.get(each.key)) for each in storage.list("quarantine")}


@pytest.mark.sample(1, 3)
@pytest.mark.parametrize("how", ["deleted", "cut", *deep("empty", "a bit at 0.6", "a bit at 1.0")])
@pytest.mark.parametrize("folder", FOLDERS)
def test_from_a_copy(folder: str, how: str) -> None:
    before = original()
    for key in affected(before, folder):
        storage = copy_of(before)
        harm(storage, key, CHANGES[how])
        damaged = None if storage.head(key) is None else bytes(storage.get(key))
        unchanged = {each.key: bytes(storage.get(each.key)) for each in storage.list("")}
        plan = repair(storage, copies=[before], level="checksum")
        assert [row["key"] for row in plan.rows()] == [key]
        assert {each.key: bytes(storage.get(each.key)) for each in storage.list("")} == unchanged
        plan.apply()
        assert frazil.Repository.open(storage).upkeep.verify("checksum").ok
        assert contents(storage) == contents(before)
        assert values(storage) == values(before)
        assert aside(storage) == ({} if damaged is None else {key: damaged})
        again = repair(storage, copies=[before], level="checksum")
        assert again.ok, str(again)


def crashes(before: MemoryStorage, act: Callable[[Any], Any]) -> Iterator[MemoryStorage]:
    """Yield the storage after a crash at each write of ``act``, before and after its effect."""
    for after, deadly in product((False, True), range(100)):
        storage = copy_of(before)
        try:
            act(killing(storage, deadly, StorageError("injected"), after=after, prefix=("put", "delete")))
        except StorageError:
            yield storage


@pytest.mark.sample(2, 2)
@pytest.mark.deep
@pytest.mark.parametrize("folder", ["chunks", *deep("repo", "manifests", "transactions")])
def test_a_crash_at_each_write(folder: str) -> None:
    before = tiny()
    broken = copy_of(before)
    for key in affected(before, folder):
        broken.put(key, b"")
    count = 0
    for storage in crashes(broken, lambda storage: repair(storage, copies=[before]).apply()):
        count += 1
        repair(storage, copies=[before]).apply()
        assert frazil.Repository.open(storage).upkeep.verify("checksum").ok
        assert contents(storage) == contents(before)
        assert repair(storage, copies=[before]).ok
        assert {b""} <= set(aside(storage).values())
    assert count >= 4


def test_a_copy_of_another_repository_is_refused() -> None:
    storage = copy_of(original())
    other = MemoryStorage()
    frazil.Repository.create(other)
    for wrong in (other, MemoryStorage()):
        with pytest.raises(InvalidInputError, match="copies must be"):
            repair(storage, copies=[wrong])


def test_without_any_backup() -> None:
    storage = copy_of(original())
    storage.delete(["repo", *keys(storage, "overwritten")])
    with pytest.raises(RepositoryNotFoundError, match=r"found none in in-memory.*or pass copies="):
        repair(storage)
    repair(storage, copies=[original()]).apply()
    assert values(storage) == values(original())


@pytest.mark.deep
def test_the_reference_reads_the_result(tmp_path: Path) -> None:
    before = original()
    storage: Any = frazil.local_filesystem_storage(str(tmp_path))
    fill(storage, before)
    for folder in ("snapshots", "manifests", "chunks"):
        storage.delete(keys(storage, folder)[1:2])
    storage.delete(keys(storage, "transactions"))
    storage.put("repo", b"x")
    assert repair(storage, copies=[before]).apply().complete
    assert storage.head(FIRST_LOG) is not None
    readable_by_reference(tmp_path)
    assert np.array_equal(values(storage)["v3/a"], values(before)["v3/a"])


def test_a_commit_between_the_plan_and_its_application() -> None:
    before = original()
    storage = copy_of(before)
    repo = frazil.Repository.open(storage)
    storage.delete([f"snapshots/{repo.lookup_tag('v1')}", keys(storage, "chunks")[0]])
    plan = repair(storage, copies=[before])
    assert len(plan.rows()) == 2
    with repo.transaction("main", message="meanwhile") as store:
        zarr.create_array(store, name="c", shape=(1,), dtype="i1")
    plan.apply()
    assert repo.upkeep.verify("checksum").ok
    assert next(iter(repo.ancestry(branch="main"))).message == "meanwhile"


def test_a_copy_that_changes_after_the_plan_is_not_used() -> None:
    before = original()
    storage, copy = copy_of(before), copy_of(before)
    key = keys(storage, "chunks")[0]
    storage.delete([key])
    plan = repair(storage, copies=[copy])
    copy.put(key, b"short")
    with pytest.raises(FormatError, match="must have"):
        plan.apply()
    assert storage.head(key) is None


def test_a_copy_with_a_changed_bit_is_not_used() -> None:
    before = original()
    storage, copy = copy_of(before), copy_of(before)
    key = keys(storage, "chunks")[0]
    data = bytes(storage.get(key))
    copy.put(key, bytes([data[0] ^ 1]) + data[1:])
    storage.delete([key])
    assert not repair(storage, copies=[copy]).steps
    (step,) = repair(storage, copies=[copy, before]).apply().steps
    assert step.certainty == "proved"
    assert bytes(storage.get(key)) == data


def test_a_copy_with_its_own_commits_does_not_give_repo() -> None:
    before = original()
    storage, copy = copy_of(before), copy_of(before)
    with frazil.Repository.open(copy).transaction("main", message="of the copy") as store:
        zarr.create_array(store, name="c", shape=(1,), dtype="i1")
    storage.delete(["repo"])
    plan = repair(storage, copies=[copy])
    assert plan.steps[0].source.startswith("overwritten/")
    assert repair(storage, copies=[copy, before]).steps[0].source.startswith("repo of")


def test_a_tag_comes_from_a_copy_only() -> None:
    storage = copy_of(original(1))
    copy = copy_of(storage)
    key = "refs/tag.v1/ref.json"
    storage.put(key, b"")
    assert not repair(storage).steps
    assert [each.key for each in repair(storage).findings] == [key]
    plan = repair(storage, copies=[copy]).apply()
    assert [each.certainty for each in plan.steps] == ["proved"]
    opened = [frazil.Repository.open(each) for each in (storage, copy)]
    assert opened[0].lookup_tag("v1") == opened[1].lookup_tag("v1")


def test_deleted_refs_stay_deleted() -> None:
    storage = copy_of(original(1))
    repo = frazil.Repository.open(storage)
    repo.create_branch("dev", repo.lookup_branch("main"))
    copy = copy_of(storage)
    repo.delete_branch("dev")
    repo.delete_tag("v1")
    assert repair(storage, copies=[copy]).ok


@pytest.mark.parametrize("folder", ["snapshots", "manifests", "chunks", "transactions"])
def test_other_files_of_version_1(folder: str) -> None:
    storage = copy_of(original(1))
    copy = copy_of(storage)
    key = max(each.key for each in storage.list(folder))
    data = bytes(storage.get(key))
    storage.put(key, b"")
    plan = repair(storage, copies=[] if folder == "transactions" else [copy]).apply()
    assert [each.action for each in plan.steps] == ["rebuild" if folder == "transactions" else "copy"]
    assert bytes(storage.get(key)) == data
    assert repair(storage).ok


def every_kind_of_commit() -> frazil.Repository:
    """Commits of every kind: nodes and chunks, created, updated, deleted, moved, resized."""
    storage = MemoryStorage()
    config = frazil.RepositoryConfig(packing=frazil.PackingConfig(enabled=False))
    repo = frazil.Repository.create(storage, config)

    def create(store: Any) -> None:
        root = zarr.create_group(store)
        for name in ("a", "g/b", "g/h/c"):
            array = root.create_array(name, shape=(6, 4), chunks=(2, 2), dtype="i8")
            array[:] = np.arange(24).reshape(6, 4)

    def change_values(store: Any) -> None:
        zarr.open_array(store, path="a")[1:3, :2] = 77

    def change_metadata(store: Any) -> None:
        zarr.open_array(store, path="g/b").attrs["units"] = "K"
        zarr.open_group(store, path="g").attrs["n"] = 1

    def resize(store: Any) -> None:
        zarr.open_array(store, path="a").resize((8, 4))
        zarr.open_array(store, path="g/b").resize((2, 4))

    def delete(store: Any) -> None:
        del zarr.open_group(store)["g/h"]

    for number, act in enumerate((create, change_values, change_metadata, resize, delete)):
        with repo.transaction("main", message=str(number)) as store:
            act(store)
    session = repo.rearrange_session("main")
    session.move("/g/b", "/b")
    session.commit("move")
    return repo


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    return every_kind_of_commit()


def test_the_bytes_are_those_of_the_commit(repo: frazil.Repository) -> None:
    context = context_of(repo)
    versions = list(repo.ancestry(branch="main"))
    for info in versions:
        id_ = id_from_text(info.id)
        parent = None if info.parent_id is None else id_from_text(info.parent_id)
        name = next(name for name in keys(repo.storage, "transactions") if id_ == id_from_text(name[13:]))
        assert rebuilt_log(context, id_, parent) == bytes(repo.storage.get(name)), name
    assert len(versions) == 7


def with_commits(commits: int = 3) -> frazil.Repository:
    repo = frazil.Repository.create(MemoryStorage(), config())
    for number in range(commits):
        commit(repo, number)
    return repo


def commit(repo: frazil.Repository, number: int, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    if number == 0:
        zarr.create_array(session.store, name="x", shape=(16,), chunks=(1,), dtype="i4", compressors=None)
    else:
        zarr.open_array(session.store, path="x")[number] = number
    return session.commit(str(number))


def messages(storage: Any, branch: str = "main") -> list[str]:
    return [info.message for info in frazil.Repository.open(storage).ancestry(branch=branch)]


def lose_updates(storage: Any, updates: int) -> None:
    """Delete `repo` and the newest backups, so that only the state before ``updates`` updates is left."""
    names = [each.name for each in frazil.Repository.upkeep.backups(storage)]
    storage.delete(["repo", *(f"overwritten/{name}" for name in names[: updates - 1])])


@pytest.mark.deep
def test_a_chain_of_lost_commits_comes_back() -> None:
    repo = with_commits(5)
    before = messages(repo.storage)
    lose_updates(repo.storage, 3)
    plan = repair(repo.storage)
    assert [each.action for each in plan.steps] == ["restore", "relist", "relist", "relist"]
    plan.apply()
    assert messages(repo.storage) == before
    assert frazil.Repository.open(repo.storage).upkeep.verify("checksum").ok
    assert repair(repo.storage).ok


def test_an_older_repo_file_gets_the_later_commits_back() -> None:
    """After a partial restoration of files, `repo` is older than its backups."""
    repo = with_commits(5)
    storage, before = repo.storage, messages(repo.storage)
    names = [each.name for each in frazil.Repository.upkeep.backups(storage)]
    storage.put("repo", storage.get(f"overwritten/{names[2]}"))
    assert len(messages(storage)) == len(before) - 3
    old = frazil.Repository.open(storage)
    assert "repo-latest" in {each.check for each in old.upkeep.verify("metadata").findings}
    assert "repo-latest" in {each.check for each in old.upkeep.doctor().findings}
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(frazil.FormatError, match="latest state"):
        old.garbage_collect(tomorrow)
    repair(storage).apply()
    assert messages(storage) == before
    fresh = frazil.Repository.open(storage)
    fresh.garbage_collect(tomorrow)
    assert fresh.upkeep.verify("checksum").ok
    assert repair(storage).ok


def test_the_latest_backup_has_the_name_of_a_late_clock() -> None:
    repo = with_commits(5)
    storage = repo.storage
    newest, later, third, *_ = (f"overwritten/{each.name}" for each in repo.upkeep.backups(storage))
    storage.put("repo", storage.get(third))
    storage.put("overwritten/repo.99999999999999.XXXXXXXXXXXXXXXXXXXX", storage.get(later))
    storage.delete([newest, later])
    old = frazil.Repository.open(storage)
    assert "repo-latest" in {each.check for each in old.upkeep.verify("metadata").findings}
    assert repair(storage).steps[0].action == "restore"


def test_a_check_reads_no_backup_that_repo_names(monkeypatch: pytest.MonkeyPatch) -> None:
    repo, read = with_commits(3), list[str]()
    monkeypatch.setattr(repo_update, "read_backup", lambda storage, name: read.append(name))
    assert repo_update.later_backup(repo.storage) is None
    assert read == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["reset", "restore"])
def test_a_state_that_goes_back_on_purpose_is_the_latest(kind: str) -> None:
    repo = with_commits(4)
    if kind == "reset":
        repo.reset_branch("main", [*repo.ancestry(branch="main")][2].id)
    else:
        name = [each.name for each in frazil.Repository.upkeep.backups(repo.storage)][2]
        frazil.Repository.upkeep.restore(repo.storage, name, overwrite=True).apply()
    assert frazil.Repository.open(repo.storage).upkeep.verify("checksum").ok
    assert repair(repo.storage).ok


def test_a_plan_can_be_applied_twice() -> None:
    repo = with_commits()
    lose_updates(repo.storage, 1)
    plan = repair(repo.storage)
    plan.apply()
    plan.apply()
    assert messages(repo.storage)[0] == "2"


def test_two_snapshots_on_the_same_tip_need_a_guess() -> None:
    repo = with_commits()
    one, other = repo.writable_session("main"), repo.writable_session("main")
    for number, session in enumerate((one, other), 8):
        zarr.open_array(session.store, path="x")[number] = 1
    ids = [one.commit("one"), other.flush("other")]
    lose_updates(repo.storage, 2)
    plan = repair(repo.storage)
    assert [each.action for each in plan.steps] == ["restore"]
    assert {each.id for each in plan.detached} == set(ids)


def test_a_refused_commit_that_fits_two_versions_stays_detached() -> None:
    """The commit started from the version before the tip, and wrote the chunk of the tip."""
    repo = with_commits()
    late = repo.writable_session("main")
    with repo.transaction("main", message="first") as store:
        zarr.open_array(store, path="x")[9] = 1
    zarr.open_array(late.store, path="x")[9] = 2
    refused = late.flush("refused")
    lose_updates(repo.storage, 1)
    plan = repair(repo.storage)
    assert [each.id for each in plan.detached] == [refused]


def test_a_lost_log_of_a_lost_commit_stays_detached() -> None:
    repo = with_commits()
    tip = repo.lookup_branch("main")
    storage = copy_of(repo.storage)
    lose_updates(storage, 1)
    storage.delete([f"transactions/{tip}"])
    plan = repair(storage)
    assert [each.id for each in plan.detached] == [tip]
    assert len(keys(storage, "snapshots")) == 4


def test_a_child_of_a_detached_snapshot_may_belong_to_the_same_branches() -> None:
    repo = with_commits()
    repo.create_branch("dev", repo.lookup_branch("main"))
    ids = [commit(repo, number, "dev") for number in (4, 5)]
    lose_updates(repo.storage, 2)
    plan = repair(repo.storage).apply()
    assert [(each.id, each.branches) for each in plan.detached] == [(id_, ("dev", "main")) for id_ in ids]
    restored = frazil.Repository.open(repo.storage)
    for id_ in ids:
        restored.upkeep.recover(id_, "dev")
    assert messages(repo.storage, "dev")[:2] == ["5", "4"]


class TestContract(StorageSuite):
    @override
    @pytest.fixture
    def storage(self) -> Any:
        return Overlay(MemoryStorage())


def test_writes_links_and_deletions() -> None:
    base, other = MemoryStorage(), MemoryStorage()
    for name in ("a", "b", "c"):
        base.put(f"d/{name}", b"base")
    other.put("far", b"other")
    overlay = Overlay(base)
    overlay.put("d/a", b"new")
    overlay.link("d/b", other, "far")
    overlay.delete(["d/c"])
    assert {each.key: bytes(overlay.get(each.key)) for each in overlay.list("d")} == {
        "d/a": b"new",
        "d/b": b"other",
    }
    assert overlay.head("d/c") is None
    with pytest.raises(StorageError):
        overlay.get("d/c")
    assert {bytes(base.get(each.key)) for each in base.list("")} == {b"base"}
    assert len(list(base.list(""))) == 3


def storage_with(data: bytes) -> MemoryStorage:
    storage = MemoryStorage()
    storage.put("chunks/A", data)
    return storage


def test_a_file_that_changes_meanwhile_is_not_overwritten() -> None:
    inner = storage_with(b"bad")

    class Racing(FaultyStorage):
        def put(self, key: str, data: Any, condition: Condition = ALWAYS) -> Any:
            if key == "chunks/A":
                inner.put(key, b"another writer")
            return super().put(key, data, condition)

    with pytest.raises(ConflictError, check=of_kind(ErrorKind.REPO_INFO_UPDATED)):
        Quarantine.new().replace_file(Racing(inner, lambda key, condition: None), "chunks/A", b"good")
    assert bytes(inner.get("chunks/A")) == b"another writer"


def test_a_write_that_met_itself_is_done() -> None:
    inner = storage_with(b"bad")
    storage = FaultyStorage(inner, lambda key, condition: Fault.MET_ITSELF)
    assert Quarantine("quarantine/t").replace_file(storage, "chunks/A", b"good")
    assert bytes(inner.get("chunks/A")) == b"good"


def chunk_of(repo: frazil.Repository, path: str, coords: tuple[int, ...]) -> str:
    ref = repo.readonly_session("main").workspace.ref(path, coords)
    assert isinstance(ref, NativeRef)
    return f"chunks/{id_to_text(ref.chunk_id)}"


def array_values(repo: frazil.Repository, **version: Any) -> list[int]:
    session = repo.readonly_session(**version) if version else repo.readonly_session("main")
    array: list[int] = zarr.open_array(session.store, path="a", mode="r")[:].tolist()  # type: ignore[union-attr]
    return array


def damaged() -> tuple[frazil.Repository, str]:
    """A repository whose chunk (1,) of array `a` is lost in its newest version."""
    repo = small()
    key = chunk_of(repo, "/a", (1,))
    repo.storage.delete([key])
    return repo, key


def test_the_plan_describes_lost_chunks() -> None:
    repo, key = damaged()
    plan = repair(repo.storage)
    (row,) = plan.lost_rows()
    assert row == {
        "key": key,
        "path": "/a",
        "coordinates": [1],
        "versions": [repo.lookup_branch("main")],
        "previous": repo.lookup_tag("v2"),
        "branches": ["main"],
    }
    assert not plan.steps
    assert all(text in str(plan) for text in ("1 chunk of /a", "fill: 1 chunk", "previous: 1 chunk"))


@pytest.mark.sample(1)
@pytest.mark.parametrize(("choice", "expected"), [("fill", [30, 31, 0, 0]), ("previous", [30, 31, 22, 23])])
def test_a_commit_without_the_lost_chunk(choice: Any, expected: list[int]) -> None:
    repo, key = damaged()
    before = repo.lookup_branch("main")
    plan = repair(repo.storage, lost=choice)
    assert [(each.action, each.keys) for each in plan.steps] == [("commit", (key,))]
    assert repo.lookup_branch("main") == before
    plan.apply()
    repo = frazil.Repository.open(repo.storage)
    assert array_values(repo) == expected
    (commit, parent, *_) = repo.ancestry(branch="main")
    assert parent.id == before
    assert commit.metadata["__frazil"] == {"repair": {"lost": [key]}}
    again = repair(repo.storage, lost=choice)
    assert not again.steps
    assert again.choices == (0, 0)
    assert "1 chunk of /a, which no readable tip of a branch needs: nothing is left to do there" in str(again)
    assert "choices" not in str(again)
    assert "does not exist" in str(again)
    # The older version still has the damage.
    assert [each.key for each in repo.upkeep.verify("exists").findings] == [key]


def test_a_branch_that_moves_meanwhile() -> None:
    repo, _ = damaged()
    plan = repair(repo.storage, lost="fill")
    with repo.transaction("main", message="other") as store:
        zarr.open_array(store, path="a")[2:] = 5
    plan.apply()  # the chunk is not lost at the new tip
    assert array_values(frazil.Repository.open(repo.storage)) == [30, 31, 5, 5]
    assert next(iter(repo.ancestry(branch="main"))).message == "other"


def test_another_choice_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="one of keep, fill, previous"):
        repair(small().storage, lost="guess")  # type: ignore[arg-type]


@pytest.mark.sample(4)
@pytest.mark.parametrize("shards", [None, (4,)])
@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        ("i2", {"attributes": {"_FillValue": -9}}, -9),
        ("i2", {"attributes": {"missing_value": -9}, "fill_value": 3}, -9),
        ("i2", {"attributes": {"_FillValue": 0, "scale_factor": 0.5}}, 0),
        ("i2", {"fill_value": 7}, 7),
        ("f4", {}, np.nan),
        ("f4", {"attributes": {"_FillValue": 1e20}}, np.float32(1e20)),
    ],
)
def test_lost_chunks_read_as_missing_values(dtype: str, options: Any, expected: Any, shards: Any) -> None:
    """The element that a CF decoder reads as missing; the fill value of zarr if there is no such element."""
    repo = frazil.Repository.create(MemoryStorage(), config())
    with repo.transaction("main", message="an array") as store:
        array = zarr.create_array(
            store, name="a", shape=(10,), chunks=(2,), shards=shards, dtype=dtype, **options
        )
        array[:] = np.arange(10) + 1
    size = 4 if shards else 2
    for chunk in (1, (10 - 1) // size):
        repo.storage.delete([chunk_of(repo, "/a", (chunk,))])
    plan = repair(repo.storage, lost="fill").apply()
    has_element = dtype == "f4" or "attributes" in options
    assert ("as missing values" in plan.steps[0].why) == has_element
    stored = zarr.open_array(frazil.Repository.open(repo.storage).readonly_session("main").store, path="a")
    want = np.arange(10).astype(dtype) + np.array(1, dtype)
    for start in (size, (10 - 1) // size * size):
        want[start : start + size] = expected
    np.testing.assert_array_equal(stored[:], want)


@pytest.mark.parametrize("choice", ["fill", "previous"])
def test_an_unreadable_manifest_leaves_a_plan(choice: Any) -> None:
    """The chunk is lost in an older version too, whose manifest can be read."""
    repo = small()
    storage = repo.storage
    chunk = chunk_of(repo, "/a", (0,))
    with repo.transaction("main", message="newer") as store:
        zarr.open_array(store, path="a")[2:] = 5
    tip = repo.readonly_session("main").workspace.require_array("/a")
    assert tip.array is not None
    (manifest,) = [f"manifests/{id_to_text(each.id)}" for each in tip.array.manifests]
    storage.delete([chunk])
    storage.put(manifest, b"no manifest")
    plan = repair(storage, lost=choice)
    assert {each.key for each in plan.findings} == {chunk, manifest}
    assert not plan.complete
    assert [each.key for each in plan.lost] == [chunk]
    assert not [each for each in plan.steps if each.action == "commit"]


def test_a_good_chunk_in_the_file_of_a_lost_chunk_stays() -> None:
    """Each of two packs has one damaged chunk. The same coordinates lead to both packs, in two versions."""
    repo = frazil.Repository.create(MemoryStorage(), frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
    for value in (10, 20):
        with repo.transaction("main", message=str(value)) as store:
            if value == 10:
                zarr.create_array(store, name="a", shape=(4,), chunks=(1,), dtype="i8", compressors=None)
            array: Any = zarr.open_array(store, path="a")
            array[:] = np.arange(4) + value
    for message, chunk in (("10", 3), ("20", 1)):
        (version,) = [each.id for each in repo.ancestry(branch="main") if each.message == message]
        ref = repo.readonly_session(snapshot_id=version).workspace.ref("/a", (chunk,))
        assert isinstance(ref, NativeRef)
        key = f"chunks/{id_to_text(ref.chunk_id)}"
        data = bytearray(repo.storage.get(key))
        data[ref.offset] ^= 4
        repo.storage.put(key, data)
    repair(repo.storage, level="checksum", lost="fill").apply()
    assert array_values(frazil.Repository.open(repo.storage)) == [20, 0, 22, 23]


@pytest.mark.parametrize(
    "change",
    [
        {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]},
        {"data_type": "uint64"},
        {"fill_value": 7},
        {"attributes": {"scale_factor": 0.1}},
        {"attributes": {"add_offset": 5}},
        {"attributes": {"_FillValue": 3}},
        {"attributes": {"units": "days since 2000-01-01"}},
        {"attributes": {"title": "no change of the meaning"}},
    ],
    ids=str,
)
def test_bytes_of_another_meaning_are_no_offer(change: dict[str, Any]) -> None:
    repo = small()
    key, tip = "a/zarr.json", repo.lookup_branch("main")
    with repo.transaction("main", message="other metadata") as store:
        stored = store.get_sync(key)
        assert stored is not None
        document = json.loads(stored.to_bytes())
        store.set_sync(key, Buffer.from_bytes(json.dumps(document | change).encode()))
        store.set_sync("a/c/1", Buffer.from_bytes(bytes(range(16))))
    repo.storage.delete([chunk_of(repo, "/a", (1,))])
    plan = repair(repo.storage, lost="previous")
    is_same = "title" in str(change)
    assert [each["previous"] for each in plan.lost_rows()] == [tip if is_same else None]
    assert len(plan.steps) == is_same
