"""What a verification says about recorded checksums: packs, shared packs, references to wrong places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.errors import FormatError
from frazil.format.chunk_trailer import crc32c, encode_trailer, single_trailer
from frazil.format.ids import chunk_key
from frazil.format.manifest import Manifest, decode_manifest, encode_manifest
from frazil.maintenance.verification import chunks as checks
from frazil.maintenance.verification.chunks import stored_trailer
from frazil.storage.memory import MemoryStorage

SIZE = 2000
ID = bytes(range(12))


def packed(commits: int = 1) -> frazil.Repository:
    """Commits of two arrays, each with a pack of eight chunks."""
    repo = frazil.Repository.create(MemoryStorage())
    for value in range(commits):
        with repo.transaction("main", message=f"{value}") as store:
            for name in "ab":
                if not value:
                    zarr.create_array(
                        store, name=name, shape=(4 * SIZE,), chunks=(SIZE,), dtype="u1", compressors=None
                    )
                zarr.open_array(store, path=name)[:] = np.arange(4 * SIZE) // SIZE + value + 1
    return repo


def keys(repo: frazil.Repository, folder: str) -> list[str]:
    return sorted(each.key for each in repo.storage.list(folder))


def changed(repo: frazil.Repository, key: str, place: int) -> None:
    data = bytearray(repo.storage.get(key))
    data[place] ^= 16
    repo.storage.put(key, data)


def test_two_exchanged_packs_are_findings() -> None:
    repo = packed(2)
    one, other = keys(repo, "chunks")
    first, second = bytes(repo.storage.get(one)), bytes(repo.storage.get(other))
    repo.storage.put(one, second)
    repo.storage.put(other, first)
    report = repo.upkeep.verify("checksum")
    assert {(each.check, each.key, each.detail) for each in report.findings} == {
        ("exchanged", one, f"it has the bytes of {other}"),
        ("exchanged", other, f"it has the bytes of {one}"),
    }
    assert sum(len(each.coordinates) for each in report.findings) == 16
    assert (report.native_chunks, report.compared_chunks) == (16, 16)


@pytest.mark.parametrize("place", [-1, -10, -15, -30, -100])
def test_a_damaged_trailer_is_a_finding_without_lost_chunks(place: int) -> None:
    repo = packed()
    (pack,) = keys(repo, "chunks")
    changed(repo, pack, place)
    report = repo.upkeep.verify("checksum")
    assert [(each.check, each.key, len(each.coordinates)) for each in report.findings] == [
        ("checksum", pack, 0)
    ]
    assert "trailer" in report.findings[0].detail
    assert report.compared_chunks == 0


@pytest.mark.parametrize(("shift", "length"), [(1, 0), (0, -1), (SIZE // 2, -SIZE // 2)])
def test_references_to_the_middle_of_a_chunk_are_findings(shift: int, length: int) -> None:
    repo = packed()
    wrong = 0
    for key in keys(repo, "manifests"):
        manifest = decode_manifest(repo.storage.get(key), key)
        arrays = dict(manifest.arrays)
        for node, table in arrays.items():
            offset, lengths = table.offset.copy(), table.length.copy()
            offset[1] += np.uint64(shift)
            lengths[1] = np.uint64(int(lengths[1]) + length)
            arrays[node] = replace(table, offset=offset, length=lengths)
            wrong += 1
        repo.storage.put(key, encoded(replace(manifest, arrays=arrays)))
    report = frazil.Repository.open(repo.storage).upkeep.verify("checksum")
    findings = [each for each in report.findings if each.key.startswith("chunks/")]
    assert len(findings) == wrong == 2
    assert {each.check for each in findings} == {"checksum"}
    assert all(each.coordinates.tolist() == [[1]] for each in findings)


def encoded(manifest: Manifest) -> bytes:
    data: Any = encode_manifest(manifest)
    return bytes(data)


@pytest.mark.parametrize("used", [1, 500, 1000])
@pytest.mark.parametrize("first", [24, 60, 100, 1 << 16])
def test_a_trailer_is_read_in_few_requests(monkeypatch: pytest.MonkeyPatch, used: int, first: int) -> None:
    """Even if chunks follow the last known one, or the trailer is longer than the first request."""
    monkeypatch.setattr(checks, "_FIRST", first)
    storage = MemoryStorage()
    parts = [bytes([number]) * 100 for number in range(10)]
    storage.put(
        chunk_key(ID), b"".join(parts) + encode_trailer(ID, [100] * 10, [crc32c(part) for part in parts])
    )
    trailer = stored_trailer(storage, ID, used)
    assert trailer is not None
    assert trailer.lengths.tolist() == [100] * 10


def test_a_chunk_that_is_a_copy_of_a_chunk_file_is_not_an_exchange() -> None:
    """A user may store the bytes of a chunk file in an array."""
    storage = MemoryStorage()
    copy = b"ice" + single_trailer(bytes(12), b"ice")
    storage.put(chunk_key(ID), copy)
    assert stored_trailer(storage, ID, len(copy)) is None
    assert stored_trailer(storage, ID, 3) is not None


def single(deduplicate: bool = False, *, checksums: bool = True) -> frazil.Repository:
    """A repository with four chunk files of one chunk each."""
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        packing=frazil.PackingConfig(enabled=False),
        chunks=frazil.ChunksConfig(deduplicate=deduplicate, checksums=checksums),
    )
    repo = frazil.Repository.create(MemoryStorage(), config)
    repo.save_config()
    fill(repo, "a")
    return repo


def fill(repo: frazil.Repository, name: str) -> None:
    with repo.transaction("main", message=name) as store:
        array = zarr.create_array(store, name=name, shape=(32,), chunks=(8,), dtype="f8", compressors=None)
        array[:] = np.random.default_rng(7).random(32)


def blank(repo: frazil.Repository, key: str, start: int) -> None:
    data = bytes(repo.storage.get(key))
    repo.storage.put(key, data[:start] + bytes(len(data) - start))


@pytest.mark.parametrize(
    ("make", "start", "lost"),
    [
        (lambda: single(False), 0, 1),
        (lambda: single(True), 0, 1),
        (lambda: single(False), 64, 0),
        (lambda: single(True), 64, 0),
        (packed, 3 * SIZE, 5),
    ],
)
def test_blank_chunks_are_lost_and_those_before_a_blank_trailer_are_not(
    make: Any, start: int, lost: int
) -> None:
    repo = make()
    key = keys(repo, "chunks")[0]
    blank(repo, key, start)
    findings = repo.upkeep.verify("checksum").problems
    assert {(each.check, each.key) for each in findings} == {("checksum", key)}
    assert sum(len(each.coordinates) for each in findings) == lost
    plan = frazil.Repository.upkeep.repair(repo.storage, level="checksum", lost="fill")
    assert bool(plan.lost) == bool(lost)


def test_a_compaction_refuses_a_pack_of_zeros() -> None:
    repo = single()
    for key in keys(repo, "chunks"):
        blank(repo, key, 0)
    with pytest.raises(FormatError, match="zeros"):
        repo.upkeep.compact("packs", branch="main").apply()
