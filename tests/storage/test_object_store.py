from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.testing.storage_suite import StorageSuite

if TYPE_CHECKING:
    from tests.support.servers import RunningServer

    from frazil.storage.base import Storage


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
