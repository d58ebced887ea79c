"""Settings that change how much is asked for, and when; the requests of common operations to an object store.

`docs/performance.md` has the same numbers of requests.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Buffer, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import zarr
from tests.support.object_server import Conditions, ObjectServer
from tests.support.patience import patience
from zarr.core.buffer import default_buffer_prototype

import frazil
from frazil.storage import Storage
from frazil.storage.memory import MemoryStorage


class Remote(MemoryStorage):
    """Memory that pretends to be far away, and counts what is read, and how much at once."""

    is_local = False

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self.most_at_once = 0
        self.expected_at_once = 0
        self._now = 0
        self._lock = threading.Lock()

    def with_settings(self, settings: frazil.StorageSettings) -> Remote:
        return self

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        with self._lock:
            self.reads[key.partition("/")[0]] += 1
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        yield
        with self._lock:
            self._now -= 1

    def _pauses(self, key: str) -> Iterator[float]:
        """Until as many reads of chunks as expected run at once, and then a moment for one more."""
        end = time.monotonic() + patience(20)
        expected = self.expected_at_once if key.startswith("chunks") else 0
        while self.most_at_once < expected and time.monotonic() < end:
            yield 0.001
        yield 0.005

    def get(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        with self._reading(key):
            for pause in self._pauses(key):
                time.sleep(pause)
        return super().get(key, start, stop)

    async def get_async(self, key: str, start: int = 0, stop: int | None = None) -> Buffer:
        with self._reading(key):
            for pause in self._pauses(key):
                await asyncio.sleep(pause)
        return super().get(key, start, stop)


@pytest.fixture(scope="module")
def storage() -> Remote:
    """Three arrays: 2, 20 and 20 chunks, each a file of its own."""
    storage = Remote()
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    repo = frazil.Repository.create(storage, config)
    with repo.transaction("main", message="first") as store:
        group = zarr.create_group(store)
        for name, count in (("x", 2), ("data", 20), ("more", 20)):
            array = group.create_array(name, shape=(count,), chunks=(1,), dtype="i8", fill_value=0)
            array[:] = 1 + 7
    return storage


def _open(storage: Remote, **settings: Any) -> frazil.Repository:
    repo = frazil.Repository.open(storage, frazil.RepositoryConfig(**settings))
    storage.reads.clear()
    storage.most_at_once = storage.expected_at_once = 0
    return repo


def _read(repo: frazil.Repository, name: str) -> None:
    assert (np.asarray(zarr.open_group(repo.readonly_session("main").store, mode="r")[name][:]) == 8).all()  # type: ignore[index]


@pytest.mark.parametrize(("num_bytes", "again"), [(None, 20), (1 << 20, 0), (10, 20)])
def test_chunks_are_cached_up_to_a_limit(storage: Remote, num_bytes: int | None, again: int) -> None:
    repo = _open(storage, caching=frazil.CachingConfig(num_bytes_chunks=num_bytes))
    _read(repo, "data")
    assert storage.reads["chunks"] == 20
    _read(repo, "data")  # by another session
    assert storage.reads["chunks"] - 20 in (again, again - 1)  # the small one keeps one chunk


@pytest.mark.parametrize("limit", [1, 3])
def test_requests_at_once_are_limited(storage: Remote, limit: int) -> None:
    repo = _open(storage)
    storage.expected_at_once = 4
    _read(repo, "data")
    assert storage.most_at_once > 3
    repo = _open(storage, max_concurrent_requests=limit)
    storage.expected_at_once = limit
    _read(repo, "data")
    assert storage.most_at_once == limit


async def test_partial_values_at_once_are_limited(storage: Remote) -> None:
    keys = [(f"data/c/{n}", None) for n in range(20)]
    prototype = default_buffer_prototype()
    for limit, expected in ((None, 20), (2, 2)):
        store = _open(storage, get_partial_values_concurrency=limit).readonly_session("main").store
        await store.get("data/c/0")  # manifests are at hand then
        storage.most_at_once, storage.expected_at_once = 0, expected
        values = await store.get_partial_values(prototype, keys)
        assert None not in values
        assert storage.most_at_once == expected


CONDITION = frazil.ManifestPreloadCondition


@pytest.mark.parametrize(
    ("preload", "expected"),
    [
        (None, 0),
        (frazil.ManifestPreloadConfig(), 1),  # `x` is a coordinate
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.true()), 3),
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.false()), 0),
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.name_matches("data|more")), 2),
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.true(), max_arrays_to_scan=1), 1),
        (frazil.ManifestPreloadConfig(preload_if=CONDITION.true(), max_total_refs=25), 2),
    ],
)
def test_manifests_are_preloaded(storage: Remote, preload: Any, expected: int) -> None:
    repo = _open(storage, manifest=frazil.ManifestConfig(preload=preload))
    for _ in (repo.readonly_session("main"), repo.writable_session("main")):
        deadline = time.monotonic() + patience(10)
        while storage.reads["manifests"] < expected and time.monotonic() < deadline:
            time.sleep(0.005)
        threading.Event().wait(0.02)
        assert storage.reads["manifests"] == expected  # the second session finds them


def test_a_failed_preload_is_an_error_of_the_read_that_needs_it(
    storage: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    preload = frazil.ManifestPreloadConfig(preload_if=CONDITION.true())
    repo = _open(storage, manifest=frazil.ManifestConfig(preload=preload))

    get = storage.get

    def fails(key: str, start: int = 0, stop: int | None = None) -> Buffer:
        if key == "repo":
            return get(key, start, stop)
        raise frazil.StorageError("away", frazil.ErrorKind.OBJECT_STORE)

    monkeypatch.setattr(storage, "get", fails)
    session = repo.readonly_session("main")
    with pytest.raises(frazil.StorageError, match="away"):
        _ = session.workspace.snapshot
    monkeypatch.undo()
    _read(repo, "x")


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
    assert requests.of(lambda: reading[...]) in ({"GET chunks": 1}, {"GET manifests": 1, "GET chunks": 1})

    def change() -> None:
        changed = frazil.Repository.open(requests.storage()).writable_session("main")
        zarr.open_array(changed.store, path="a", mode="r+")[7] = 1
        before = requests.of(lambda: changed.commit("one chunk"))
        assert before == COMMIT | {"PUT chunks": 1, "GET manifests": 1}

    change()
