"""zarr's own tests of a store.

zarr's tests put any bytes under any key; here keys name nodes and chunks of arrays that exist, and documents
are zarr metadata. Tests that would not get that far are run with keys and documents that can be stored;
what they assert is theirs.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from tests.zarr_store.documents import GROUP, array_document, buffer, make_arrays, put, take
from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
    _store_supports_sync_io,
)
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator
from zarr.testing.store import StoreTests
from zarr.testing.utils import assert_bytes_equal

import frazil
from frazil import IcechunkStore

CHUNK = b"\x01\x02\x03\x04"
#: In place of a test of zarr that the tests here replace.
NOT_RUN: Any = None
KEYS = ["c/0", "foo/c/0/1", "c/c/c/0", "scalar/c", "0/0/c/3"]


class TestStore(StoreTests[IcechunkStore, cpu.Buffer]):
    store_cls = IcechunkStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, session: frazil.Session) -> dict[str, Any]:
        return {"session": session}

    @pytest.fixture
    def store(self, store_kwargs: dict[str, Any]) -> IcechunkStore:
        return self.store_cls(**store_kwargs)

    async def set(self, store: IcechunkStore, key: str, value: Buffer) -> None:
        put(store, key, value)

    async def get(self, store: IcechunkStore, key: str) -> Buffer:
        return take(store, key)

    def test_store_repr(self, store: IcechunkStore) -> None:
        assert repr(store).splitlines()[0] == "<frazil.IcechunkStore>"
        assert "branch: main" in str(store)
        assert _store_supports_sync_io(store)
        assert store.supports_writes
        assert not store.with_read_only(True).supports_writes
        assert store.supports_listing
        assert not store.supports_consolidated_metadata

    test_store_supports_writes = test_store_supports_listing = test_supports_sync_io = NOT_RUN

    async def test_serializable_store(self, store: IcechunkStore) -> None:
        with pytest.raises(ValueError, match="fork"):
            pickle.dumps(store)
        put(store, "c/0", buffer(CHUNK))
        fork = store.session.fork().store
        copy: IcechunkStore = pickle.loads(pickle.dumps(fork))
        assert copy.read_only == fork.read_only
        for key in ("c/0", "c/1"):
            await copy.set("c/1", buffer(CHUNK))
            assert_bytes_equal(await copy.get(key, default_buffer_prototype()), buffer(CHUNK))
        assert isinstance(copy.session, frazil.ForkSession)
        store.session.merge(copy.session)
        assert_bytes_equal(take(store, "c/1"), buffer(CHUNK))

    async def test_serializable_read_only(
        self, store: IcechunkStore, repo: frazil.Repository, storage: Any
    ) -> None:
        put(store, "c/0", buffer(CHUNK))
        store.session.commit("one chunk")
        reader = repo.readonly_session("main").store
        if storage.is_local and "memory" in type(storage).__name__.lower():
            return  # what is in memory stays in its process
        copy: IcechunkStore = pickle.loads(pickle.dumps(reader))
        assert copy.read_only
        assert_bytes_equal(copy.get_sync("c/0"), buffer(CHUNK))

    async def test_with_read_only_store(self, open_kwargs: dict[str, Any]) -> None:
        store = await self.store_cls.open(**open_kwargs, read_only=True)
        writer = store.with_read_only(read_only=False)
        assert not writer._is_open
        await writer.set("zarr.json", buffer(GROUP))
        await writer.delete("zarr.json")
        for reader in (store, store.with_read_only(read_only=True)):
            for write in (reader.set("zarr.json", buffer(GROUP)), reader.delete("zarr.json")):
                with pytest.raises(ValueError, match="store was opened in read-only mode"):
                    await write
            with pytest.raises(frazil.ReadOnlyError):
                await reader.delete_dir("foo")

    @pytest.mark.sample(35)
    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize(
        ("data", "byte_range"),
        [
            (CHUNK, None),
            (CHUNK, RangeByteRequest(1, 4)),
            (CHUNK, RangeByteRequest(2, 2)),
            (CHUNK, OffsetByteRequest(1)),
            (CHUNK, SuffixByteRequest(1)),
            (CHUNK * 1000, RangeByteRequest(5, 3000)),
            (CHUNK * 1000, SuffixByteRequest(9999)),
        ],
    )
    async def test_get(
        self, store: IcechunkStore, key: str, data: bytes, byte_range: ByteRequest | None
    ) -> None:
        await super().test_get(store, key, data, byte_range)  # type: ignore[arg-type]  # zarr passes None

    @pytest.mark.parametrize("key", KEYS)
    @pytest.mark.parametrize("data", [CHUNK, CHUNK * 1000])
    async def test_getsize(self, store: IcechunkStore, key: str, data: bytes) -> None:
        await super().test_getsize(store, key, data)

    async def test_getsize_prefix(self, store: IcechunkStore) -> None:
        make_arrays(store, "c/0/0", "cc/c/0")
        values = {key: buffer(CHUNK) for key in ("c/0/0", "c/0/1", "c/1/0", "c/1/1", "cc/c/0")}
        await store._set_many(values.items())
        documents = len(array_document(2)) + len(array_document(1))
        for prefix, size in [("c", 16), ("c/1", 8), ("", 20 + documents), ("cc", 4 + len(array_document(1)))]:
            assert await store.getsize_prefix(prefix) == size

    @pytest.mark.parametrize("key", [*KEYS, "zarr.json", "foo/bar/zarr.json"])
    @pytest.mark.parametrize("data", [CHUNK, CHUNK * 1000])
    async def test_set(self, store: IcechunkStore, key: str, data: bytes) -> None:
        make_arrays(store, key)
        await super().test_set(store, key, GROUP if key.endswith("zarr.json") else data)

    async def test_set_not_open(self, store_not_open: IcechunkStore) -> None:
        make_arrays(store_not_open, "c/0")
        await super().test_set_not_open(store_not_open)

    @pytest.mark.parametrize(
        "key_ranges",
        [
            [],
            [("c/0", RangeByteRequest(0, 2))],
            [("c/0", RangeByteRequest(0, 2)), ("foo/c/1", None)],
            [("d/c/0/0", RangeByteRequest(0, 2)), ("d/c/0/1", SuffixByteRequest(2))],
            [("d/c/0/2", OffsetByteRequest(2))],
        ],
    )
    async def test_get_partial_values(
        self, store: IcechunkStore, key_ranges: list[tuple[str, ByteRequest]]
    ) -> None:
        await super().test_get_partial_values(store, key_ranges)

    async def test_get_partial_values_of_missing_keys(self, store: IcechunkStore) -> None:
        put(store, "c/0", buffer(CHUNK))
        ranges = [("c/1", None), ("c/0", SuffixByteRequest(1)), ("x/zarr.json", RangeByteRequest(0, 1))]
        results = await store.get_partial_values(default_buffer_prototype(), ranges)
        assert [value and value.to_bytes() for value in results] == [None, b"\x04", None]

    async def test_exists(self, store: IcechunkStore) -> None:
        put(store, "foo/c/0", buffer(CHUNK))
        for key, exists in [("foo/c/0", True), ("foo/c/1", False), ("foo/zarr.json", True)]:
            assert await store.exists(key) == exists
        assert not await store.exists("zarr.json")

    async def test_delete(self, store: IcechunkStore) -> None:
        for key in ("foo/c/0", "foo/zarr.json"):
            put(store, "foo/c/0", buffer(CHUNK))
            await store.delete(key)
            assert not await store.exists(key)

    async def test_delete_dir(self, store: IcechunkStore) -> None:
        for key in ("foo/c/0/1", "foo/c/1/1", "foo-bar/c/0", "foo/c/1/2"):
            put(store, key, buffer(CHUNK))
        await store.set("zarr.json", buffer(GROUP))
        await store.delete_dir("foo/c/1")
        assert await store.exists("foo/c/0/1")
        assert not await store.exists("foo/c/1/1")
        await store.delete_dir("foo")
        assert await _collect_aiterator(store.list()) == ("zarr.json", "foo-bar/zarr.json", "foo-bar/c/0")

    async def test_delete_nonexistent_key_does_not_raise(self, store: IcechunkStore) -> None:
        put(store, "foo/c/0", buffer(CHUNK))
        for key in ("zarr.json", "a/zarr.json", "a/c/0", "foo/c/1", "foo/c/99", "foo/c/0/0", ".zgroup"):
            await store.delete(key)
            await store.delete_dir(key)
        assert take(store, "foo/c/0") == buffer(CHUNK)

    async def test_is_empty(self, store: IcechunkStore) -> None:
        assert await store.is_empty("")
        put(store, "foo/bar/c/0/1", buffer(CHUNK))
        full = ["", "foo", "foo/", "foo/bar", "foo/bar/c", "foo/bar/c/0"]
        assert [prefix for prefix in full if await store.is_empty(prefix)] == []
        empty = ["fo", "spam/", "foo/bar/c/1", "foo/bar/c/0/1/0"]
        assert [prefix for prefix in empty if not await store.is_empty(prefix)] == []

    async def test_clear(self, store: IcechunkStore) -> None:
        for clear in (store.clear, store.sync_clear):
            for key in ("c/0", "foo/bar/c/0", "baz/c"):  # no group around them
                put(store, key, buffer(CHUNK))
            done = clear()
            if done is not None:
                await done
            assert await store.is_empty("")

    async def test_list(self, store: IcechunkStore) -> None:
        assert await _collect_aiterator(store.list()) == ()
        values = {f"foo/c/{i}": buffer(CHUNK) for i in range(10)}
        make_arrays(store, *values)
        await store._set_many(values.items())
        assert sorted(await _collect_aiterator(store.list())) == sorted([*values, "foo/zarr.json"])

    async def test_list_empty_path(self, store: IcechunkStore) -> None:
        keys = ["foo/bar/c/1", "foo/bar/zarr.json", "foo/baz/c/0", "foo/baz/zarr.json", "foo/zarr.json"]
        await store.set("foo/zarr.json", buffer(GROUP))
        for key in (keys[0], keys[2]):
            put(store, key, buffer(CHUNK))
        for prefix in ("", "foo/", "foo/bar/", "foo/baz", "foo/baz/c"):
            listed = sorted(await _collect_aiterator(store.list_prefix(prefix)))
            assert listed == sorted(key for key in keys if key.startswith(prefix))

    test_list_prefix = NOT_RUN

    async def test_list_dir(self, store: IcechunkStore) -> None:
        assert await _collect_aiterator(store.list_dir("")) == ()
        for key in ("foo/bar/c/0/12", "foo/bar/c/0/3", "foo/bar/c/2/0", "foo/c/c"):
            put(store, key, buffer(CHUNK))
        await store.set("foo/zarr.json", buffer(GROUP))
        make_arrays(store, "foo/none/c/0")
        directories = {
            "foo": {"zarr.json", "bar", "c", "none"},
            "foo/bar": {"zarr.json", "c"},
            "foo/bar/c": {"0", "2"},
            "foo/bar/c/0": {"12", "3"},
            "foo/bar/c/0/3": set(),
            "foo/bar/c/1": set(),
            "foo/c": {"zarr.json", "c"},
            "foo/c/c": set(),
            "foo/none": {"zarr.json", "c"},  # chunks or not
            "nothing": set(),
        }
        for prefix, names in directories.items():
            for spelling in (prefix, f"{prefix}/"):
                listed = await _collect_aiterator(store.list_dir(spelling))
                assert len(listed) == len(names)
                assert set(listed) == names

    async def test_set_if_not_exists(self, store: IcechunkStore) -> None:
        put(store, "foo/c/0", buffer(CHUNK))
        for key in ("foo/c/0", "foo/c/1"):
            await store.set_if_not_exists(key, buffer(b"new"))
        assert [take(store, key).to_bytes() for key in ("foo/c/0", "foo/c/1")] == [CHUNK, b"new"]

    async def test_many_at_once(self, store: IcechunkStore) -> None:
        values = {f"c/{i}": buffer(f"{i}".encode()) for i in range(10)}
        make_arrays(store, *values)
        await store._set_many(values.items())
        prototype = default_buffer_prototype()
        pairs = await _collect_aiterator(store._get_many([(key, prototype, None) for key in values]))
        assert dict(pairs) == values

    test_get_many = test_set_many = NOT_RUN

    # Synchronous, and both ways to look at the same value.

    async def test_each_way_sees_what_the_other_did(self, store: IcechunkStore) -> None:
        make_arrays(store, "c/0")
        store.set_sync("c/0", buffer(CHUNK))
        assert_bytes_equal(await store.get("c/0", default_buffer_prototype()), buffer(CHUNK))
        await store.set("c/0", buffer(CHUNK[::-1]))
        assert_bytes_equal(store.get_sync("c/0"), buffer(CHUNK[::-1]))
        store.delete_sync("c/0")
        assert store.get_sync("c/0") is await store.get("c/0", default_buffer_prototype()) is None
        for key in ("c/0", "nothing/zarr.json", "nothing/c/0"):
            store.delete_sync(key)

    test_get_sync = test_set_sync = test_delete_sync = test_delete_sync_missing = NOT_RUN
    test_sync_async_set_get_parity = test_delete_sync_visible_to_async_get = NOT_RUN

    def test_get_sync_missing(self, store: IcechunkStore) -> None:
        make_arrays(store, "c/0")
        for key in ("c/0", "c/99", "nothing/zarr.json", "nothing/c/0", ".zarray"):
            assert store.get_sync(key) is None

    @pytest.mark.parametrize(
        "byte_range",
        [None, RangeByteRequest(1, 4), OffsetByteRequest(1), SuffixByteRequest(1), RangeByteRequest(10, 20)],
    )
    async def test_get_sync_byte_range_parity(
        self, store: IcechunkStore, byte_range: ByteRequest | None
    ) -> None:
        put(store, "c/0", buffer(CHUNK))
        put(store, "g/zarr.json", buffer(GROUP))
        for key in ("c/0", "g/zarr.json"):
            value = await store.get(key, default_buffer_prototype(), byte_range)
            assert_bytes_equal(value, store.get_sync(key, byte_range=byte_range))

    @pytest.mark.parametrize("stored", [False, True])
    async def test_get_ranges(self, store: IcechunkStore, stored: bool, reopened: Any) -> None:
        data = bytes(range(256)) * 40
        put(store, "c/0", buffer(data))
        source: Store = reopened(store.session) if stored else store
        requests: list[Any] = [RangeByteRequest(0, 10), RangeByteRequest(20, 30), None, SuffixByteRequest(7)]
        requests += [RangeByteRequest(5000, 5001), OffsetByteRequest(10_000), RangeByteRequest(25, 28)]
        expected = [data[0:10], data[20:30], data, data[-7:], data[5000:5001], data[10_000:], data[25:28]]
        prototype = default_buffer_prototype()
        sync = source.get_ranges_sync("c/0", requests, prototype=prototype, max_gap_bytes=100)
        batches = [b async for b in source.get_ranges("c/0", requests, prototype=prototype)]
        for pairs in (sync, [pair for batch in batches for pair in batch]):
            assert {i: value.to_bytes() for i, value in pairs if value} == dict(enumerate(expected))
        with pytest.raises(ExceptionGroup) as raised:
            source.get_ranges_sync("c/1", requests, prototype=prototype)
        assert raised.group_contains(FileNotFoundError)
