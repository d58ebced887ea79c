"""Reads of virtual chunks in a remote object store: requests, the cache, and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np
import pytest
import zarr
from tests.arrays.test_array import same
from tests.support.buckets import S3_ACCESS_KEY, S3_SECRET_KEY
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket
from zarr.codecs.numcodecs import Shuffle, Zlib

import frazil
from frazil.errors import ErrorKind
from frazil.storage.foreign_objects import ForeignRange, ForeignStore
from frazil.storage.object_store import ObjectStorage

STEPS, FILES, LENGTH = 4, 3, 10_000
CODECS = [Shuffle(elementsize=4), Zlib(level=1)]
READERS: list[Callable[[Any, str], Any]] = [
    frazil.Array,
    lambda session, path: zarr.open_array(session.store, path=path, mode="r"),
]


class Archive:
    """Files of one array of noise, shape (12, columns * 10,000): each file has its chunks step by step."""

    def __init__(self, server: ObjectServer, columns: int, *, has_checksums: bool = True) -> None:
        server.make_bucket("archive")
        self.server = server
        self.files = ObjectStorage(s3_bucket("archive", server.port), "")
        random = np.random.default_rng(0)
        self.values = random.integers(0, 2**32, (STEPS * FILES, columns * LENGTH), "u4")
        grid: dict[str, Any] = {
            "shape": self.values.shape,
            "chunks": (1, LENGTH),
            "dtype": "u4",
            "filters": None,
        }
        encoded = zarr.storage.MemoryStore()
        zarr.create_array(encoded, name="t", compressors=CODECS, **grid)[:] = self.values
        self.storage = frazil.in_memory_storage()
        session = self.open(create=True).writable_session("main")
        zarr.create_array(session.store, name="t", compressors=CODECS, **grid)
        for number in range(FILES):
            keys = [
                f"t/c/{number * STEPS + step}/{column}" for step in range(STEPS) for column in range(columns)
            ]
            chunks = [encoded._store_dict[key].to_bytes() for key in keys]
            self.files.put(f"{number}.nc", b"head" + b"".join(chunks) + b"tail")
            lengths = np.fromiter(map(len, chunks), np.uint64, len(chunks))
            session.store.set_virtual_refs_arr(
                "t",
                (STEPS, columns),
                [f"s3://archive/{number}.nc"] * len(chunks),
                (4 + np.cumsum(lengths) - lengths).astype(np.uint64),
                lengths,
                arr_offset=(number * STEPS, 0),
                checksum=server.objects("archive")[f"{number}.nc"].etag if has_checksums else None,
            )
        session.commit("references")

    def open(self, *, create: bool = False, **options: Any) -> frazil.Repository:
        config = frazil.RepositoryConfig(**options)
        store = frazil.s3_store(
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{self.server.port}",
            allow_http=True,
            force_path_style=True,
        )
        config.set_virtual_chunk_container(frazil.VirtualChunkContainer("s3://archive/", store))
        keys = frazil.s3_credentials(access_key_id=S3_ACCESS_KEY, secret_access_key=S3_SECRET_KEY)
        access = frazil.containers_credentials({"s3://archive/": keys})
        make = frazil.Repository.create if create else frazil.Repository.open
        return make(self.storage, config, authorize_virtual_chunk_access=access)

    def session(self, **options: Any) -> frazil.Session:
        session = self.open(**options).readonly_session("main")
        self.server.requests.clear()
        return session

    def take_requests(self) -> int:
        count = len(self.server.requests)
        self.server.requests.clear()
        return count


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        yield server


@pytest.mark.parametrize("reader", READERS)
def test_a_point_through_time_is_one_request_for_each_file(server: ObjectServer, reader: Any) -> None:
    """The chunks are four apart, in the same file. Nothing that a request brought is read again."""
    archive = Archive(server, 4)
    array = reader(archive.session(), "t")
    same(array[:, 5], archive.values[:, 5])
    assert archive.take_requests() == FILES
    same(array[:, 5], archive.values[:, 5])
    same(array[1:4, 5:9], archive.values[1:4, 5:9])
    same(array[2:3, 15_000], archive.values[2:3, 15_000])  # in the gaps
    assert archive.take_requests() == 0
    same(array[:], archive.values)
    assert archive.take_requests() == FILES  # what follows the last chunk of the first read


def test_chunks_that_are_far_apart_are_read_alone(server: ObjectServer) -> None:
    """A gap of six chunks is more than four times what is wanted."""
    archive = Archive(server, 7)
    same(frazil.Array(archive.session(), "t")[:, 5], archive.values[:, 5])
    assert archive.take_requests() == FILES * STEPS


@pytest.mark.parametrize(
    ("has_checksums", "size", "requests"),
    [(True, None, 0), (False, None, FILES), (True, 0, FILES), (False, 16 << 20, FILES), (True, 1 << 20, 0)],
)
def test_what_is_in_the_cache(
    server: ObjectServer, has_checksums: bool, size: int | None, requests: int
) -> None:
    """Only bytes of objects that cannot have changed are in the cache, whatever its size is."""
    archive = Archive(server, 2, has_checksums=has_checksums)
    caching = frazil.CachingConfig(num_bytes_chunks=size)
    array = frazil.Array(archive.session(caching=caching), "t")
    for expected in (FILES, requests):
        same(array[:, 5], archive.values[:, 5])
        assert archive.take_requests() == expected


@pytest.mark.parametrize("reader", READERS)
def test_a_read_has_one_state_of_an_object(
    server: ObjectServer, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of chunks without checksums sends four requests to each object, and one object is replaced."""
    archive = Archive(server, 7, has_checksums=False)
    array = reader(archive.session(), "t")
    data, read = bytes(archive.files.get("1.nc")), ForeignStore._read
    lock, answers = Lock(), []

    def replacing(self: ForeignStore, byte_range: ForeignRange) -> Any:
        with lock:
            answer = read(self, byte_range)
            if byte_range.url.endswith("1.nc"):
                answers.append(answer)
                if len(answers) == STEPS // 2:
                    archive.files.put("1.nc", bytes(len(data)))
            return answer

    monkeypatch.setattr(ForeignStore, "_read", replacing)
    with pytest.raises(frazil.StorageError, match=r"must not change during a read.*1\.nc") as caught:
        array[:, 5]
    assert caught.value.kind == ErrorKind.VIRTUAL_CHUNK_MODIFIED
    archive.files.put("1.nc", data)
    same(array[:, 5], archive.values[:, 5])
