"""What the network does to a conditional write, and what is then true."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.fault_proxy import Fault, FaultProxy

import frazil
from frazil.errors import ErrorKind, StorageError
from frazil.storage.base import IfAbsent, IfVersion, Refused, Stored
from frazil.storage.object_store import ObjectStorage
from frazil.testing.storage_suite import add_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import RunningServer

_QUICK = frazil.StorageSettings(
    retries=frazil.StorageRetriesSettings(max_tries=4, initial_backoff_ms=10, max_backoff_ms=50)
)
#: For answers that never come.
_IMPATIENT = replace(_QUICK, timeouts=frazil.StorageTimeoutSettings(operation_attempt_timeout_ms=3_000))


@pytest.fixture
def proxy(server: RunningServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def bucket(server: RunningServer) -> str:
    name = f"bucket-{uuid.uuid4().hex}"
    server.make_bucket(name)
    return name


@pytest.fixture
def direct(server: RunningServer, bucket: str) -> ObjectStorage:
    return server.storage(bucket)


@pytest.fixture
def storage(
    request: pytest.FixtureRequest, server: RunningServer, bucket: str, proxy: FaultProxy
) -> ObjectStorage:
    stalls = request.node.callspec.params.get("fault") is Fault.STALL
    storage = ObjectStorage(server.bucket(bucket, proxy.port), settings=_IMPATIENT if stalls else _QUICK)
    # The first update learns whether the server wants quotes around etags, and may take two requests.
    outcome = storage.put("form", b"1", IfAbsent())
    assert isinstance(outcome, Stored)
    assert isinstance(storage.put("form", b"2", IfVersion(outcome.version)), Stored)
    return storage


@pytest.mark.sample(2, 2)
@pytest.mark.deep
@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.STALL])
def test_a_lost_answer_is_an_error_though_the_write_was_applied(
    fault: Fault, storage: ObjectStorage, direct: ObjectStorage, proxy: FaultProxy
) -> None:
    rule = proxy.add(fault, "^PUT ")
    with pytest.raises(StorageError):
        storage.put("repo", b"mine", IfAbsent())
    assert rule.hits == 1
    assert bytes(direct.get("repo")) == b"mine"
    version = direct.get_versioned("repo")[1]
    rule = proxy.add(fault, "^PUT ")
    with pytest.raises(StorageError):
        storage.put("repo", b"mine too", IfVersion(version))
    assert rule.hits == 1
    assert bytes(direct.get("repo")) == b"mine too"


def test_an_error_after_the_write_is_retried_and_refused_though_it_was_applied(
    storage: ObjectStorage, direct: ObjectStorage, proxy: FaultProxy
) -> None:
    proxy.add(Fault.ERROR_AFTER, "^PUT ", status=500)
    assert storage.put("repo", b"mine", IfAbsent()) == Refused()
    assert bytes(direct.get("repo")) == b"mine"
    proxy.add(Fault.ERROR_AFTER, "^PUT ", status=500)
    outcome = storage.put("repo", b"mine too", IfVersion(direct.get_versioned("repo")[1]))
    assert outcome == Refused()
    assert bytes(direct.get("repo")) == b"mine too"


def test_a_busy_server_is_asked_again(
    storage: ObjectStorage, direct: ObjectStorage, proxy: FaultProxy
) -> None:
    rule = proxy.add(Fault.ERROR, "^PUT ", times=2)
    assert isinstance(storage.put("repo", b"mine", IfAbsent()), Stored)
    assert rule.hits == 2
    rule = proxy.add(Fault.ERROR, "^GET ", times=3)
    assert bytes(storage.get("repo")) == b"mine"
    assert rule.hits == 3
    rule = proxy.add(Fault.ERROR, "^GET ", times=-1)
    with pytest.raises(StorageError) as caught:
        storage.get("repo")
    assert caught.value.kind == ErrorKind.THROTTLED
    assert rule.hits == 4  # max_tries


@pytest.mark.sample(6, 6)
@pytest.mark.deep
@pytest.mark.parametrize("fault", [Fault.RESET, Fault.TRUNCATE, Fault.LOSE_ANSWER, Fault.STALL])
def test_a_broken_read_is_completed(
    fault: Fault, storage: ObjectStorage, direct: ObjectStorage, proxy: FaultProxy
) -> None:
    data = bytes(range(256)) * 4096
    direct.put("chunks/a", data)
    rule = proxy.add(fault, "^GET ")
    assert bytes(storage.get("chunks/a")) == data
    assert rule.hits == 1


def test_no_update_is_lost_under_faults(
    storage: ObjectStorage, direct: ObjectStorage, proxy: FaultProxy
) -> None:
    """The rule of the contract at work: whoever looks for his own bytes loses none, doubles none."""
    direct.put("repo", b"begin", IfAbsent())
    for fault in (Fault.LOSE_ANSWER, Fault.ERROR_AFTER, Fault.RESET, Fault.ERROR):
        for pattern in ("^PUT ", "^GET "):
            proxy.add(fault, pattern, times=2)

    def work(_: int) -> None:
        for _ in range(5):
            add_line(storage, "repo", uuid.uuid4().hex)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    lines = bytes(direct.get("repo")).split(b"\n")
    assert len(lines) == len(set(lines)) == 21
