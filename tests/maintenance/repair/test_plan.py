"""Every damage of a table is repaired: the contents are the original ones, and nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.maintenance.schedules import Seen
from tests.maintenance.test_single_damages import WAYS, flipped, harm
from tests.maintenance.test_verification import config, keys, small
from tests.repository.version_1 import copy_of, fill
from tests.support.judge import readable_by_reference
from tests.support.tiers import deep

import frazil
from frazil.errors import FormatError, InvalidInputError, RepositoryNotFoundError, StorageError
from frazil.format.repo_info import decode_repo_info
from frazil.storage.memory import MemoryStorage

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


@contextmanager
def _stop(left: list[int], fails: bool) -> Iterator[None]:
    left[0] -= 1
    if left[0] == 0 and not fails:
        raise StorageError("injected: lost")
    yield
    if left[0] == 0:
        raise StorageError("injected: the answer is lost")
    if left[0] < 0:
        raise StorageError("injected: the process has died")


def crashes(before: MemoryStorage, act: Callable[[Any], Any]) -> Iterator[MemoryStorage]:
    """Yield the storage after a crash at each request that ``act`` makes, before and after its effect."""
    for takes_effect in (False, True):
        number = 0
        while True:
            number += 1
            left = [number]
            storage = copy_of(before)

            def meet(what: str, left: list[int] = left, takes_effect: bool = takes_effect) -> Any:
                if what.startswith(("get", "head", "list")) and left[0] > 0:
                    return nullcontext()
                return _stop(left, takes_effect)

            with suppress(StorageError):
                act(Seen(storage, meet))
            if left[0] > 0:
                break
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
    with pytest.raises(RepositoryNotFoundError, match="Pass a copy"):
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
