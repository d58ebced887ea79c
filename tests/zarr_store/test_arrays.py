"""Chunks that cannot be read are named: the array, the coordinates, the object and the snapshot."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

import frazil
from frazil.credentials import LocalFileSystemAccess
from frazil.errors import FormatError, InvalidInputError, StorageError
from frazil.zarr_store.arrays import array_at

VALUES: Final = np.random.default_rng(0).random((8, 10))

#: What ``zarr.create_array`` gets, by the codec that notices the damage.
CODECS: Final[dict[str, dict[str, Any]]] = {
    "zstd": {"compressors": ZstdCodec()},
    "gzip": {"compressors": GzipCodec()},
    "blosc": {"compressors": BloscCodec()},
    "crc32c": {"compressors": Crc32cCodec()},
    "index of a shard": {"chunks": (2, 5), "shards": (4, 5)},
    "inside of a shard": {"chunks": (2, 5), "shards": (4, 5)},
    "too few bytes": {"compressors": None},
}

DAMAGED: Final = (1, 0)


@pytest.fixture(params=CODECS)
def damaged(request: pytest.FixtureRequest) -> frazil.Repository:
    """One damaged chunk, ``[1, 0]`` of the array ``/g/t``."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    settings = {"chunks": (4, 5), **CODECS[request.param]}
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="g/t", shape=VALUES.shape, dtype="f8", **settings)[:] = VALUES
    with repo.transaction("main", message="damage") as store:
        key = f"g/t/c/{DAMAGED[0]}/{DAMAGED[1]}"
        value = store.get_sync(key)
        assert value is not None
        data = bytearray(value.to_bytes())
        if request.param == "inside of a shard":
            data[:20] = bytes(20)
        elif request.param == "too few bytes":
            del data[-8:]
        else:
            data[-20:] = bytes(20)
            data[:4] = b"\0\0\0\0"
        store.set_sync(key, zarr.core.buffer.cpu.Buffer.from_bytes(bytes(data)))
    return repo


SELECTIONS: Final[dict[str, Callable[[zarr.Array[Any]], Any]]] = {
    "all": lambda array: array[:],
    "region": lambda array: array[2:7, 1:3],
    "cell": lambda array: array[4, 0],
    "orthogonal": lambda array: array.oindex[np.array([0, 5]), np.array([1, 2])],
    "coordinates": lambda array: array.vindex[[0, 5], [1, 2]],
    "mask": lambda array: array.vindex[VALUES >= 0],
    "block": lambda array: array.blocks[1, 0],
    "numpy": np.asarray,
}


@pytest.mark.sample(55, 55)
@pytest.mark.deep
@pytest.mark.parametrize("select", SELECTIONS.values(), ids=SELECTIONS)
def test_a_chunk_that_cannot_be_decoded_is_named(
    damaged: frazil.Repository, select: Callable[[zarr.Array[Any]], Any]
) -> None:
    session = damaged.readonly_session("main")
    array = array_at(session, "g/t")
    with pytest.raises(FormatError) as caught:
        select(array)
    message = caught.value.message
    assert caught.value.kind == "undecodable-chunk"
    assert message.startswith("cannot decode the chunk [1, 0] of the array `/g/t`: ")
    assert session.snapshot_id in message
    assert "".join(traceback.format_exception(caught.value)).count("Traceback (most") == 2  # one cause
    assert np.array_equal(array[:4], VALUES[:4])  # other chunks can be read
    assert np.array_equal(array[:, 5:], VALUES[:, 5:])


def test_a_write_of_a_part_names_the_chunk_too(damaged: frazil.Repository) -> None:
    session = damaged.writable_session("main")
    for array in (array_at(session, "/g/t", "r+"), frazil.Array(session, "/g/t")):
        with pytest.raises(FormatError, match=r"the chunk \[1, 0\] of the array `/g/t`"):
            array[5, 1] = 0
    array[4:8, :5] = 0  # whole, so that nothing has to be read


# Errors of the store, for whoever reads


@pytest.mark.parametrize("how", ["missing", "short"])
def test_a_missing_or_short_object_is_named_with_its_chunk(tmp_path: Path, how: str) -> None:
    repo = frazil.Repository.create(
        frazil.local_filesystem_storage(str(tmp_path)),
        frazil.RepositoryConfig(inline_chunk_threshold_bytes=0),
    )
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="a/t", data=VALUES, chunks=(4, 5), compressors=None)
    session = repo.readonly_session("main")
    (pack,) = (tmp_path / "chunks").iterdir()
    if how == "missing":
        pack.unlink()
    else:
        pack.chmod(0o644)
        pack.write_bytes(pack.read_bytes()[:10])
    kinds = {"missing": "object-not-found", "short": "invalid-object-size"}
    reads: list[Callable[[], object]] = [
        lambda: session.store.get_sync("a/t/c/1/0"),
        lambda: asyncio.run(session.store.get("a/t/c/1/0")),
        lambda: array_at(session, "a/t")[4:, :5],
    ]
    for read in reads:
        with pytest.raises(StorageError, match=r"the chunk \[1, 0\] of the array `/a/t`") as caught:
            read()
        assert caught.value.kind == kinds[how]
        assert f"of `chunks/{pack.name}`, snapshot {session.snapshot_id}" in caught.value.message
        assert "`frazil verify ice --level exists`" in caught.value.for_shell("ice")


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        *(("missing", "virtual-chunk-fetch"), ("short", "virtual-chunk-fetch")),
        *(("modified", "virtual-chunk-modified"), ("unauthorized", "unauthorized-virtual-chunk-container")),
    ],
)
def test_a_virtual_chunk_is_named_with_its_file(tmp_path: Path, how: str, kind: str) -> None:
    file = tmp_path / "files" / "a.bin"
    file.parent.mkdir()
    file.write_bytes(bytes(range(16)))
    prefix = file.parent.as_uri() + "/"
    container = frazil.VirtualChunkContainer(prefix, frazil.local_filesystem_store(str(file.parent)))
    config = frazil.RepositoryConfig(virtual_chunk_containers={prefix: container})
    storage = frazil.local_filesystem_storage(str(tmp_path / "repo"))
    access = {prefix: LocalFileSystemAccess}
    repo = frazil.Repository.create(storage, config, authorize_virtual_chunk_access=access)
    with repo.transaction("main", message="references") as store:
        zarr.create_array(store, name="v", shape=(16,), chunks=(8,), dtype="u1", compressors=None)
        checksum = "another" if how == "modified" else None
        for at in range(2):
            store.set_virtual_ref(f"v/c/{at}", file.as_uri(), offset=8 * at, length=8, checksum=checksum)
    if how == "unauthorized":
        repo = frazil.Repository.open(storage)
    elif how == "missing":
        file.unlink()
    elif how == "short":
        file.write_bytes(bytes(4))
    of = InvalidInputError if how == "unauthorized" else StorageError
    with pytest.raises(of) as caught:
        array_at(repo.readonly_session("main"), "v")[8:]
    assert "the chunk [1] of the array `/v`, 8 bytes from byte 8 of `file://" in caught.value.message
    assert "a.bin" in caught.value.message
    assert caught.value.kind == kind


def test_an_array_that_is_opened_without_an_event_loop_is_that_of_zarr() -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    attributes: dict[str, Any] = {"units": "K", "numbers": [1, 2]}
    zarr.create_array(
        session.store,
        name="g/t",
        data=VALUES,
        chunks=(4, 5),
        attributes=attributes,
        dimension_names=["y", "x"],
    )
    zarr.create_array(session.store, name="scalar", data=np.full((), np.nan, "f4"), fill_value=np.nan)
    for path in ("g/t", "/g/t", "scalar"):
        ours, theirs = array_at(session, path), zarr.open_array(session.store, path=path.strip("/"), mode="r")
        assert ours.metadata.to_dict() == theirs.metadata.to_dict()
        assert (ours.path, ours.read_only) == (theirs.path, theirs.read_only) == (path.strip("/"), True)
        np.testing.assert_array_equal(ours[...], theirs[...])
    with pytest.raises(ValueError, match="read-only"):
        array_at(session, "g/t")[...] = 1
    numbers: Any = array_at(session, "g/t").attrs["numbers"]
    numbers.append(3)
    assert array_at(session, "g/t").attrs.asdict() == attributes
    writable = array_at(session, "g/t", "r+")
    writable.attrs["units"] = "degC"
    writable[0, 0] = 9
    writable.resize((9, 10))
    again = array_at(session, "g/t")
    assert (again.attrs["units"], again.shape, again[0, 0]) == ("degC", (9, 10), 9)
    with pytest.raises(zarr.errors.NodeTypeValidationError):
        array_at(session, "g")
    with pytest.raises(zarr.errors.ArrayNotFoundError):
        array_at(session, "nothing")
