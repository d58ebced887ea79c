"""Verification at the level `decode`, and of virtual chunks."""

from __future__ import annotations

import json
import os
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
import zarr.codecs
from zarr.core.buffer.cpu import Buffer
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.errors import UnknownCodecError

import frazil
from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, MissingExtraError
from frazil.format.ids import chunk_key
from frazil.format.manifest import NativeRef

CODECS: dict[str, dict[str, Any]] = {
    "zstd": {"compressors": zarr.codecs.ZstdCodec(checksum=True)},
    "crc32c": {"compressors": zarr.codecs.Crc32cCodec()},
    "shards": {"shards": (4,), "compressors": zarr.codecs.Crc32cCodec()},
}


def small(**options: Any) -> frazil.Repository:
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        packing=frazil.PackingConfig(enabled=False),
        chunks=frazil.ChunksConfig(checksums=False),
    )
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    with repo.transaction("main", message="an array") as store:
        array = zarr.create_array(store, name="t", shape=(7,), chunks=(2,), dtype="i4", **options)
        array[:] = np.arange(7)
        zarr.create_array(store, name="scalar", shape=(), dtype="f8")[()] = 2.5
        zarr.create_array(store, name="text", shape=(3,), chunks=(2,), dtype=str)[:] = ["a", "bc", "d"]
    return repo


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CODECS)
def test_a_changed_bit_is_seen_by_the_codec(name: str) -> None:
    repo = small(**CODECS[name])
    assert repo.upkeep.verify("decode").findings == ()
    table = repo.readonly_session("main").chunk_table("/t")
    for row in range(len(table)):
        ref = table.ref(row)
        assert isinstance(ref, NativeRef)
        key = chunk_key(ref.chunk_id)
        data = bytes(repo.storage.get(key))
        middle = len(data) // 2 if name != "shards" else 1
        repo.storage.put(key, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        assert repo.upkeep.verify("checksum").findings == ()
        (finding,) = repo.upkeep.verify("decode").findings
        assert (finding.check, finding.key, finding.severity.value) == ("undecodable", key, "loss")
        assert finding.coordinates.tolist() == [table.index[row].tolist()]
        repo.storage.put(key, data)


def test_inline_chunks_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4", compressors=None)[:] = 1
        # The bytes of another dtype.
        store.set_sync("t/c/1", zarr.core.buffer.cpu.Buffer.from_bytes(b"123"))
    assert repo.upkeep.verify("checksum").ok
    report = repo.upkeep.verify("decode")
    (finding,) = report.findings
    assert finding.coordinates.tolist() == [[1]]
    assert report.paths[finding.node] == "/t"


def test_earlier_versions_are_decoded_with_their_own_metadata() -> None:
    repo = small(compressors=None)
    with repo.transaction("main", message="another array") as store:
        zarr.create_array(store, name="t", shape=(3,), chunks=(3,), dtype="f8", overwrite=True)[:] = 1
    assert repo.upkeep.verify("decode").findings == ()


UNUSABLE: dict[str, Any] = {
    "codec": {"codecs": [{"name": "numcodecs.pcodec", "configuration": {}}]},
    "codec of nobody": {"codecs": [{"name": "https://codec.example/x", "configuration": {}}]},
    "type": {"data_type": "int1000", "fill_value": 0},
    "fill value 0": {"codecs": [{"name": "openzl", "configuration": {}}], "fill_value": 0},
}


@pytest.mark.parametrize("lost", ["fill", "previous"])
@pytest.mark.parametrize("name", UNUSABLE)
def test_an_array_that_cannot_be_opened_is_not_damaged(name: str, lost: Any) -> None:
    repo = small()
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="x", shape=(8,), chunks=(4,), dtype="i4")
        stored = store.get_sync("x/zarr.json")
        assert stored is not None
        document = json.loads(stored.to_bytes()) | UNUSABLE[name]
        store.set_sync("x/zarr.json", Buffer.from_bytes(json.dumps(document).encode()))
        for row in range(2):
            store.set_sync(f"x/c/{row}", Buffer.from_bytes(bytes(range(100 + row))))
    before = repo.lookup_branch("main")
    report = repo.upkeep.verify("decode")
    assert report.ok
    (note,) = {(each.check, report.paths[each.node], each.severity.value) for each in report.findings}
    assert note == ("codec-missing", "/x", "information")
    plan = frazil.Repository.upkeep.repair(repo.storage, level="decode", lost=lost)
    assert plan.ok
    if name == "codec":  # zarr opens the array, and needs the package for chunks only
        return
    # A lost chunk of an array that cannot be opened stays as it is.
    ref: Any = repo.readonly_session("main").workspace.ref("/x", (1,))
    repo.storage.delete([chunk_key(ref.chunk_id)])
    plan = frazil.Repository.upkeep.repair(repo.storage, level="decode", lost=lost)
    assert not plan.steps
    assert [each.check for each in plan.findings] == ["missing", *["codec-missing"] * (lost == "fill")]
    assert repo.lookup_branch("main") == before


ERRORS = [
    *(ImportError("no package"), MemoryError(), PermissionError(13, "denied"), TypeError("another version")),
    *(RuntimeError("Zstd decompression error: b'Allocation error : not enough memory'"), KeyError("x")),
    *(RuntimeError("error during blosc decompression: -5"), OSError(28, "no space"), EOFError("a prompt")),
    *(
        UnknownCodecError("x"),
        MissingExtraError("x", ErrorKind.MISSING_EXTRA),
        ValueError("No Zarr data type"),
    ),
    zlib.error("Error -6 while preparing to decompress data: incompatible version"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_of_a_codec_that_proves_no_damage(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = small(compressors=None)

    async def refuse(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(zarr.codecs.BytesCodec, "_decode_single", refuse)
    monkeypatch.setattr(zarr.codecs.BytesCodec, "_decode_sync", refuse, raising=False)
    monkeypatch.setattr("frazil.zarr_pipeline.BulkCodecPipeline.read", BatchedCodecPipeline.read)
    report = repo.upkeep.verify("decode")
    assert report.ok
    assert {each.check for each in report.findings} == {"codec-missing"}
    assert frazil.Repository.upkeep.repair(repo.storage, level="decode", lost="fill").ok


def virtual(tmp_path: Path, **checksum: Any) -> frazil.Repository:
    prefix = f"file://{tmp_path}/"
    (tmp_path / "data.bin").write_bytes(bytes(range(64)))
    os.utime(tmp_path / "data.bin", (1_700_000_000, 1_700_000_000))
    config = frazil.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        frazil.VirtualChunkContainer(prefix, frazil.local_filesystem_store(str(tmp_path)))
    )
    repo = frazil.Repository.create(
        frazil.in_memory_storage(),
        config,
        authorize_virtual_chunk_access={prefix: frazil.credentials.LocalFileSystemAccess},
    )
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="t", shape=(8,), chunks=(4,), dtype="i8", compressors=None)
    session.store.set_virtual_ref("t/c/0", f"{prefix}data.bin", offset=0, length=32, **checksum)
    session.store.set_virtual_ref("t/c/1", f"{prefix}data.bin", offset=32, length=32, **checksum)
    session.commit("virtual")
    return repo


@pytest.mark.deep
def test_virtual_objects(tmp_path: Path) -> None:
    repo = virtual(tmp_path, checksum=datetime.fromtimestamp(1_700_000_100, UTC))
    data = tmp_path / "data.bin"
    assert repo.upkeep.verify("decode").findings == ()

    def seen(level: Any) -> set[tuple[str, int]]:
        return {(each.check, len(each.coordinates)) for each in repo.upkeep.verify(level).findings}

    os.utime(data, (1_800_000_000, 1_800_000_000))
    assert seen("metadata") == seen("exists") == seen("checksum") == {("virtual-modified", 2)}
    data.write_bytes(bytes(40))
    os.utime(data, (1_700_000_000, 1_700_000_000))
    assert seen("metadata") == seen("exists") == {("virtual-unreadable", 2)}
    data.unlink()
    assert seen("metadata") == seen("exists") == seen("decode") == {("virtual-unreadable", 2)}
    data.symlink_to(data)
    assert seen("exists") == seen("decode") == {("virtual-unavailable", 2)}
    stranger = frazil.Repository.open(repo.storage)
    assert {each.check for each in stranger.upkeep.verify("exists").problems} == {"virtual-unauthorized"}
    data.unlink()
    for repo in (stranger, virtual(tmp_path)):  # without access, and without checksums
        report = repo.upkeep.verify("metadata")
        assert [(each.check, each.severity.value) for each in report.findings] == [
            ("virtual-unchecked", "information")
        ]


def test_the_default_level_reads_each_object_once(tmp_path: Path) -> None:
    repo = virtual(tmp_path, checksum=datetime.fromtimestamp(1_700_000_100, UTC))
    with repo.transaction("main", message="another manifest") as store:
        zarr.open_array(store, path="t")[:1] = 7
    with mock.patch.object(
        VirtualSources, "locate", autospec=True, side_effect=VirtualSources.locate
    ) as reads:
        assert repo.upkeep.verify().findings == ()
    assert reads.call_count == 1
