"""Which error is raised when."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import zarr
from tests.zarr_store.documents import GROUP, array_document, buffer
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

import frazil
from frazil import IcechunkStore

P = default_buffer_prototype()
V2 = json.dumps({"zarr_format": 2, "node_type": "group"}).encode()
OTHER_GRID = array_document(1).replace(b'"regular"', b'"hexagonal"')

SETS = [
    ("foo", b"x", frazil.InvalidInputError, "invalid-key"),
    (".zgroup", b"{}", frazil.SessionStateError, "unimplemented"),
    ("a/.zarray", b"{}", frazil.SessionStateError, "unimplemented"),
    ("a/c/16/0", b"x", frazil.InvalidInputError, "invalid-chunk-index"),
    ("a/c/0", b"x", frazil.InvalidInputError, "invalid-chunk-index"),
    ("a/c/0/0/0", b"x", frazil.InvalidInputError, "invalid-chunk-index"),
    ("a/c", b"x", frazil.InvalidInputError, "invalid-chunk-index"),
    ("a/c/0/0", b"", frazil.InvalidInputError, "zero-length-chunk"),
    ("g/c/0", b"x", frazil.InvalidInputError, "not-an-array"),
    ("nope/c/0", b"x", frazil.NodeNotFoundError, "node-not-found"),
    ("b/zarr.json", b"", frazil.InvalidInputError, "bad-metadata"),
    ("b/zarr.json", b"{}", frazil.InvalidInputError, "bad-metadata"),
    ("b/zarr.json", V2, frazil.InvalidInputError, "bad-metadata"),
    ("b/zarr.json", OTHER_GRID, frazil.InvalidInputError, "bad-metadata"),
    ("a/zarr.json", GROUP, frazil.AlreadyExistsError, "node-already-exists"),
    ("g/zarr.json", array_document(1), frazil.AlreadyExistsError, "node-already-exists"),
]


@pytest.fixture
def store(session: frazil.Session) -> IcechunkStore:
    store = session.store
    store.set_sync("zarr.json", buffer(GROUP))
    store.set_sync("g/zarr.json", buffer(GROUP))
    store.set_sync("a/zarr.json", buffer(array_document(2)))
    store.set_sync("a/c/0/0", buffer(b"0123456789"))
    return store


@pytest.mark.parametrize(("key", "value", "error", "kind"), SETS)
def test_set(store: IcechunkStore, key: str, value: bytes, error: type[Exception], kind: str) -> None:
    before = asyncio.run(_keys(store))
    with pytest.raises(error) as raised:
        asyncio.run(store.set(key, buffer(value)))
    assert raised.value.kind == kind  # type: ignore[attr-defined]
    with pytest.raises(error) as raised:
        store.set_sync(key, buffer(value))
    assert raised.value.kind == kind  # type: ignore[attr-defined]
    assert asyncio.run(_keys(store)) == before


async def _keys(store: IcechunkStore) -> list[str]:
    return [key async for key in store.list()]


@pytest.mark.parametrize("key", ["a/c/1/1", "nope/c/0", "nope/zarr.json", ".zgroup"])
def test_size_of_nothing(store: IcechunkStore, key: str) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        asyncio.run(store.getsize(key))
    assert isinstance(raised.value, frazil.NotFoundError)
    assert raised.value.kind == "key-not-found"
    assert key in str(raised.value)


NO_RANGES: list[Any] = [RangeByteRequest(-1, 3), RangeByteRequest(0, -3), OffsetByteRequest(-1)]
NO_RANGES += [SuffixByteRequest(-1), (0, 2)]
#: The name and arguments of a method, and the kind of its error.
READS: list[tuple[str, tuple[Any, ...], str]] = [
    *((name, ("g/c/0",), "not-an-array") for name in ("get", "exists", "getsize")),
    ("exists", ("a/.zarray",), "key-not-found"),
    ("set_partial_values", ([("a/c/0/0", 0, b"x")],), "unimplemented"),
    *(
        ("get", (key, P, each), "invalid-byte-range")
        for key in ("a/c/0/0", "zarr.json")
        for each in NO_RANGES
    ),
]


@pytest.mark.parametrize(("name", "arguments", "kind"), READS)
def test_other_calls(store: IcechunkStore, name: str, arguments: tuple[Any, ...], kind: str) -> None:
    assert store.get_sync(".zgroup") is None
    with pytest.raises(frazil.IcechunkError) as raised:
        asyncio.run(getattr(store, name)(*arguments))
    assert raised.value.kind == kind


WRITES: dict[str, Callable[[IcechunkStore], Coroutine[Any, Any, None]]] = {
    "set": lambda store: store.set("a/c/0/0", buffer(b"x")),
    "set_if_not_exists": lambda store: store.set_if_not_exists("a/c/1/1", buffer(b"x")),
    "delete": lambda store: store.delete("a/c/0/0"),
    "delete_dir": lambda store: store.delete_dir("a"),
    "clear": lambda store: store.clear(),
    "virtual": lambda store: store.set_virtual_ref_async("a/c/0/0", "s3://b/x", offset=0, length=1),
}


@pytest.mark.parametrize("write", WRITES)
def test_after_a_commit(store: IcechunkStore, repo: frazil.Repository, write: str) -> None:
    store.session.commit("done")
    reader = repo.readonly_session("main").store
    for closed in (store, reader, reader.with_read_only(False)):
        with pytest.raises(frazil.ReadOnlyError) as raised:
            asyncio.run(WRITES[write](closed))
        assert raised.value.kind == "read-only-store"
    assert reader.get_sync("a/c/0/0").to_bytes() == b"0123456789"  # type: ignore[union-attr]


def test_consolidated_metadata(store: IcechunkStore) -> None:
    with pytest.raises(TypeError, match="doesn't support consolidated metadata"):
        zarr.consolidate_metadata(store)


def test_documents_are_stored_verbatim(store: IcechunkStore, repo: frazil.Repository) -> None:
    ids = [store.session.get_node_id("a")]
    document = b'  {"unknown" : [1,  2],\n' + array_document(2).lstrip(b"{")
    store.set_sync("a/zarr.json", buffer(document))
    ids.append(store.session.get_node_id("a"))
    store.session.commit("done")
    session = repo.readonly_session("main")
    ids.append(session.get_node_id("a"))
    assert session.store.get_sync("a/zarr.json").to_bytes() == document  # type: ignore[union-attr]
    assert len(set(ids)) == 1


def test_equality(store: IcechunkStore, repo: frazil.Repository) -> None:
    assert store == store.session.store == store.with_read_only(True)
    assert store != repo.writable_session("main").store
    assert store != 3
