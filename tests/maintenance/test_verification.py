"""A verification sees the damage that its documentation promises, never what is whole, and never raises."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.counting import keys_read
from tests.fixtures import fixture_folders
from tests.repository.version_1 import copy_of
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil.errors import ConflictError, FormatError, InvalidInputError
from frazil.format.chunk_trailer import crc32c, encode_trailer, single_trailer
from frazil.format.ids import chunk_key, id_to_text, ids_to_text
from frazil.format.manifest import decode_manifest, encode_manifest
from frazil.format.transaction_log import decode_transaction_log, encode_transaction_log
from frazil.handle.repository import context_of
from frazil.maintenance.verification import chunks as checks
from frazil.maintenance.verification import plan
from frazil.maintenance.verification.chunks import stored_trailer
from frazil.maintenance.verification.repo_state import state_of
from frazil.pipeline import Progress
from frazil.storage.memory import MemoryStorage
from frazil.survey import survey

LATER = datetime.now(UTC) + timedelta(days=1)


def config(**changes: Any) -> frazil.RepositoryConfig:
    return frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        packing=frazil.PackingConfig(enabled=False),
        num_updates_per_repo_info_file=4,
        **changes,
    )


def small(spec_version: int = 2, **changes: Any) -> frazil.Repository:
    """Four commits, of two arrays with different chunks, and a tag for each."""
    if changes:
        return frazil.Repository.open(_small(spec_version, **changes))
    return frazil.Repository.open(copy_of(_template(spec_version)))


@cache
def _template(spec_version: int) -> MemoryStorage:
    return _small(spec_version)


def _small(spec_version: int, **changes: Any) -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, config(**changes), spec_version=spec_version)
    repo.save_config()
    for value in range(4):
        with repo.transaction("main", message=f"{value}") as store:
            for name in "ab":
                if not value:
                    zarr.create_array(store, name=name, shape=(4,), chunks=(2,), dtype="i8", compressors=None)
                zarr.open_array(store, path=name)[:] = np.arange(4) + 10 * value + 100 * (name == "b")
        repo.create_tag(f"v{value}", repo.lookup_branch("main"))
    return storage


def keys(storage: Any, folder: str) -> list[str]:
    return sorted(each.key for each in storage.list(folder))


def test_damage_of_repo_is_a_finding_that_names_a_backup() -> None:
    repo = small()
    backups = keys(repo.storage, "overwritten")
    repo.storage.put("repo", b"")
    (finding,) = repo.upkeep.verify().findings
    assert (finding.key, backups[0] in finding.detail) == ("repo", True)
    for key in backups:
        repo.storage.put(key, b"")
    assert "no backup can be read" in repo.upkeep.verify().findings[0].detail


def test_a_tip_of_spec_version_1_that_cannot_be_read_hides_what_is_before() -> None:
    repo = small(1)
    repo.delete_tag("v3")
    tip = f"snapshots/{repo.lookup_branch('main')}"
    repo.storage.put(tip, b"")
    assert {each.key for each in repo.upkeep.verify("checksum").problems} == {tip}


# Logs against snapshots


def changed_log(repo: frazil.Repository, change: Callable[[Any], Any]) -> str:
    """The tip's log with other content."""
    id_ = repo.lookup_branch("main")
    key = f"transactions/{id_}"
    log = decode_transaction_log(repo.storage.get(key), key)
    repo.storage.put(key, encode_transaction_log(change(log)))
    return key


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("name", ["new_arrays", "deleted_arrays", "updated_arrays", "new_groups"])
def test_logs_that_say_less_or_more_than_the_snapshots(name: str, count: int) -> None:
    repo = small()
    with repo.transaction("main", message="everything") as store:
        zarr.create_array(store, name="new", shape=(1,), dtype="i8")
        zarr.create_group(store, path="group")
        del zarr.open_group(store)["b"]
        zarr.open_array(store, path="a").attrs["units"] = "m"
    assert repo.upkeep.verify().ok
    others = np.arange(8 * count, dtype=np.uint8).reshape(count, 8)
    key = changed_log(repo, lambda log: replace(log, **{name: others}))
    (finding,) = repo.upkeep.verify().problems
    assert (finding.check, finding.key) == ("log-nodes", key)
    assert name.replace("_", " ") in finding.detail


def test_logs_that_create_and_delete_what_is_in_a_snapshot() -> None:
    repo = small()
    with repo.transaction("main", message="one more") as store:
        zarr.create_array(store, name="c", shape=(1,), dtype="i8")
    key = changed_log(repo, lambda log: replace(log, deleted_arrays=log.new_arrays))
    assert [(each.check, each.key) for each in repo.upkeep.verify().problems] == [("log-nodes", key)]


def test_chunks_of_arrays_that_are_in_no_snapshot() -> None:
    repo = small()
    strange = {bytes(range(8)): np.zeros((1, 1), np.uint32)}
    changed_log(repo, lambda log: replace(log, updated_chunks=strange))
    findings = {each.check: each for each in repo.upkeep.verify().problems}
    assert set(findings) == {"log-nodes", "log-chunks"}  # the log has lost the true chunks, too
    assert "updated chunks" in findings["log-nodes"].detail


def test_an_ops_log_that_always_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    repo = small()
    states = state_of

    def moved(context: Any) -> Any:
        state = states(context)
        assert state.info is not None
        number = next(numbers)
        return replace(state, info=replace(state.info, repo_before_updates=f"repo.{number}.A"))

    numbers = count()
    monkeypatch.setattr(plan, "state_of", moved)
    with pytest.raises(ConflictError, match=r"^the ops log changed its backups") as caught:
        repo.upkeep.verify()
    assert caught.value.kind == "repo-info-updated"


# What is whole


def amended(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 99
    session.amend("amended")


def moved(repo: frazil.Repository) -> None:
    session = repo.rearrange_session("main")
    session.move("/a", "/moved")
    session.commit("moved")


def detached(repo: frazil.Repository) -> None:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a")[0] = 99
    session.flush("detached")


def expired(repo: frazil.Repository) -> None:
    repo.expire_snapshots(LATER, delete_expired_tags=True)


def collected(repo: frazil.Repository) -> None:
    amended(repo)
    expired(repo)
    repo.garbage_collect(LATER)


def rewritten(repo: frazil.Repository) -> None:
    repo.rewrite_manifests("anew", branch="main")


def resized(repo: frazil.Repository) -> None:
    with repo.transaction("main", message="smaller") as store:
        zarr.open_array(store, path="a").resize((2,))
        del zarr.open_group(store)["b"]


def reset(repo: frazil.Repository) -> None:
    newest, before, *_ = repo.ancestry(branch="main")
    repo.reset_branch("main", before.id)
    repo.delete_tag("v3")
    assert newest.id != before.id


STORIES = [amended, moved, detached, expired, collected, rewritten, resized, reset]


@pytest.mark.sample(1, 6)
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("spec_version", [1, 2])
def test_what_is_whole_has_no_findings(spec_version: int, story: Callable[[Any], None]) -> None:
    repo = small(spec_version)
    if spec_version == 1 and story in (amended, moved, detached, collected):
        pytest.skip("not in spec version 1")
    for step in (story, rewritten, expired):
        step(repo)
        report = repo.upkeep.verify("checksum")
        assert report.ok, report
    if spec_version == 1:
        repo = frazil.upgrade_icechunk_repository(repo, dry_run=False)
        assert repo.upkeep.verify("checksum").ok


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_shape_that_others_make_smaller_without_its_chunks(spec_version: int) -> None:
    repo = frazil.Repository.create(MemoryStorage(), spec_version=spec_version)
    with repo.transaction("main", message="first") as store:
        zarr.create_array(store, name="a", data=np.arange(12), chunks=(2,))
    session = repo.writable_session("main")
    document: Any = session.store.get_sync("a/zarr.json")
    smaller = document.to_bytes().replace(b"12", b"4")
    session.store.set_sync("a/zarr.json", Buffer.from_bytes(smaller))
    session.commit("smaller")
    report = repo.upkeep.verify("checksum")
    assert report.ok, report
    assert zarr.open_array(repo.readonly_session("main").store, path="a", mode="r").shape == (4,)


@pytest.mark.sample(6, 15)
@pytest.mark.parametrize(
    "folder", fixture_folders("v[12]*/*"), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_repositories_of_other_writers_are_whole(folder: Path) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(folder / "repo")))
    report = repo.upkeep.verify("checksum")
    assert [each for each in report.problems if not each.key.startswith(("file:", "vcc:", "s3:"))] == []


# The report


def test_other_levels_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="metadata, exists, checksum, decode"):
        small().upkeep.verify("all")  # type: ignore[arg-type]


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_finding_names_the_versions_that_it_affects(spec_version: int) -> None:
    repo = frazil.Repository.create(MemoryStorage(), config(), spec_version=spec_version)
    for name in "abc":
        with repo.transaction("main", message=name) as store:
            zarr.create_array(store, name=name, shape=(2,), chunks=(1,), dtype="i4", compressors=None)[:] = 1
        if name == "b":
            repo.create_tag("v1", repo.lookup_branch("main"))
    with repo.transaction("main", message="without b") as store:
        del zarr.open_group(store)["b"]
    repo.create_branch("dev", repo.lookup_tag("v1"))
    session = repo.readonly_session(tag="v1")
    table = session.chunk_table("/b")
    repo.storage.delete([f"chunks/{each}" for each in ids_to_text(table.chunk_ids)])
    findings = repo.upkeep.verify("exists").problems
    assert {(each.affected.branches, each.affected.tags, each.affected.snapshots) for each in findings} == {
        (("dev",), ("v1",), 2)
    }
    assert {each.affected.arrays for each in findings} == {("/b",)}
    array = session.workspace.require_array("/a").array
    assert array is not None
    repo.storage.delete([f"manifests/{id_to_text(each.id)}" for each in array.manifests])
    (lost,) = [each for each in repo.upkeep.verify().problems if each.key.startswith("manifests/")]
    assert lost.affected.snapshots == 4
    assert "/a" in lost.affected.arrays
    assert {row["snapshots"] for row in repo.upkeep.verify().rows() if row["severity"] == "loss"} == {4}


def test_a_finding_names_the_path_in_the_versions_that_it_affects() -> None:
    repo = frazil.Repository.create(MemoryStorage(), config())
    with repo.transaction("main", message="old") as store:
        zarr.create_array(store, name="a", shape=(2,), chunks=(1,), dtype="i4", compressors=None)[:] = 1
    repo.create_branch("dev", "main")
    session = repo.rearrange_session("dev")
    session.move("/a", "/moved")
    session.commit("move")
    both = repo.readonly_session("main").chunk_table("/a").chunk_ids
    with repo.transaction("dev", message="new") as store:
        zarr.open_array(store, path="moved")[1] = 2
    own = repo.readonly_session("dev").chunk_table("/moved").chunk_ids
    new = {*ids_to_text(own)} - {*ids_to_text(both)}
    repo.storage.delete([f"chunks/{each}" for each in [*ids_to_text(both), *new]])
    report = repo.upkeep.verify("exists")
    found = {each.affected.branches: (each.affected.arrays, report.path_of(each)) for each in report.problems}
    assert found[("dev",)] == (("/moved",), "/moved")
    assert found[("main",)] == (("/a",), "/a")
    assert found[("dev", "main")] == (("@dev:/moved", "@main:/a"), "/moved")
    assert {row["path"] for row in report.rows() if row["branches"] == ["main"]} == {"/a"}


@pytest.fixture(scope="module")
def repo() -> frazil.Repository:
    """Branches and a version without a branch, and expired versions that all of them have."""
    repo = frazil.Repository.create(MemoryStorage(), frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
    with repo.transaction("main", message="array") as store:
        zarr.create_array(store, name="a", shape=(8,), chunks=(1,), dtype="i4")
    for number in range(2):
        write(repo, "main", number)
    tip = repo.lookup_branch("main")
    for branch in ("b", "d"):
        repo.create_branch(branch, tip)
        write(repo, branch, 6)
    limit = datetime.now(UTC)
    for branch in ("main", "b", "d"):
        write(repo, branch, 7)
    repo.reset_branch("d", tip)
    repo.expire_snapshots(limit + timedelta(microseconds=1))
    return repo


def write(repo: frazil.Repository, branch: str, place: int) -> None:
    with repo.transaction(branch, message=f"number {place}") as store:
        zarr.open_array(store, path="a")[place] = place + 1


def expired_ids(repo: frazil.Repository) -> list[bytes]:
    """Return the ids of the expired versions whose logs other versions need."""
    pruned = context_of(repo).catalog.repo_info().table.pruned()
    assert pruned.lengths.sum() > len(np.unique(pruned.compact().values))
    ids: list[bytes] = np.unique(pruned.compact().values).tolist()
    return ids


def test_each_log_of_an_expired_version_is_read_once(repo: frazil.Repository) -> None:
    with keys_read(MemoryStorage) as keys:
        assert repo.upkeep.verify().ok
    requests = Counter(keys)
    stays = repo.lookup_branch("d")  # expired in the other branches: read as the log of a version, too
    logs = [f"transactions/{id_to_text(id_)}" for id_ in expired_ids(repo)]
    assert [requests[key] for key in logs] == [1 + key.endswith(stays) for key in logs]


def test_damage_of_the_log_of_an_expired_version_is_a_finding(repo: frazil.Repository) -> None:
    for id_ in expired_ids(repo)[::4]:
        key = f"transactions/{id_to_text(id_)}"
        content = bytes(repo.storage.get(key))
        repo.storage.put(key, b"damage")
        assert {finding.key for finding in repo.upkeep.verify().problems} == {key}
        repo.storage.put(key, content)


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


def changed(repo: frazil.Repository, key: str, place: int) -> None:
    data = bytearray(repo.storage.get(key))
    data[place] ^= 16
    repo.storage.put(key, data)


def test_two_exchanged_packs_are_findings() -> None:
    repo = packed(2)
    one, other = keys(repo.storage, "chunks")
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
    (pack,) = keys(repo.storage, "chunks")
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
    for key in keys(repo.storage, "manifests"):
        manifest = decode_manifest(repo.storage.get(key), key)
        arrays = dict(manifest.arrays)
        for node, table in arrays.items():
            offset, lengths = table.offset.copy(), table.length.copy()
            offset[1] += np.uint64(shift)
            lengths[1] = np.uint64(int(lengths[1]) + length)
            arrays[node] = replace(table, offset=offset, length=lengths)
            wrong += 1
        repo.storage.put(key, encode_manifest(replace(manifest, arrays=arrays)))
    report = frazil.Repository.open(repo.storage).upkeep.verify("checksum")
    findings = [each for each in report.findings if each.key.startswith("chunks/")]
    assert len(findings) == wrong == 2
    assert {each.check for each in findings} == {"checksum"}
    assert all(each.coordinates.tolist() == [[1]] for each in findings)


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
    chunks = frazil.ChunksConfig(deduplicate=deduplicate, checksums=checksums)
    repo = frazil.Repository.create(MemoryStorage(), config(chunks=chunks))
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
    key = keys(repo.storage, "chunks")[0]
    blank(repo, key, start)
    findings = repo.upkeep.verify("checksum").problems
    assert {(each.check, each.key) for each in findings} == {("checksum", key)}
    assert sum(len(each.coordinates) for each in findings) == lost
    plan = frazil.Repository.upkeep.repair(repo.storage, level="checksum", lost="fill")
    assert bool(plan.lost) == bool(lost)


def test_a_compaction_refuses_a_pack_of_zeros() -> None:
    repo = single()
    for key in keys(repo.storage, "chunks"):
        blank(repo, key, 0)
    with pytest.raises(FormatError, match="zeros"):
        repo.upkeep.compact("packs", branch="main").apply()


def one_array() -> frazil.Repository:
    repo = frazil.Repository.create(MemoryStorage(), config())
    for value in range(3):
        with repo.transaction("main", message=f"{value}") as store:
            if not value:
                zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="i4", compressors=None)
            zarr.open_array(store, path="t")[:] = value + np.arange(4)
    return repo


@pytest.fixture
def reads() -> Iterator[list[str]]:
    with keys_read(MemoryStorage) as keys:
        yield keys


def of_folder(reads: list[str], *folders: str) -> list[str]:
    return [key for key in reads if key.startswith(folders)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("level", ["metadata", "exists", "checksum", "decode"])
def test_a_second_run_reads_only_new_files(level: Any, reads: list[str], tmp_path: Path) -> None:
    repo = one_array()
    place = tmp_path / "state"
    first = repo.upkeep.verify(level, state=place)
    assert first.ok
    assert first.resumed == 0
    reads.clear()
    again = repo.upkeep.verify(level, state=str(place))
    assert again.resumed == len(frazil.VerificationState(place)) > 0
    assert not of_folder(reads, "manifests/", "chunks/")
    assert (again.bytes_read, again.references) == (first.bytes_read, first.references)
    with repo.transaction("main", message="more") as store:
        zarr.open_array(store, path="t")[:] = 9
    reads.clear()
    assert repo.upkeep.verify(level, state=place).ok
    new = {"metadata": 0, "exists": 0, "checksum": 2, "decode": 2}[level]
    assert len(set(of_folder(reads, "chunks/"))) == new
    # The manifest before is read for the comparison with the log.
    assert len(set(of_folder(reads, "manifests/"))) == 2


def test_other_storages_and_levels_are_other_pieces(tmp_path: Path) -> None:
    state = frazil.VerificationState(tmp_path / "state")
    repo = one_array()
    assert repo.upkeep.verify("exists", state=state).ok
    assert repo.upkeep.verify("checksum", state=state).bytes_read == 3 * 16


def test_an_interrupted_run_continues(monkeypatch: pytest.MonkeyPatch, reads: list[str]) -> None:
    repo, state = one_array(), frazil.VerificationState()
    get = MemoryStorage.get

    def interrupted(storage: MemoryStorage, key: str, *args: Any) -> Any:
        if len(set(of_folder(reads, "chunks/"))) == 3:
            raise KeyboardInterrupt
        return get(storage, key, *args)

    monkeypatch.setattr(MemoryStorage, "get", interrupted)
    monkeypatch.setattr(survey, "_ITEMS", 1)
    with pytest.raises(KeyboardInterrupt):
        repo.upkeep.verify("checksum", state=state)
    monkeypatch.setattr(MemoryStorage, "get", get)
    reads.clear()
    assert repo.upkeep.verify("checksum", state=state).ok
    assert 0 < len(set(of_folder(reads, "chunks/"))) < 6


def test_a_damaged_result_is_computed_again() -> None:
    repo, state = one_array(), frazil.VerificationState()
    assert repo.upkeep.verify("exists", state=state).ok
    state._database.execute("UPDATE pieces SET result = x'00'")
    assert repo.upkeep.verify("exists", state=state).ok
    state.close()


def test_progress_counts_all_tasks() -> None:
    bar, again = (Progress("verify", 0, io.StringIO()) for _ in range(2))
    repo, state = one_array(), frazil.VerificationState()
    assert repo.upkeep.verify("checksum", progress=bar, state=state).ok
    assert bar.done == bar.total > 4
    repo.upkeep.verify("checksum", progress=again, state=state)
    assert 0 < again.done == again.total < bar.total


def test_damage_is_seen_by_each_later_run() -> None:
    repo, state = one_array(), frazil.VerificationState()
    assert repo.upkeep.verify("checksum", state=state).ok
    files = {each.key: bytes(repo.storage.get(each.key)) for each in repo.storage.list("chunks")}
    lost, short, changed, *_ = sorted(files)
    repo.storage.delete([lost])
    repo.storage.put(short, b"")
    repo.storage.put(changed, bytes([files[changed][0] ^ 1]) + files[changed][1:])
    for _ in range(2):
        seen = {(each.check, each.key) for each in repo.upkeep.verify("checksum", state=state).problems}
        assert seen == {("missing", lost), ("short", short), ("checksum", changed)}
    for key in (lost, short, changed):
        repo.storage.put(key, files[key])
    assert repo.upkeep.verify("checksum", state=state).ok
