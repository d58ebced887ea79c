from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier
from typing import TYPE_CHECKING, Self

import pytest
import zarr
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

import frazil
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.ids import INITIAL_SNAPSHOT_ID, snapshot_key
from frazil.storage.base import ALWAYS, IfAbsent, IfVersion, Stored, Version
from frazil.storage.checks import create_and_probe, probe_conditions
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store import ObjectStorage
from frazil.storage.settings import StorageSettings

if TYPE_CHECKING:
    from collections.abc import Buffer, Iterator
    from pathlib import Path

    from frazil.storage.base import Condition, ObjectInfo, Refused


FIRST_SNAPSHOT = snapshot_key(INITIAL_SNAPSHOT_ID)
FIRST, SECOND = ("snapshots/A", b"first"), ("transactions/A", b"second")
_STRICT = ("ceph", "azurite")


@pytest.mark.parametrize(
    "name", ["local", "ministack", "gcs", *(pytest.param(n, marks=pytest.mark.servers) for n in _STRICT)]
)
def test_good_storages_pass(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    storage = LocalStorage(tmp_path) if name == "local" else request.getfixturevalue(name).storage()
    probe_conditions(storage)
    assert [*storage.list("")] == []
    assert create_and_probe(storage, FIRST, SECOND)
    assert {info.key: bytes(storage.get(info.key)) for info in storage.list("")} == dict([FIRST, SECOND])
    # The answers to the probe have taught nothing wrong about etags.
    _, version = storage.get_versioned(FIRST[0])
    assert isinstance(storage.put(FIRST[0], b"third", IfVersion(version)), Stored)


def test_a_server_that_ignores_conditions_does_not_pass() -> None:
    with ObjectServer(Conditions.IGNORED) as server:
        server.make_bucket("bucket")
        storage = ObjectStorage(s3_bucket("bucket", server.port))
        # To one writer it looks fine.
        first = storage.put("repo", b"1", IfAbsent())
        assert isinstance(first, Stored)
        assert isinstance(storage.put("repo", b"2", IfVersion(first.version)), Stored)
        with pytest.raises(StorageError, match="second conditional create") as caught:
            probe_conditions(storage)
        assert caught.value.kind == ErrorKind.CONDITIONS_NOT_SUPPORTED
        assert [*server.objects("bucket")] == ["repo"]


def test_a_server_that_wants_quoted_etags_is_understood() -> None:
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("bucket")
        storage = ObjectStorage(s3_bucket("bucket", server.port))
        probe_conditions(storage)
        version = storage.put("repo", b"1", IfAbsent())
        server.requests.clear()
        for number in range(3):
            assert isinstance(version, Stored)
            version = storage.put("repo", b"%d" % number, IfVersion(version.version))
        # It was learnt once: one request for each write.
        assert [request.method for request in server.requests] == ["PUT"] * 3


def test_conditions_may_be_switched_off() -> None:
    settings = StorageSettings(unsafe_use_conditional_create=False, unsafe_use_conditional_update=False)
    with ObjectServer(Conditions.IGNORED) as server:
        server.make_bucket("bucket")
        storage = ObjectStorage(s3_bucket("bucket", server.port), settings=settings)
        probe_conditions(storage)  # one writer at a time is fine


# ---- the new files as the probe ---------------------------------------------------------------------


class _Partly(MemoryStorage):
    """A memory that respects one kind of conditions."""

    def __init__(self, respected: type[IfAbsent | IfVersion]) -> None:
        super().__init__()
        self.is_local = False
        self.respected = respected

    def with_settings(self, settings: StorageSettings) -> Self:
        return self

    def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
        return super().put(key, data, condition if isinstance(condition, self.respected) else ALWAYS)


@pytest.mark.parametrize(
    ("respected", "offence"),
    [(IfVersion, "second conditional create"), (IfAbsent, "stale version succeeded")],
)
def test_a_creation_refuses_a_storage_that_ignores_conditions(
    respected: type[IfAbsent | IfVersion], offence: str
) -> None:
    storage = _Partly(respected)
    with pytest.raises(StorageError, match=offence):
        probe_conditions(storage)
    with pytest.raises(StorageError, match=offence) as caught:
        frazil.Repository.create(storage)
    assert caught.value.kind == ErrorKind.CONDITIONS_NOT_SUPPORTED
    assert [*storage.list("")] == []


@pytest.mark.parametrize("clean", [False, True])
def test_nothing_is_overwritten_before_the_storage_has_passed(clean: bool) -> None:
    storage = _Partly(IfVersion)
    storage.put(FIRST_SNAPSHOT, b"of another writer")
    with pytest.raises(StorageError, match="second conditional create"):
        frazil.Repository.create(storage, check_clean_root=clean)
    assert {info.key: bytes(storage.get(info.key)) for info in storage.list("")} == {
        FIRST_SNAPSHOT: b"of another writer"
    }


@pytest.mark.parametrize("spec_version", [1, 2])
def test_faults_do_not_look_like_missing_conditions(spec_version: int) -> None:
    """A quarter of the writes are refused or lost. Only a storage that ignores a condition is refused."""
    random = Random(0)

    def choose(key: str, condition: Condition) -> Fault | None:
        return random.choice([*Fault]) if random.random() < 0.24 else None

    done = 0
    for _ in range(100):
        storage = MemoryStorage()
        storage.is_local = False
        try:
            frazil.Repository.create(FaultyStorage(storage, choose), spec_version=spec_version)
        except StorageError as error:
            assert error.kind != ErrorKind.CONDITIONS_NOT_SUPPORTED  # noqa: PT017
        else:
            done += 1
    assert done


def test_a_storage_that_refuses_every_update_is_refused() -> None:
    def choose(key: str, condition: Condition) -> Fault | None:
        return Fault.REFUSED if isinstance(condition, IfVersion) else None

    with pytest.raises(StorageError, match="update of a new object was refused") as caught:
        probe_conditions(FaultyStorage(MemoryStorage(), choose))
    assert caught.value.kind == ErrorKind.CONDITIONS_NOT_SUPPORTED


def test_files_of_another_repository_are_not_deleted() -> None:
    class Raced(_Partly):
        """A repository appears while another one is created, by a writer without a probe."""

        def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
            super().put("repo", b"of another writer")
            return super().put(key, data, condition)

    storage = Raced(IfVersion)
    with pytest.raises(StorageError, match="second conditional create"):
        frazil.Repository.create(storage)
    assert storage.head(FIRST_SNAPSHOT) is not None


def test_equal_versions_are_no_probe() -> None:
    class Counting(_Partly):
        """The versions of each object are 1, 2, 3."""

        def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
            outcome = super().put(key, data, condition)
            return Stored(Version("1")) if isinstance(outcome, Stored) else outcome

    assert not create_and_probe(Counting(IfAbsent), FIRST, SECOND)


def test_two_creations_at_the_same_time() -> None:
    """Both list an empty storage, and one finds files of the other one."""

    class Shared(MemoryStorage):
        is_local = False

        def with_settings(self, settings: StorageSettings) -> Self:
            return self

        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            listed = [*super().list(prefix)]
            lists.wait()
            return iter(listed)

    lists, storage = Barrier(2), Shared()

    def create(_: int) -> frazil.Repository | ErrorKind:
        try:
            return frazil.Repository.create(storage)
        except InvalidInputError as error:
            return error.kind

    with ThreadPoolExecutor(2) as threads:
        results = [*threads.map(create, range(2))]
    (repo,) = (each for each in results if isinstance(each, frazil.Repository))
    assert ErrorKind.PARENT_DIRECTORY_NOT_CLEAN in results
    assert zarr.create_group(repo.writable_session("main").store).path == ""


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_creation_keeps_the_first_snapshot_of_another_one(is_local: bool, is_complete: bool) -> None:
    """The other one writes its files, all or without ``repo``, after this one has listed an empty storage."""

    class Late(MemoryStorage):
        def with_settings(self, settings: StorageSettings) -> Self:
            return self

        def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
            if key == FIRST_SNAPSHOT and others:
                self.is_local = is_local
                frazil.Repository.create(others.pop())
            return super().put(key, data, condition)

    storage = Late()
    storage.is_local = True  # for the other one, which tests no storage
    others = [storage]
    if is_complete:
        with pytest.raises(InvalidInputError) as caught:
            frazil.Repository.create(storage)
        assert caught.value.kind == ErrorKind.PARENT_DIRECTORY_NOT_CLEAN
    else:
        frazil.Repository.create(others.pop())
        storage.delete(["repo"])
        frazil.Repository.create(storage)
    assert frazil.Repository.open(storage).upkeep.verify().ok
