"""Parts and clones of repositories, beside others, and after crashes."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from tests.maintenance.schedules import Seen
from tests.maintenance.test_in_use import opened_by
from tests.pipeline.transform.shared import clone_repository, copy_repository
from tests.repository.version_1 import copy_of
from tests.support.judge import reference_storage, same_by_reference
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

import frazil
from frazil.errors import ConflictError, ErrorKind, FormatError, IcechunkError, InvalidInputError
from frazil.maintenance.verification.plan import stored_findings
from frazil.pipeline import RepositoryPart
from frazil.pipeline.replication import operation
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store import ObjectStorage

LATER = datetime.now(UTC) + timedelta(days=1)
NEWEST = RepositoryPart(newest_only=True)


def write(repo: frazil.Repository, path: str, value: int, branch: str = "main") -> None:
    with repo.transaction(branch, message=f"{path} {value}") as store:
        zarr.create_array(store, name=path, data=np.full((4, 30), value), chunks=(2, 30), overwrite=True)


def fill(storage: frazil.Storage) -> frazil.Repository:
    """``main`` with three commits; ``dev`` with one more after the second; two tags."""
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(storage, config)
    write(repo, "group/a", 1)
    write(repo, "b", 2)
    repo.create_branch("dev", repo.lookup_branch("main"))
    repo.create_tag("v1", repo.lookup_branch("main"))
    write(repo, "only_dev", 3, "dev")
    write(repo, "group/a", 4)
    repo.create_tag("other", repo.lookup_branch("main"))
    return repo


_watched: weakref.WeakValueDictionary[int, Watched] = weakref.WeakValueDictionary()


class Watched(Seen):
    """A storage that tasks get, too: a pickled copy is the storage itself."""

    def __init__(self, inner: frazil.Storage, meet: Any = lambda what: nullcontext()) -> None:
        super().__init__(inner, meet)
        _watched[id(self)] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_watched_of, (id(self),))


def _watched_of(number: int) -> Watched:
    return _watched[number]


@cache
def template() -> MemoryStorage:
    storage = MemoryStorage()
    fill(storage)
    return storage


@pytest.fixture
def repo() -> frazil.Repository:
    return frazil.Repository.open(copy_of(template()))


def values(repo: frazil.Repository, **version: Any) -> dict[str, int]:
    group = zarr.open_group(repo.readonly_session(**(version or {"branch": "main"})).store, mode="r")
    members = group.members(max_depth=None)
    found = {path: np.unique(node[...]).tolist() for path, node in members if isinstance(node, zarr.Array)}
    return {path: value for path, (value,) in found.items()}


@pytest.mark.deep
def test_a_copy_is_complete_and_later_copies_add_more(repo: frazil.Repository, tmp_path: Path) -> None:
    place = frazil.local_filesystem_storage(str(tmp_path))
    first = copy_repository(repo, place)
    copy = frazil.Repository.open(place)
    for each in ("dev", "main"):
        assert copy.lookup_branch(each) == repo.lookup_branch(each)
        assert values(copy, branch=each) == values(repo, branch=each)
    assert copy.lookup_tag("v1") == repo.lookup_tag("v1")
    assert len(list(copy.ops_log())) == len(list(repo.ops_log()))
    assert (first.objects > 8, first.existing) == (True, 0)
    same_by_reference(tmp_path, copy)
    assert copy_repository(repo, place).objects == 0
    write(repo, "b", 9)
    again = copy_repository(repo, place)
    assert (again.existing, again.objects < 8) == (first.objects, True)
    copy = frazil.Repository.open(place)
    assert values(copy)["b"] == 9
    same_by_reference(tmp_path, copy)


def test_commits_of_a_copy_are_not_lost(repo: frazil.Repository) -> None:
    place, other = MemoryStorage(), MemoryStorage()
    copy_repository(repo, place)
    write(frazil.Repository.open(place), "b", 9)
    text = r"(?s)hold an earlier copy.* which the source does not have"
    with pytest.raises(ConflictError, match=text) as caught:
        copy_repository(repo, place)
    assert caught.value.kind == "repo-info-updated"
    copy_repository(repo, other)
    frazil.Repository.open(other).create_tag("mine", repo.lookup_branch("main"))
    with pytest.raises(ConflictError, match="tag 'mine', which the source does not have"):
        copy_repository(repo, other)


def test_a_target_that_changes_meanwhile(repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    place = MemoryStorage()

    def meanwhile(*args: Any) -> Any:
        frazil.Repository.create(place, check_clean_root=False)
        return stored_findings(*args)

    monkeypatch.setattr(operation, "stored_findings", meanwhile)
    with pytest.raises(ConflictError, match="Another writer changed the repository in"):
        copy_repository(repo, place)


FOLDERS = ("snapshots", "transactions", "manifests", "chunks", "overwritten")


@pytest.mark.sample(1)
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_damaged_copy_is_healed_by_another_run(repo: frazil.Repository, folder: str) -> None:
    place = MemoryStorage()
    copy_repository(repo, place)
    for key in sorted(each.key for each in place.list(folder)):
        data = bytes(place.get(key))
        place.put(key, bytes([data[0] ^ 1]) + data[1:])
    assert copy_repository(repo, place).objects > 0
    assert copy_repository(repo, place, compare=True).objects == 0
    assert frazil.Repository.open(place).upkeep.verify("checksum").ok
    assert values(frazil.Repository.open(place)) == values(repo)


@pytest.mark.parametrize("folder", FOLDERS[:-1])
def test_a_source_that_has_lost_a_file_is_not_copied_in_silence(repo: frazil.Repository, folder: str) -> None:
    place = MemoryStorage()
    key = max(each.key for each in repo.storage.list(folder))
    repo.storage.delete([key])
    with pytest.raises(FormatError, match=f"not published: (unreadable|missing): {key}"):
        copy_repository(repo, place)
    assert not frazil.Repository.exists(place)
    assert not list(repo.storage.list("leases"))


@pytest.mark.deep
def test_a_part_with_its_history_has_the_same_ids(repo: frazil.Repository, tmp_path: Path) -> None:
    place = frazil.local_filesystem_storage(str(tmp_path))
    part = RepositoryPart(branches=("main",), tags=("v*",))
    done = copy_repository(repo, place, part=part)
    copy = frazil.Repository.open(place)
    assert (copy.list_branches(), copy.list_tags()) == ({"main"}, {"v1"})
    ids = [[info.id for info in each.ancestry(branch="main")] for each in (repo, copy)]
    assert ids[0] == ids[1]
    assert values(copy) == values(repo)
    assert copy.upkeep.verify("checksum").ok
    dev = repo.lookup_branch("dev")
    assert not any(dev in each.key for each in place.list(""))
    assert done.objects < len(list(repo.storage.list(""))) - 10
    same_by_reference(tmp_path)
    write(copy, "b", 9)
    assert values(copy)["b"] == 9
    same_by_reference(tmp_path)


@pytest.mark.deep
def test_the_newest_state_has_no_history(repo: frazil.Repository, tmp_path: Path) -> None:
    place = frazil.local_filesystem_storage(str(tmp_path))
    copy_repository(repo, place, part=NEWEST)
    copy = frazil.Repository.open(place)
    for branch in ("main", "dev"):
        assert values(copy, branch=branch) == values(repo, branch=branch)
        assert len(list(copy.ancestry(branch=branch))) == 2
    assert values(copy, tag="v1") == values(repo, tag="v1")
    tip = next(iter(copy.ancestry(branch="main")))
    assert tip.message == next(iter(repo.ancestry(branch="main"))).message
    assert tip.metadata["__frazil"] == {"source_snapshot": repo.lookup_branch("main")}
    diff = copy.diff(from_snapshot_id=tip.parent_id, to_branch="main")
    assert diff.new_arrays == {"/b", "/group/a"}
    assert copy.upkeep.verify("checksum").ok
    same_by_reference(tmp_path)

    write(repo, "b", 7)
    again = copy_repository(repo, place, part=NEWEST)
    assert 0 < again.objects <= 3
    copy = frazil.Repository.open(place)
    assert values(copy) == {"group/a": 4, "b": 7}
    copy.expire_snapshots(LATER)
    copy.garbage_collect(LATER)
    assert values(copy) == {"group/a": 4, "b": 7}
    assert copy.upkeep.verify("checksum").ok
    same_by_reference(tmp_path)


def test_some_arrays(repo: frazil.Repository) -> None:
    place = MemoryStorage()
    part = RepositoryPart(branches=("main",), tags=(), newest_only=True, arrays=("/group/*",))
    copy_repository(repo, place, part=part)
    copy = frazil.Repository.open(place)
    assert values(copy) == {"group/a": 4}
    assert copy.upkeep.verify("checksum").ok
    assert len(list(place.list("chunks"))) == 1
    with pytest.raises(ConflictError, match="commits on its branch 'main'"):
        copy_repository(repo, place, part=NEWEST)


def test_parts_that_are_not_possible(repo: frazil.Repository) -> None:
    with pytest.raises(InvalidInputError, match="Pass newest_only=True"):
        RepositoryPart(arrays=("/a",))
    with pytest.raises(TypeError, match="branches must be"):
        RepositoryPart(branches="main")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="the part must have a branch or a tag"):
        copy_repository(repo, MemoryStorage(), part=RepositoryPart(branches=("x",), tags=()))
    with pytest.raises(FormatError, match="Upgrade it first"):
        clone_repository(frazil.Repository.create(MemoryStorage(), spec_version=1), MemoryStorage())


def test_a_clone_records_its_origin_and_is_independent(repo: frazil.Repository, tmp_path: Path) -> None:
    place = frazil.local_filesystem_storage(str(tmp_path))
    clone_repository(repo, place)
    clone = frazil.Repository.open(place)
    origin = clone.get_metadata()["frazil.origin"]
    assert origin["storage"] == "in-memory"
    assert origin["refs"]["branches"] == {name: repo.lookup_branch(name) for name in ("main", "dev")}
    assert [each.id for each in clone.ancestry(branch="dev")] == [
        each.id for each in repo.ancestry(branch="dev")
    ]
    with pytest.raises(ConflictError, match="a clone, which has its own history"):
        copy_repository(repo, place)
    write(clone, "b", 5)
    assert (values(clone)["b"], values(repo)["b"]) == (5, 2)
    clone_repository(clone, third := MemoryStorage())
    label = frazil.Repository.open(third).get_metadata()["frazil.origin"]["storage"]
    assert tmp_path.name in label
    assert str(tmp_path) not in label
    kinds = [
        type(each.kind).__name__ for each in icechunk.Repository.open(reference_storage(tmp_path)).ops_log()
    ]
    assert len(kinds) == len(list(clone.ops_log())) == 6
    assert clone.upkeep.verify("checksum").ok
    same_by_reference(tmp_path)
    with pytest.raises(InvalidInputError, match="already exists"):
        clone_repository(repo, place)
    with pytest.raises(ConflictError):
        copy_repository(repo, place)


@pytest.mark.deep
def test_the_bytes_of_objects_that_are_older_than_the_mark_are_not_read(repo: frazil.Repository) -> None:
    place = MemoryStorage()
    copy_repository(repo, place)
    objects = place._contents.objects
    for key, stored in objects.items():
        if key != "copies/checked":
            objects[key] = replace(stored, modified=stored.modified - timedelta(hours=1))
    reads: list[str] = []

    def meet(what: str) -> Any:
        reads.append(what)
        return nullcontext()

    target = Watched(place, meet)
    assert copy_repository(repo, target).objects == 0
    assert not any(what.startswith("get chunks") for what in reads)
    [key] = [each.key for each in place.list("chunks")][:1]
    place.put(key, bytes(len(bytes(place.get(key)))))
    assert copy_repository(repo, target).objects == 1
    assert frazil.Repository.open(place).upkeep.verify("checksum").ok
    objects[key] = replace(objects[key], modified=objects[key].modified - timedelta(hours=1))
    place.put(key, bytes(len(bytes(place.get(key)))))
    objects[key] = replace(objects[key], modified=objects[key].modified - timedelta(hours=1))
    assert copy_repository(repo, target).objects == 0
    mark = bytes(place.get("copies/checked"))
    place.put("copies/checked", b"of another part")
    assert copy_repository(repo, target).objects == 1
    for damage, compare in ((bytes(len(bytes(place.get(key)))), True), (b"of another size", False)):
        place.put(key, damage)
        objects[key] = replace(objects[key], modified=objects[key].modified - timedelta(hours=1))
        place.put("copies/checked", mark)
        assert copy_repository(repo, target, compare=compare).objects == 1


def test_damaged_chunks_of_the_source_are_not_copied(repo: frazil.Repository) -> None:
    place = MemoryStorage()
    key = next(each.key for each in repo.storage.list("chunks"))
    data = bytearray(bytes(repo.storage.get(key)))
    data[1] ^= 1
    repo.storage.put(key, data)
    with pytest.raises(FormatError, match=f"undamaged chunk files, got 1 file .* such as {key}"):
        copy_repository(repo, place)
    assert not frazil.Repository.exists(place)
    assert place.head(key) is None
    data[1] ^= 1
    repo.storage.put(key, data)
    copy_repository(repo, place)
    assert frazil.Repository.open(place).upkeep.verify("checksum").ok


def test_a_backup_that_vanishes_during_the_copy_is_left_out(repo: frazil.Repository) -> None:
    """A writer deletes the backup of an attempt that was refused."""
    place = MemoryStorage()
    key = "overwritten/repo.30000000000000.00000000000000000000"
    repo.storage.put(key, b"of an attempt that is refused a moment later")

    seen = Watched(repo.storage)
    source = opened_by(repo.storage, seen)
    listing = MemoryStorage.list

    def vanishing(prefix: str) -> Any:
        infos = list(listing(repo.storage, prefix))  # type: ignore[arg-type]
        if prefix == "overwritten":
            repo.storage.delete([key])
        return iter(infos)

    seen.list = vanishing  # type: ignore[method-assign]
    copy_repository(source, place)
    assert place.head(key) is None
    assert frazil.Repository.open(place).upkeep.verify("checksum").ok


class Stopped(BaseException):
    """The end of the process."""


def stopping(step: int) -> Any:
    """What `Watched` meets: the process ends at the request number ``step``."""
    requests = count(1)

    def meet(what: str) -> Any:
        if next(requests) >= step:
            raise Stopped
        return nullcontext()

    return meet


COPIES: dict[str, Any] = {
    "copy": lambda repo, place: copy_repository(repo, place),
    "part": lambda repo, place: copy_repository(repo, place, part=RepositoryPart(branches=("main",))),
    "newest": lambda repo, place: copy_repository(repo, place, part=NEWEST),
    "clone": lambda repo, place: clone_repository(repo, place),
}


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize("what", COPIES)
@pytest.mark.parametrize("side", ["source", "target"])
def test_stopped_at_every_request_and_called_again(what: str, side: str) -> None:
    for step in range(1, 300):
        source, place = copy_of(template()), MemoryStorage()
        seen = Watched(source if side == "source" else place)
        repo = opened_by(source, seen) if side == "source" else frazil.Repository.open(source)
        seen.meet = stopping(step)
        try:
            COPIES[what](repo, seen if side == "target" else place)
            done = True
        except (Stopped, IcechunkError):
            done = False
        repo = frazil.Repository.open(source)
        if frazil.Repository.exists(place):
            assert frazil.Repository.open(place).upkeep.verify("checksum").ok
        if what != "clone" or not frazil.Repository.exists(place):
            COPIES[what](repo, place)
        copy = frazil.Repository.open(place)
        assert values(copy) == {"group/a": 4, "b": 2}
        assert copy.upkeep.verify("checksum").ok
        if done:
            break
    assert step > 15


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize("what", COPIES)
def test_beside_a_writer_an_expiration_and_a_collection(what: str) -> None:
    """Between any two requests to the source, others commit, expire and collect."""
    for step in range(1, 300):
        source, place = copy_of(template()), MemoryStorage()
        requests = 0

        def meet(what: str, step: int = step, source: MemoryStorage = source) -> Any:
            nonlocal requests
            requests += 1
            if requests == step:
                others = frazil.Repository.open(source)
                write(others, "b", 99)
                others.expire_snapshots(LATER)
                others.garbage_collect(LATER)
            return nullcontext()

        seen = Watched(source)
        repo = opened_by(source, seen)
        seen.meet = meet
        try:
            COPIES[what](repo, place)
        except IcechunkError:
            assert not frazil.Repository.exists(place)
            COPIES[what](frazil.Repository.open(source), place)
        copy = frazil.Repository.open(place)
        assert values(copy) in ({"group/a": 4, "b": 2}, {"group/a": 4, "b": 99})
        assert copy.upkeep.verify("checksum").ok
        if requests < step:
            break
    assert step > 15


@pytest.mark.parametrize("copies", [clone_repository, copy_repository])
def test_a_copy_needs_a_prefix_in_a_bucket(copies: Any) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("bucket")
        target = ObjectStorage(s3_bucket("bucket", server.port))
        with pytest.raises(InvalidInputError, match="must have a prefix in the bucket") as caught:
            copies(repo, target, engine="inline")
        assert caught.value.kind == ErrorKind.EMPTY_PREFIX_CREATION
        assert [*server.objects("bucket")] == []
