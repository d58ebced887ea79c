"""The contract, for storages in memory and on servers; pickles and forks of a storage in memory."""

from __future__ import annotations

import gc
import os
import pickle
from typing import TYPE_CHECKING

import pytest

from frazil.errors import ErrorKind, StorageError
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


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_an_error() -> None:
    storage = MemoryStorage()
    storage.put("repo", b"1")
    child = os.fork()
    if child == 0:
        try:
            storage.get("repo")
        except StorageError as error:
            os._exit(7 if error.kind == ErrorKind.FORKED_PROCESS else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
