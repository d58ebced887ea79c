"""The requests of common operations to an object store. `docs/performance.md` has the same numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import zarr
from tests.support.object_server import Conditions, ObjectServer

import frazil
from frazil.storage import Storage

#: Chunks of 4 KiB are too large for a manifest.
CHUNKS, ELEMENTS = 256, 1024


@dataclass(slots=True)
class Requests:
    """The server, and the number of requests that `since` has reported."""

    server: ObjectServer
    reported: int = field(default=0)

    def storage(self) -> Storage:
        return frazil.gcs_storage(
            bucket="bucket",
            prefix="p",
            bearer_token="test",
            config={"base_url": self.server.url, "allow_http": "true"},
        )

    def of(self, call: Callable[[], Any]) -> dict[str, int]:
        """Return how often the call sends each kind of request."""
        start = len(self.server.requests)
        call()
        return dict(Counter(map(_kind, self.server.requests[start:])))


def _kind(request: Any) -> str:
    parts = unquote(urlsplit(request.path).path).strip("/").split("/")
    return f"{request.method} {parts[2] if len(parts) > 2 else 'list'}"


@pytest.fixture
def requests() -> Iterator[Requests]:
    with ObjectServer(Conditions.GENERATION) as server:
        server.make_bucket("bucket")
        yield Requests(server)


COMMIT = {
    "GET repo": 1,
    "PUT overwritten": 1,
    "PUT manifests": 1,
    "PUT snapshots": 1,
    "PUT transactions": 1,
    "PUT repo": 1,
}


def test_creation_probes_the_storage(requests: Requests) -> None:
    # The storage must refuse the snapshot twice.
    assert requests.of(lambda: frazil.Repository.create(requests.storage())) == {
        "GET list": 1,
        "PUT snapshots": 3,
        "PUT transactions": 1,
        "PUT repo": 1,
    }


def test_answers_from_statistics(requests: Requests) -> None:
    config = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=True))
    repo = frazil.Repository.create(requests.storage(), config=config)
    values = np.random.default_rng(0).random((CHUNKS, ELEMENTS), "f4")
    with repo.transaction("main", message="all chunks") as store:
        zarr.create_array(store, name="a", data=values, chunks=(1, ELEMENTS), compressors=None)
    answers: list[Any] = []

    def ask() -> None:
        array = frazil.Array(frazil.Repository.open_session(requests.storage()), "a")
        summary = frazil.reduce(array)
        answers.extend((summary.mean, summary.max, summary.count, frazil.where(array, "> 2").count()))

    opening = {"GET repo": 1, "GET snapshots": 1}
    assert requests.of(ask) == opening | {"GET manifests": 1, "GET statistics": 1}
    np.testing.assert_allclose(answers, [values.mean(dtype="f8"), values.max(), values.size, 0])


def test_writes_and_reads(requests: Requests) -> None:
    repo = frazil.Repository.create(requests.storage())
    session = repo.writable_session("main")
    array: Any = zarr.create_array(
        session.store, name="a", shape=(CHUNKS, ELEMENTS), chunks=(1, ELEMENTS), dtype="f4", compressors=None
    )
    values = np.random.default_rng(0).random((CHUNKS, ELEMENTS), "f4")
    # All chunks are one object, and the commit sends it with its other files.
    assert requests.of(lambda: array.__setitem__(..., values)) == {}
    assert requests.of(lambda: session.commit("all chunks")) == COMMIT | {"PUT chunks": 1}
    tag = requests.of(lambda: repo.create_tag("v1", session.snapshot_id))
    assert tag == {"GET repo": 1, "PUT overwritten": 1, "PUT repo": 1}

    def one_chunk() -> None:
        cold = frazil.Repository.open_session(requests.storage())
        np.testing.assert_array_equal(frazil.Array(cold, "a")[3], values[3])

    assert requests.of(one_chunk) == {"GET repo": 1, "GET snapshots": 1, "GET manifests": 1, "GET chunks": 1}
    reading = frazil.Array(repo.readonly_session("main"), "a")
    assert requests.of(lambda: reading[...]) in (
        {"GET chunks": 1},
        {"GET manifests": 1, "GET chunks": 1},
    )

    def change() -> None:
        changed = frazil.Repository.open(requests.storage()).writable_session("main")
        zarr.open_array(changed.store, path="a", mode="r+")[7] = 1
        before = requests.of(lambda: changed.commit("one chunk"))
        assert before == COMMIT | {"PUT chunks": 1, "GET manifests": 1}

    change()
