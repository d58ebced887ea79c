"""Where the bytes of bulk reads come from: virtual files, several manifests, remote storages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.arrays.test_array import same
from tests.support.virtual_chunks import allow_folder

import frazil
from frazil.arrays.box_reading import refs_of
from frazil.arrays.encoding import encoding_of
from frazil.format.manifest import NativeRef


def chunks_of_config(inline: int = 0) -> frazil.RepositoryConfig:
    return frazil.RepositoryConfig(inline_chunk_threshold_bytes=inline)


def test_virtual_chunks(tmp_path: Path) -> None:
    values = np.arange(60, dtype="<i4").reshape(10, 6)
    files = tmp_path / "files"
    files.mkdir()
    for number in range(2):
        (files / f"{number}.bin").write_bytes(b"head" + values[number * 5 : number * 5 + 5].tobytes())
    repo = frazil.Repository.create(frazil.in_memory_storage(), **allow_folder(files, chunks_of_config()))
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="t", shape=(10, 6), chunks=(1, 6), dtype="i4", compressors=None)
    for row in range(9):
        location, offset = f"{files.as_uri()}/{row // 5}.bin", 4 + 24 * (row % 5)
        session.store.set_virtual_ref(f"t/c/{row}/0", location, offset=offset, length=24)
    values[9] = 0
    array = frazil.Array(session, "/t")
    same(array[:], values)
    same(array[1:9:3, 2:4], values[1:9:3, 2:4])
    same(array[[8, 0, 9], [5, 1, 1]], values[[8, 0, 9], [5, 1, 1]])
    (files / "1.bin").write_bytes(b"short")
    same(array[:5], values[:5])
    with pytest.raises(frazil.IcechunkError, match="the chunk"):
        array[:]


@pytest.mark.usefixtures("in_bulk")
def test_chunks_of_several_kinds_and_manifests(tmp_path: Path) -> None:
    """Inline, native and uncommitted chunks, and references in several manifests."""
    config = chunks_of_config(inline=40)
    split = frazil.ManifestSplittingConfig.from_dict(
        {frazil.ManifestSplitCondition.AnyArray(): {frazil.ManifestSplitDimCondition.Any(): 3}}
    )
    config.manifest = frazil.ManifestConfig(splitting=split)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")), config)
    values = np.arange(120.0)
    with repo.transaction("main", message="large chunks") as store:
        zarr.create_array(store, name="t", data=values, chunks=(8,), compressors=None)
        zarr.create_array(store, name="small", data=values, chunks=(4,), compressors=None)
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="t")[16:40] = -1
    del zarr.open_group(session.store)["small"]
    zarr.create_array(session.store, name="small", data=values[:50], chunks=(4,), compressors=None)
    values[16:40] = -1
    array = frazil.Array(session, "/t")
    same(array[:], values)
    same(array[5:100:7], values[5:100:7])
    same(array[[119, 17, 3]], values[[119, 17, 3]])
    small = np.arange(50.0)
    same(frazil.Array(session, "/small")[:], small)
    same(frazil.Array(session, "/small")[[49, 0, 3]], small[[49, 0, 3]])
    session.store.delete_sync("t/c/2")
    values[16:24] = 0
    same(array[:], values)


def test_an_expired_version(tmp_path: Path) -> None:
    """Chunks that a collection has deleted are an error, not missing chunks."""
    repo = frazil.Repository.create(
        frazil.local_filesystem_storage(str(tmp_path / "repo")), chunks_of_config()
    )
    with repo.transaction("main", message="values") as store:
        zarr.create_array(store, name="t", data=np.arange(400.0), chunks=(10,))
    array = frazil.Array(repo.readonly_session("main"), "/t")
    same(array[:15], np.arange(15.0))
    for file in (tmp_path / "repo" / "chunks").iterdir():
        file.unlink()
    for index in np.s_[:], np.s_[3], np.s_[[3, 4]]:
        with pytest.raises(frazil.IcechunkError, match="the chunk"):
            array[index]


@pytest.mark.parametrize("compressor", [None, zarr.codecs.ZstdCodec()])
@pytest.mark.parametrize(
    ("offset", "length"), [(0, 0), (2**64 - 10, 20), (2**63 - 1, 100), (3, 2**64 - 1), (0, 2**63)]
)
def test_impossible_references(compressor: Any, offset: int, length: int) -> None:
    """A damaged manifest may have any numbers. No decoder gets them."""
    repo = frazil.Repository.create(frazil.in_memory_storage(), chunks_of_config())
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="t", data=np.arange(40.0), chunks=(10,), compressors=compressor)
    session.commit("values")
    session = repo.writable_session("main")
    workspace = session.workspace
    good = workspace.ref("/t", (0,))
    assert isinstance(good, NativeRef)
    workspace.set_ref("/t", (2,), NativeRef(good.chunk_id, offset, length))
    encoding = encoding_of(workspace.require_array("/t").user_data)
    assert encoding is not None
    refs, rows = refs_of(workspace, "/t", encoding, np.arange(4, dtype="u4")[:, None])
    assert rows.tolist() == [2]
    assert refs.ref(2) is None
    array = frazil.Array(session, "/t")
    same(array[:20], np.arange(20.0))
    same(array[[0, 19, 35]], np.array([0.0, 19, 35]))
    for index in np.s_[:], np.s_[25], np.s_[[0, 25]]:
        with pytest.raises(Exception, match=r".") as expected:
            zarr.open_array(session.store, path="t", mode="r")[25]
        is_ours = isinstance(expected.value, frazil.IcechunkError)
        with pytest.raises(type(expected.value) if is_ours else frazil.FormatError):
            array[index]
