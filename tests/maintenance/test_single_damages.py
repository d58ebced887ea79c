"""Every single damage of every kind of file, at every level: the table of docs/verify.md.

A cell has the lowest level that sees the damage, or None. The table is exact: what a lower level does not see
must not be seen there, and nothing else than the damaged file is a problem. The level `decode` and virtual
chunks have tests of their own.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
import zarr.codecs
import zstandard
from tests.maintenance.test_verification import keys
from tests.repository.version_1 import copy_of
from zarr.core.buffer.cpu import Buffer
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.errors import UnknownCodecError

import frazil
from frazil.chunks.virtual import VirtualSources
from frazil.errors import ErrorKind, MissingExtraError
from frazil.format.envelope import HEADER_BYTES
from frazil.format.ids import chunk_key, ids_to_text
from frazil.format.manifest import NativeRef
from frazil.format.repo_info import decode_repo_info
from frazil.maintenance.verification.findings import LEVELS
from frazil.storage.base import Storage
from frazil.storage.memory import MemoryStorage

M, E, C, D = LEVELS


@cache
def template(
    spec_version: int, deduplicate: bool = False, packs: bool = False, checksums: bool = True
) -> MemoryStorage:
    storage = MemoryStorage()
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        packing=frazil.PackingConfig(enabled=packs),
        num_updates_per_repo_info_file=2,
        chunks=frazil.ChunksConfig(deduplicate=deduplicate, checksums=checksums),
    )
    repo = frazil.Repository.create(storage, config, spec_version=spec_version)
    repo.save_config()
    for value in range(3):
        with repo.transaction("main", message=f"{value}") as store:
            if not value:
                codec = zarr.codecs.ZstdCodec(checksum=True)
                for name, codecs in (("raw", None), ("zstd", codec)):
                    zarr.create_array(
                        store, name=name, shape=(64,), chunks=(32,), dtype="i8", compressors=codecs
                    )
            for name in ("raw", "zstd"):
                zarr.open_array(store, path=name)[:] = np.arange(64) * (value + 3) + 1000 * (name == "zstd")
    repo.create_tag("v", repo.lookup_branch("main"))
    return storage


def content(data: bytes) -> bytes:
    """What a reader gets from a file: of metadata, the decompressed buffer."""
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data[HEADER_BYTES:])
    except zstandard.ZstdError:
        return data


def flipped(at: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        place = min(int(at * len(data)), len(data) - 1)
        return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]

    return flip


#: Not in the header of a metadata file, where a bit may be in the name of the writer.
FLIPS: list[Callable[[bytes], bytes | None]] = [flipped(at) for at in (0.0, 0.55, 0.7, 0.85, 1.0)]
#: The ways of damage; a way may be several changes, each of which counts alone.
WAYS: dict[str, list[Callable[[bytes], bytes | None]]] = {
    "deleted": [lambda data: None],
    "cut": [lambda data: data[:-1]],
    "half": [lambda data: data[: len(data) // 2]],
    "empty": [lambda data: b""],
    "bit": FLIPS,
    "longer": [lambda data: data + bytes(9)],
    "zeros": [lambda data: bytes(len(data))],
}

_METADATA: dict[str, str | None] = dict.fromkeys(WAYS, M)
_CHECKED: dict[str, str | None] = {
    "deleted": E,
    "cut": C,
    "half": E,
    "empty": E,
    "bit": C,
    "longer": C,
    "zeros": C,
}
_PLAIN = dict.fromkeys(("deleted", "cut", "half", "empty"), E)
#: Kind of file -> way -> the lowest level that sees it.
SEEN: dict[str, dict[str, str | None]] = {
    "repo": _METADATA,
    **{
        f"{kind}{version}": {**_METADATA, "exchanged": M}
        for kind in ("snapshot", "manifest", "log")
        for version in ("", " v1")
    },
    "chain backup": {**_METADATA, "exchanged": C},
    "backup": {**dict.fromkeys(WAYS, C), "deleted": None, "exchanged": C},
    "raw chunk": {**_CHECKED, "exchanged": C},
    "raw chunk without checksum": {**_PLAIN, "bit": None, "longer": None, "zeros": None, "exchanged": None},
    "zstd chunk without checksum": {**_PLAIN, "bit": D, "zeros": D},
    "zstd chunk": _CHECKED,
    "pack": _CHECKED,
    "deduplicated chunk": {way: level for way, level in _CHECKED.items() if way != "longer"}
    | {"exchanged": C},
    "ref v1": {"empty": M, "zeros": M},
    "config v1": {"deleted": None, "zeros": M},
}


def listed(storage: MemoryStorage, folder: str) -> list[str]:
    return [key for key in keys(storage, folder) if "1CECHNKREP0F1RSTCMT0" not in key]


def chunks_of(repo: frazil.Repository, name: str) -> list[str]:
    table = repo.readonly_session("main").chunk_table(f"/{name}")
    return [f"chunks/{text}" for text in ids_to_text(table.chunk_ids)]


def chain_of(repo: frazil.Repository) -> list[str]:
    names, info = [], decode_repo_info(repo.storage.get("repo"), "repo")
    while info.repo_before_updates is not None:
        names.append(f"overwritten/{info.repo_before_updates}")
        info = decode_repo_info(repo.storage.get(names[-1]), names[-1])
    return names


def prepared(kind: str) -> tuple[frazil.Repository, list[str]]:
    """A repository, and two keys of files of a kind, or one."""
    version = 1 if kind.endswith("v1") else 2
    storage = copy_of(template(version, kind.startswith("dedup"), kind == "pack", "without" not in kind))
    repo = frazil.Repository.open(storage)
    match kind.removesuffix(" v1").removesuffix(" without checksum"):
        case "repo":
            keys = ["repo"]
        case "snapshot" | "manifest":
            keys = listed(storage, f"{kind.removesuffix(' v1')}s")
        case "log":
            keys = listed(storage, "transactions")
        case "chain backup":
            keys = chain_of(repo)
        case "backup":
            keys = [key for key in listed(storage, "overwritten") if key not in chain_of(repo)]
        case "raw chunk" | "deduplicated chunk" | "pack":
            keys = chunks_of(repo, "raw")
        case "zstd chunk":
            keys = chunks_of(repo, "zstd")
        case "ref":
            keys = ["refs/tag.v/ref.json"]
        case _:
            keys = ["config.yaml"]
    return repo, keys[-2:]


def harm(storage: Storage, key: str, change: Callable[[bytes], bytes | None]) -> None:
    after = change(bytes(storage.get(key)))
    storage.delete([key]) if after is None else storage.put(key, after)


def damages(storage: Storage, keys: list[str], way: str) -> Iterator[set[str]]:
    """Yields the damaged keys, once for each single damage, which is undone afterwards."""
    before = {key: bytes(storage.get(key)) for key in keys}
    if way == "exchanged":
        one, other = keys
        storage.put(one, before[other])
        storage.put(other, before[one])
        yield set(keys)
    else:
        for change in WAYS[way]:
            data = before[keys[0]]
            after = change(data)
            if after is not None and len(after) == len(data) and content(after) == content(data):
                continue  # zstd has several forms of the same content: nothing is damaged
            storage.delete(keys[:1]) if after is None else storage.put(keys[0], after)
            yield {keys[0]}
    for key, data in before.items():
        storage.put(key, data)


FIRST = [
    (kind, next(way for way, level in ways.items() if level is not None and way != "deleted"), (M, D))
    for kind, ways in SEEN.items()
]
CELLS = [(kind, way, LEVELS) for kind, ways in SEEN.items() for way in ways]


@pytest.mark.sample(1, 11)
@pytest.mark.parametrize(
    ("kind", "way", "levels"), [*FIRST, *(pytest.param(*cell, marks=pytest.mark.deep) for cell in CELLS)]
)
def test_each_damage_is_seen_at_its_level(kind: str, way: str, levels: tuple[Any, ...]) -> None:
    repo, keys = prepared(kind)
    lowest = SEEN[kind][way]
    for damaged in damages(repo.storage, keys, way):
        for level in levels:
            expected = lowest is not None and LEVELS.index(lowest) <= LEVELS.index(level)
            problems = {each.key for each in repo.upkeep.verify(level).problems}
            assert bool(problems & damaged) == expected, (level, problems)
            assert problems <= damaged or way == "exchanged" or kind in ("snapshot v1", "ref v1")
    assert repo.upkeep.verify("decode").ok


@pytest.mark.parametrize("change", [change for way in WAYS.values() for change in way])
def test_all_files_damaged_at_once_are_findings(change: Callable[[bytes], bytes | None]) -> None:
    repo = frazil.Repository.open(copy_of(template(2)))
    for folder in ("snapshots", "transactions", "manifests", "chunks", "overwritten", "repo"):
        for key in keys(repo.storage, folder) if folder != "repo" else ["repo"]:
            harm(repo.storage, key, change)
    assert not repo.upkeep.verify("checksum").ok


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
