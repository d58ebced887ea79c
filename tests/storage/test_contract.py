"""The contract, for storages in memory and on servers; pickles and forks of a storage in memory."""

from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING

import pytest
from tests.support.forks import is_refused_in_child

from frazil.errors import StorageError
from frazil.storage.memory import MemoryStorage
from frazil.testing.storage_suite import StorageSuite

if TYPE_CHECKING:
    from tests.support.servers import RunningServer

    from frazil.storage.base import Storage


class TestMemoryStorage(StorageSuite):
    rounds = 100

    @pytest.fixture
    def storage(self) -> Storage:
        return MemoryStorage()


class TestMinistack(StorageSuite):
    @pytest.fixture
    def storage(self, ministack: RunningServer) -> Storage:
        return ministack.storage(prefix="a prefix/of two")


class TestGcs(StorageSuite):
    @pytest.fixture
    def storage(self, gcs: RunningServer) -> Storage:
        return gcs.storage(prefix="prefix")


@pytest.mark.servers
class TestCeph(StorageSuite):
    @pytest.fixture
    def storage(self, ceph: RunningServer) -> Storage:
        return ceph.storage(prefix="prefix")


@pytest.mark.servers
class TestAzurite(StorageSuite):
    many = 300  # it is slow, and its page is 5000

    @pytest.fixture
    def storage(self, azurite: RunningServer) -> Storage:
        return azurite.storage(prefix="prefix")


def test_a_pickle_is_the_same_storage_while_it_lives() -> None:
    storage = MemoryStorage()
    storage.put("repo", b"1")
    pickled = pickle.dumps(storage)
    copy = pickle.loads(pickled)
    del storage
    gc.collect()
    assert bytes(pickle.loads(pickled).get("repo")) == b"1"
    del copy
    gc.collect()
    with pytest.raises(StorageError, match="only in the process that created it"):
        pickle.loads(pickled)


def test_a_forked_child_gets_an_error() -> None:
    storage = MemoryStorage()
    storage.put("repo", b"1")
    assert is_refused_in_child(lambda: storage.get("repo"))
