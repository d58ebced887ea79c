from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import ALWAYS, IfAbsent, IfVersion, Stored
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store import ObjectStorage
from frazil.storage.probe import probe_conditions
from frazil.storage.settings import StorageSettings

if TYPE_CHECKING:
    from collections.abc import Buffer
    from pathlib import Path

    from tests.support.servers import RunningServer

    from frazil.storage.base import Condition, Refused


def test_good_storages_pass(tmp_path: Path, ministack: RunningServer, gcs: RunningServer) -> None:
    for storage in (LocalStorage(tmp_path), MemoryStorage(), ministack.storage(), gcs.storage()):
        probe_conditions(storage)
        assert [*storage.list("")] == []


@pytest.mark.servers
def test_strict_servers_pass(ceph: RunningServer, azurite: RunningServer) -> None:
    for storage in (ceph.storage(), azurite.storage()):
        probe_conditions(storage)
        assert [*storage.list("")] == []


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


def test_a_server_that_ignores_only_updates_does_not_pass() -> None:
    class CreateOnly(MemoryStorage):
        def put(self, key: str, data: Buffer, condition: Condition = ALWAYS) -> Stored | Refused:
            return super().put(key, data, condition if isinstance(condition, IfAbsent) else ALWAYS)

    from_memory = CreateOnly()
    with pytest.raises(StorageError, match="stale version succeeded"):
        probe_conditions(from_memory)
    assert [*from_memory.list("")] == []


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
