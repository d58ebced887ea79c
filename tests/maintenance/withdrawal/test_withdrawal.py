"""Withdrawals: no stored byte of the data is left, in any version, and nothing else is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard
from tests.maintenance.schedules import Interrupted, Killed, killing
from tests.maintenance.test_in_use import opened_by
from tests.repository.version_1 import copy_of
from tests.support.errors import of_kind
from tests.support.judge import reference, reference_storage
from tests.support.virtual_chunks import allow_folder
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil import ErrorKind
from frazil.maintenance.withdrawal.spans import Spans
from frazil.storage.memory import MemoryStorage

#: Chunks of up to 16 bytes are inline.
CONFIG = frazil.RepositoryConfig(inline_chunk_threshold_bytes=16)
#: The first bytes of each secret element. No other bytes of a repository begin so.
SECRET = 0x5EC2E7A5_00000000
_FRAME = b"\x28\xb5\x2f\xfd"


def deduplicating(inline: int) -> frazil.RepositoryConfig:
    """Equal chunks of more than ``inline`` bytes are one file."""
    return frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=inline,
        packing=frazil.PackingConfig(enabled=False),
        chunks=frazil.ChunksConfig(deduplicate=True),
    )


def secret(count: int, first: int = 1) -> np.ndarray[Any, Any]:
    return np.arange(first, first + count, dtype="i8") + SECRET


def decoded(data: bytes) -> Iterator[bytes]:
    """The bytes of a file, and those of all zstd frames in it."""
    yield data
    at = data.find(_FRAME)
    while at >= 0:
        with suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
        at = data.find(_FRAME, at + 1)


def files_with(storage: Any, values: np.ndarray[Any, Any]) -> list[str]:
    """The files that have one of these elements."""
    needles = [each.tobytes() for each in values.astype("<i8")]
    return sorted(
        info.key
        for info in storage.list("")
        if any(needle in part for part in decoded(bytes(storage.get(info.key))) for needle in needles)
    )


def create(store: Any, name: str, data: Any, chunks: Any, **further: Any) -> Any:
    return zarr.create_array(store, name=name, data=data, chunks=chunks, compressors=None, **further)


def history(storage: Any, config: frazil.RepositoryConfig = CONFIG, **further: Any) -> frazil.Repository:
    """Secret elements 4 to 9 of `t`: in a pack with `u`, in a chunk file, inline, on a branch, in a tag."""
    repo = frazil.Repository.create(storage, config, **further)
    with repo.transaction("main", message="first") as store:
        data = np.arange(100, 116)
        data[4:10] = secret(6)
        create(store, "t", data, (4,), attributes={"frazil_statistics": True})
        create(store, "u", np.arange(200, 216), (4,))
        create(store, "inline", np.concatenate([secret(1, 50), np.arange(3)]), (1,))
    repo.create_tag("v1", repo.lookup_branch("main"))
    repo.create_branch("dev", repo.lookup_branch("main"))
    with repo.transaction("dev", message="dev") as store:
        zarr.open_array(store, path="t")[5] = secret(1, 20)[0]
    with repo.transaction("main", message="second", metadata={"author": "ada"}) as store:
        zarr.open_array(store, path="t")[0] = 7
        zarr.open_array(store, path="u")[:] = 3
    repo.create_tag("gone", repo.lookup_branch("main"))
    repo.delete_tag("gone")
    repo.merge("dev", "main")
    return repo


@cache
def _template() -> MemoryStorage:
    storage = MemoryStorage()
    history(storage)
    return storage


def stored() -> tuple[MemoryStorage, frazil.Repository]:
    storage = copy_of(_template())
    return storage, frazil.Repository.open(storage, CONFIG)


WANTED = {"t": slice(4, 10), "inline": 0}
ALL = np.concatenate([secret(6), secret(1, 20), secret(1, 50)])


def versions(repo: Any) -> list[tuple[Any, ...]]:
    """Each version of each ref: its message, metadata and time, without ids."""
    refs = [{"branch": name} for name in sorted(repo.list_branches())]
    refs += [{"tag": name} for name in sorted(repo.list_tags())]
    return [
        (ref, each.message, each.written_at, each.metadata.get("author"))
        for ref in refs
        for each in repo.ancestry(**ref)
    ]


def values(repo: Any, path: str) -> list[Any]:
    """The elements of an array in all versions that have it, in the order of `versions`."""
    found = []
    for names, kind in ((repo.list_branches(), "branch"), (repo.list_tags(), "tag")):
        for name in sorted(names):
            for each in repo.ancestry(**{kind: name}):
                store = repo.readonly_session(snapshot_id=each.id).store
                try:
                    array = zarr.open_array(store, path=path, mode="r")
                    found.append(np.asarray(array[...]).tolist())
                except (KeyError, FileNotFoundError):
                    continue
    return found


def test_no_byte_is_left_and_all_versions_stay(tmp_path: Path) -> None:
    repo = history(frazil.local_filesystem_storage(str(tmp_path)))
    before, expected = versions(repo), values(repo, "t")
    untouched = values(repo, "u")
    assert len(files_with(repo.storage, ALL)) > 4
    plan = repo.upkeep.forget(WANTED)
    report = plan.report
    assert report.arrays == ("/inline", "/t")
    assert (report.branches, report.tags) == (("dev", "main"), ("v1",))
    assert len(report.versions) == 4
    assert report.statistics
    assert report.packs
    assert report.unresolved == ()
    assert plan.as_dict()["counts"]["references"] == report.counts["references"] > 0
    certificate = plan.apply()
    assert certificate.left == ()
    assert set(certificate.snapshots) == set(report.versions)
    assert files_with(repo.storage, ALL) == []
    for each in expected:
        each[4:10] = [0] * 6
    for opened in (repo, reference().Repository.open(reference_storage(tmp_path))):
        assert versions(opened) == before
        assert values(opened, "t") == expected
        assert values(opened, "u") == untouched
        assert values(opened, "inline") == [[0, 0, 1, 2]] * len(expected)
    assert repo.upkeep.verify(level="decode").ok
    assert [each.left for each in repo.upkeep.certificates()] == [()]


def test_a_second_withdrawal_finds_nothing() -> None:
    _, repo = stored()
    repo.upkeep.forget(WANTED).apply()
    again = repo.upkeep.forget(WANTED)
    assert (again.report.versions, again.report.counts["references"]) == ((), 0)
    tip = repo.lookup_branch("main")
    assert again.apply().ok
    assert repo.lookup_branch("main") == tip


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_request(after: bool) -> None:
    """What is left can be read, and another call ends the work."""
    _, whole = stored()
    untouched, before = values(whole, "u"), values(whole, "t")
    for deadly in range(0, 1000, 3):
        storage, _ = stored()
        survived = False
        try:
            opened_by(storage, killing(storage, deadly, after=after)).upkeep.forget(WANTED).apply()
            survived = True
        except Killed:
            pass
        repo = frazil.Repository.open(storage, CONFIG)
        for found, old in zip(values(repo, "t"), before, strict=True):
            assert found[:4] + found[10:] == old[:4] + old[10:]
        assert values(repo, "u") == untouched
        for lease in repo.upkeep.leases():
            repo.upkeep.break_lease(lease.id)
        repo.upkeep.forget(WANTED).apply()
        repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
        assert files_with(storage, ALL) == [], deadly
        assert [each.left for each in repo.upkeep.certificates() if not each.ok] == []
        assert values(repo, "u") == untouched
        if survived:
            break
    assert deadly > 50


@pytest.mark.deep
def test_another_writer_comes_in_between() -> None:
    """At any request, a commit adds a version with the data: it loses them, too, and is not lost."""
    for step in range(1, 300, 11):
        storage, other = stored()
        done: list[int] = []

        def write(other: frazil.Repository = other, done: list[int] = done) -> None:
            try:
                with other.transaction("dev", message="between") as store:
                    zarr.open_array(store, path="u")[1] = 77
                done.append(1)
            except frazil.IcechunkError:
                done.append(0)

        seen = Interrupted(storage, step, write)
        opened_by(storage, seen).upkeep.forget(WANTED).apply()
        repo = frazil.Repository.open(storage, CONFIG)
        message = next(iter(repo.ancestry(branch="dev"))).message
        assert done in ([], [1]), step
        assert message == ("between" if done else "dev")
        assert values(repo, "t")[0][4:10] == [0] * 6
        repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
        assert files_with(storage, ALL) == [], step
        if not done:
            break
    assert step > 50


def test_the_data_of_a_session_that_is_open_do_not_come_back() -> None:
    storage, repo = stored()
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="u")[2] = 5
    repo.upkeep.forget(WANTED).apply()
    with pytest.raises((frazil.ConflictError, frazil.SnapshotNotFoundError, frazil.SessionStateError)):
        session.commit("late")
    assert files_with(storage, ALL) == []


def test_names_and_shapes_change_and_the_box_stays() -> None:
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    with repo.transaction("main", message="small") as store:
        create(store, "a", np.concatenate([secret(3), np.arange(2)]), (4,))
    with repo.transaction("main", message="larger") as store:
        array = zarr.open_array(store, path="a")
        array.resize((10,))
        array[5:] = np.arange(5)
    with repo.transaction("main", message="a group") as store:
        zarr.create_group(store, path="b")
    session = repo.rearrange_session("main")
    session.move("/a", "/b/c")
    session.commit("moved")
    with repo.transaction("main", message="another array at the old path") as store:
        create(store, "a", secret(2, 30), (2,))
    with repo.transaction("main", message="smaller") as store:
        zarr.open_array(store, path="b/c").resize((2,))
    plan = repo.upkeep.forget({"b/c": slice(0, 3)})
    assert plan.report.arrays == ("/a", "/b/c")
    assert plan.apply().ok
    assert files_with(storage, secret(3)) == []
    assert len(files_with(storage, secret(2, 30))) == 1  # another array
    large = [0, 0, 0, 0, 1, 0, 1, 2, 3, 4]
    assert values(repo, "b/c") == [[0, 0], large, large]
    assert values(repo, "a")[-3:] == [large, large, [0, 0, 0, 0, 1]]


@pytest.mark.parametrize("inline", [0, 100])
def test_shifted_chunks_are_named_and_followed(inline: int) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=inline)
    repo = frazil.Repository.create(storage := MemoryStorage(), config)
    with repo.transaction("main", message="first") as store:
        create(store, "t", np.concatenate([secret(4), np.arange(4)]), (4,))
        create(store, "u", secret(4), (4,))
    session = repo.writable_session("main")
    session.shift_array("/t", (1,))
    session.commit("shifted")
    wanted = {"t": slice(0, 4)}
    assert "other positions" in repo.upkeep.forget(wanted).report.unresolved[0]
    certificate = repo.upkeep.forget(wanted).apply()
    assert not certificate.ok
    shifted = [0] * 4 + secret(4).tolist()
    assert values(repo, "t") == [shifted, [0] * 4 + [0, 1, 2, 3]]
    repo = frazil.Repository.create(storage := MemoryStorage(), config)
    with repo.transaction("main", message="first") as store:
        create(store, "t", np.concatenate([secret(4), np.arange(4)]), (4,))
    session = repo.writable_session("main")
    session.shift_array("/t", (1,))
    session.commit("shifted")
    plan = repo.upkeep.forget(wanted, follow=True)
    assert plan.report.counts["references"] == 2
    assert plan.apply().ok
    assert values(repo, "t") == [[0] * 8, [0] * 4 + [0, 1, 2, 3]]
    assert files_with(storage, secret(4)) == []


@pytest.mark.parametrize("inline", [0, 100])
def test_equal_chunks_of_one_version_are_not_shifted(inline: int) -> None:
    """To follow them would withdraw the cells of others."""
    repo = frazil.Repository.create(MemoryStorage(), deduplicating(inline))
    for number in (3, 4):
        with repo.transaction("main", message=f"{number}") as store:
            zarr.create_array(
                store, name="t", data=np.full(8, 5), chunks=(4,), compressors=None, overwrite=number == 4
            )
    plan = repo.upkeep.forget({"t": slice(4, 8)})
    assert plan.report.unresolved == ()
    assert plan.apply().ok
    assert values(repo, "t") == [[5, 5, 5, 5, 0, 0, 0, 0]] * 2


@pytest.mark.parametrize("inline", [0, 100])
def test_a_shift_that_leaves_an_equal_chunk_is_named(inline: int) -> None:
    repo = frazil.Repository.create(MemoryStorage(), deduplicating(inline))
    for values_ in ([7, 2, 3, 0], [7, 7, 2, 3]):
        with repo.transaction("main", message="values") as store:
            zarr.create_array(
                store, name="t", data=np.array(values_), chunks=(1,), compressors=None, overwrite=True
            )
    plan = repo.upkeep.forget({"t": 0})
    assert "other positions" in plan.report.unresolved[0]
    assert not plan.apply().ok


def test_equal_bytes_of_another_array_stay() -> None:
    repo = frazil.Repository.create(storage := MemoryStorage(), deduplicating(0))
    with repo.transaction("main", message="first") as store:
        create(store, "t", secret(4), (4,))
        create(store, "copy", secret(4), (4,))
    plan = repo.upkeep.forget("t")
    assert plan.report.counts["bytes_shared"] == 32
    certificate = plan.apply()
    assert certificate.ok
    assert certificate.counts["bytes_shared"] == 32
    assert len(files_with(storage, secret(4))) == 1
    assert (values(repo, "t"), values(repo, "copy")) == ([[0] * 4], [secret(4).tolist()])


def test_foreign_objects_by_pattern_and_by_box(tmp_path: Path) -> None:
    (tmp_path / "one.bin").write_bytes(secret(4).tobytes())
    (tmp_path / "two.bin").write_bytes(np.arange(4).tobytes())
    arguments = allow_folder(tmp_path, frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, **arguments)
    urls = [f"file://{tmp_path}/{name}.bin" for name in ("one", "two")]
    for path in ("a", "b"):
        with repo.transaction("main", message=path) as store:
            zarr.create_array(store, name=path, shape=(8,), chunks=(4,), dtype="i8", compressors=None)
            for number, url in enumerate(urls):
                store.set_virtual_ref(f"{path}/c/{number}", url, offset=0, length=32)
    assert repo.upkeep.forget(sources=f"file://{tmp_path}/none*").report.counts["references"] == 0
    certificate = repo.upkeep.forget(sources=f"*/{tmp_path.name}/one.*").apply()
    assert (certificate.sources, certificate.ok) == ((urls[0],), True)
    assert values(repo, "a") == [[0] * 4 + [0, 1, 2, 3]] * 2
    assert files_with(storage, secret(4)) == []
    # Partly in a box: the rest of the chunk is a chunk of the repository now.
    certificate = repo.upkeep.forget({"b": slice(5, 6)}).apply()
    assert certificate.sources == (urls[1],)
    assert values(repo, "b") == [[0] * 5 + [0, 2, 3]]


@pytest.mark.parametrize("shards", [None, (8,)])
def test_compressed_chunks_and_shards(shards: tuple[int, ...] | None) -> None:
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    data = np.arange(16, dtype="i8")
    data[3:7] = secret(4)
    with repo.transaction("main", message="first") as store:
        zarr.create_array(store, name="t", data=data, chunks=(2,), shards=shards)
    assert repo.upkeep.forget({"t": slice(3, 7)}).apply().ok
    data[3:7] = 0
    assert values(repo, "t") == [data.tolist()]
    assert repo.upkeep.verify(level="decode").ok
    assert files_with(storage, secret(4)) == []


@pytest.mark.parametrize("lengths", [[2, 5, 4], [3, 3, 3, 2]])
def test_a_version_with_other_chunks(lengths: list[int]) -> None:
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    data = np.arange(11, dtype="i8")
    data[1:4], data[8:10] = secret(3), secret(2, 20)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        with repo.transaction("main", message="short") as store:
            create(store, "v", data[:9], [[2, 5, 2]])
            create(store, "other", data, [lengths])
        session = repo.writable_session("main")
        other: Any = session.store.get_sync("other/zarr.json")
        session.store.set_sync("v/zarr.json", other)  # the same array, so the same node
        zarr.open_array(session.store, path="v")[:] = data
        session.commit("long")
        repo.upkeep.forget("other").apply()
        boxes = {"v": [slice(1, 3), slice(8, 11)]}
        assert repo.upkeep.forget(boxes).apply().ok
        left = np.where(np.isin(np.arange(11), [1, 2, 8, 9, 10]), 0, data)
        assert values(repo, "v") == [left.tolist(), left[:9].tolist()]
        assert files_with(storage, np.concatenate([secret(2), secret(2, 20)])) == []
        assert repo.upkeep.verify(level="decode").ok


def test_one_version_begins_like_two_that_differ() -> None:
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    data = secret(11)
    layouts = {2: [2], 11: [2, 5, 4], 9: [2, 5, 2]}
    with zarr.config.set({"array.rectilinear_chunks": True}):
        with repo.transaction("main", message="other arrays") as store:
            create(store, "v", data[:2], [[2]])
            for size, lengths in layouts.items():
                create(store, f"o{size}", np.zeros(size, "i8"), [lengths])
        for size in (11, 9):
            session = repo.writable_session("main")
            other: Any = session.store.get_sync(f"o{size}/zarr.json")
            for key in ("v/c/0", "v/c/1", "v/c/2"):
                asyncio.run(session.store.delete(key))
            session.store.set_sync("v/zarr.json", other)
            zarr.open_array(session.store, path="v")[:] = data[:size]
            session.commit(str(size))
        assert repo.upkeep.forget({"v": slice(8, 11)}).apply().ok
        left = np.where(np.arange(11) < 8, data, 0)
        assert values(repo, "v") == [left[:9].tolist(), left.tolist(), left[:2].tolist()]
        assert files_with(storage, secret(3, 9)) == []


def test_one_manifest_of_two_encodings() -> None:
    storage, repo = stored()
    session = repo.writable_session("main")
    document: Any = session.store.get_sync("t/zarr.json")
    session.store.set_sync("t/zarr.json", Buffer.from_bytes(document.to_bytes().replace(b"little", b"big")))
    session.commit("other bytes")
    with pytest.raises(frazil.InvalidInputError, match="Name the whole array"):
        repo.upkeep.forget(WANTED).apply()
    assert len(files_with(storage, ALL)) > 4
    assert repo.upkeep.forget("t").apply().ok


def test_whole_groups_and_scalars() -> None:
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    with repo.transaction("main", message="first") as store:
        create(store, "g/a", secret(3), (1,))
        create(store, "g/deep/b", secret(3, 10), (3,))
        create(store, "h", np.arange(3), (3,))
        zarr.create_array(store, name="g/scalar", data=np.array(secret(1, 40)[0]), compressors=None)
    assert repo.upkeep.forget("g").apply().ok
    assert files_with(storage, np.concatenate([secret(3), secret(3, 10), secret(1, 40)])) == []
    assert values(repo, "h") == [[0, 1, 2]]
    assert values(repo, "g/scalar") == [0]


def test_bytes_that_no_version_uses() -> None:
    """An overwritten chunk stays in its pack, and a version that expired has a chunk file."""
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    with repo.transaction("main", message="first") as store:
        create(store, "t", secret(8), (4,))
        create(store, "u", np.arange(8), (4,))
    with repo.transaction("main", message="second") as store:
        zarr.open_array(store, path="t")[:] = 1
    repo.upkeep.expire(datetime.now(UTC)).apply()
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert len(files_with(storage, secret(8))) == 1
    certificate = repo.upkeep.forget({"t": 0}).apply()
    assert certificate.ok
    assert files_with(storage, secret(8)) == []
    assert values(repo, "u") == [list(range(8))]
    assert repo.upkeep.verify(level="checksum").ok


def test_chunks_of_no_version_are_named_until_they_are_collected() -> None:
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    with repo.transaction("main", message="first") as store:
        array = create(store, "t", secret(8), (8,))
    lost = repo.writable_session("main")
    zarr.open_array(lost.store, path="t")[:] = secret(8, 30)
    lost.workspace.writer.flush()
    plan = repo.upkeep.forget({"t": slice(0, 4)})
    assert "collect garbage" in plan.report.unresolved[0]
    certificate = plan.apply()
    assert not certificate.ok
    assert "1 file" in certificate.left[0]
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert repo.upkeep.certificates()[0].ok
    assert files_with(storage, np.concatenate([secret(4), secret(8, 30)])) == []
    del array


@pytest.mark.parametrize("data", ["g", {"g/b": 0}])
def test_arrays_that_no_version_has(data: Any) -> None:
    """A manifest keeps the inline chunks of a deleted array as long as another array of it is in use."""
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    with repo.transaction("main", message="first") as store:
        create(store, "g/a", secret(3), (1,))
        create(store, "h", np.arange(3), (1,))
    with repo.transaction("main", message="second") as store:
        del zarr.open_group(store)["g/a"]
        create(store, "g/b", secret(2, 30), (1,))
    repo.upkeep.expire(datetime.now(UTC)).apply()
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert len(files_with(storage, secret(3))) == 1
    assert repo.upkeep.forget(data).apply().ok
    assert files_with(storage, np.concatenate([secret(3), secret(1, 30)])) == []
    assert values(repo, "h") == [[0, 1, 2]]
    assert repo.upkeep.verify(level="checksum").ok


@pytest.mark.parametrize("size", [1, 3])
def test_earlier_positions_in_a_manifest_of_another_array(size: int) -> None:
    """The manifest of the first version stays in use by `h`, with chunks of `t` that no version reads."""
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    with repo.transaction("main", message="first") as store:
        create(store, "t", secret(3 * size), (size,))
        create(store, "h", np.arange(3 * size), (size,))
    with repo.transaction("main", message="second") as store:
        array = zarr.open_array(store, path="t")
        array[:] = np.concatenate([secret(2 * size, 1 + size), secret(size, 30)])
    repo.upkeep.expire(datetime.now(UTC)).apply()
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert len(list(storage.list("manifests"))) == 2
    assert repo.upkeep.forget({"t": slice(0, size)}).apply().ok
    assert files_with(storage, secret(size, 1 + size)) == []
    assert values(repo, "h") == [list(range(3 * size))]
    assert repo.upkeep.verify(level="checksum").ok


def test_manifests_of_lost_arrays_are_named_until_they_are_collected() -> None:
    """A killed commit leaves the manifest of a new array, of which no version knows the path."""
    repo = frazil.Repository.create(storage := MemoryStorage(), CONFIG)
    other = frazil.Repository.create(other_storage := MemoryStorage(), CONFIG)
    for each, first in ((repo, 1), (other, 30)):
        with each.transaction("main", message="first") as store:
            create(store, "g/a", secret(3, first), (1,))
    (manifest,) = other_storage.list("manifests")
    storage.put(manifest.key, other_storage.get(manifest.key))
    plan = repo.upkeep.forget("g")
    assert "collect garbage" in plan.report.unresolved[0]
    assert not plan.apply().ok
    repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
    assert repo.upkeep.certificates()[0].ok
    assert files_with(storage, np.concatenate([secret(3), secret(3, 30)])) == []


def test_the_certificate_notices_what_comes_back() -> None:
    storage, repo = stored()
    before = {info.key: bytes(storage.get(info.key)) for info in storage.list("") if info.key != "repo"}
    repo.upkeep.forget(WANTED).apply()
    gone = [key for key in before if storage.head(key) is None]
    changed = [key for key in before if key not in gone and bytes(storage.get(key)) != before[key]]
    assert {key.partition("/")[0] for key in gone} >= {"chunks", "manifests", "snapshots", "transactions"}
    assert {key.partition("/")[0] for key in changed} == {"chunks", "overwritten"}
    for key in [*gone, *changed]:
        now = None if key in gone else bytes(storage.get(key))
        storage.put(key, before[key])
        (certificate,) = repo.upkeep.certificates()
        assert not certificate.ok, key
        storage.delete([key]) if now is None else storage.put(key, now)
    assert repo.upkeep.certificates()[0].ok


def test_merges_undo_and_backups_have_the_new_versions() -> None:
    storage, repo = stored()
    tip = repo.lookup_branch("main")
    names = repo.upkeep.forget(WANTED).apply().snapshots
    assert repo.lookup_branch("main") == names[tip]
    assert repo.merge("dev", "main") == names[tip]  # the branch is merged
    assert repo.diff(from_tag="v1", to_branch="main").updated_chunks
    repo.history.undo(branch="main").apply()  # the merge
    assert values(repo, "t")[0][4:10] == [0] * 6
    assert repo.upkeep.verify().ok
    (backup, *_) = frazil.Repository.upkeep.backups(storage)
    frazil.Repository.upkeep.restore(storage, backup.name, overwrite=True).apply()
    assert frazil.Repository.open(storage, CONFIG).upkeep.verify().ok
    assert files_with(storage, ALL) == []


def test_refusals() -> None:
    storage, repo = stored()
    with pytest.raises(frazil.NodeNotFoundError, match="`/none`"):
        repo.upkeep.forget("none").apply()
    for box in (slice(-3, None), slice(0, 4, 2), (0, 0), 1.5, "x", -1):
        with pytest.raises(frazil.InvalidInputError, match="a box of `/t` must have 1 position"):
            repo.upkeep.forget({"t": box}).apply()
    with pytest.raises(frazil.InvalidInputError, match="is a group"):
        repo.upkeep.forget({"/": 0}).apply()
    with pytest.raises(frazil.InvalidInputError, match="got none"):
        repo.upkeep.forget()
    repo.protect_branch("main")
    with pytest.raises(frazil.SessionStateError, check=of_kind(ErrorKind.BRANCH_PROTECTED)):
        repo.upkeep.forget(WANTED).apply()
    repo.unprotect_branch("main")
    assert len(files_with(storage, ALL)) > 4  # nothing has changed
    assert repo.upkeep.forget(WANTED).apply().ok
    old = frazil.Repository.create(MemoryStorage(), spec_version=1)
    with pytest.raises(frazil.FormatError, check=of_kind(ErrorKind.UNSUPPORTED_SPEC_VERSION)):
        old.upkeep.forget("t")


def test_a_repository_that_was_upgraded() -> None:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG, spec_version=1)
    for number in range(2):
        with repo.transaction("main", message=str(number)) as store:
            zarr.create_array(
                store, name="t", data=secret(4, 10 * number), chunks=(2,), compressors=None, overwrite=True
            )
    frazil.upgrade_icechunk_repository(repo, dry_run=False)
    repo = frazil.Repository.open(storage, CONFIG)
    assert repo.upkeep.forget({"t": slice(1, 4)}).apply().ok
    assert values(repo, "t") == [[secret(1, 10)[0], 0, 0, 0], [secret(1, 0)[0], 0, 0, 0]]
    assert files_with(storage, np.concatenate([secret(3, 1), secret(3, 11)])) == []
    assert repo.upkeep.verify().ok


@pytest.mark.parametrize("operation", ["common", "without"])
def test_spans_are_sets_of_bytes(operation: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        sets, spans = [], []
        for _ in range(2):
            starts = random.integers(0, 60, random.integers(0, 8))
            stops = starts + random.integers(1, 9, len(starts))
            sets.append({at for low, high in zip(starts, stops, strict=True) for at in range(low, high)})
            spans.append(Spans.union([Spans(starts, stops)]))
        found = getattr(spans[0], operation)(spans[1])
        expected = sets[0] & sets[1] if operation == "common" else sets[0] - sets[1]
        covered = [at for a, b in zip(found.starts, found.stops, strict=True) for at in range(a, b)]
        assert covered == sorted(expected)
        assert found.length == len(expected)
