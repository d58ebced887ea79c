"""The history of versions as blocks and as columns, and the ops log across its files."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
import zarr
from tests.counting import python_steps
from tests.support.patience import patience

import frazil
from frazil.errors import FormatError, RefNotFoundError
from frazil.format.columns import Ragged
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.ids import OVERWRITTEN, backup_key
from frazil.format.repo_info import (
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    encode_repo_info,
    new_repo_info,
    open_repo_info,
)
from frazil.format.transaction_log import empty_log, encode_transaction_log
from frazil.repository.catalog.ancestry import ancestry
from frazil.repository.catalog.assets import TRANSACTION_LOG, DecodedCache, held_bytes
from frazil.repository.catalog.presentation import history_infos, snapshot_infos
from frazil.repository.catalog.repo_update import read_repo_info
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.storage.memory import MemoryStorage

FIELDS = tuple(field.name for field in dataclasses.fields(SnapshotInfo))


def line(count: int, message: str = "message {}") -> list[SnapshotEntry]:
    ids = [(number * 7919 % 65_521).to_bytes(12, "big") for number in range(1, count + 1)]
    parents = [None, *ids]
    return [
        SnapshotEntry(id_, parent, 10 + number, message.format(number), {"n": number} if number % 3 else {})
        for number, (id_, parent) in enumerate(zip(ids, parents, strict=False))
    ]


def stored(entries: list[SnapshotEntry]) -> bytes:
    info = dataclasses.replace(new_repo_info(0), snapshots=SnapshotTable.of(entries), branches={})
    return encode_repo_info(info)


def opened(entries: list[SnapshotEntry]) -> RepoInfo:
    return open_repo_info(stored(entries), "repo")


@pytest.mark.parametrize("count", [1, 2, 9, 60, 1100])
def test_as_one_by_one(count: int) -> None:
    entries = line(count)
    info = opened(entries)
    expected = [each for part in ancestry(info, entries[-1].id) for each in snapshot_infos(part)]
    for order in (FIELDS, FIELDS[::-1]):
        infos = list(history_infos(info, entries[-1].id))
        for name in order:
            assert [getattr(each, name) for each in infos] == [getattr(each, name) for each in expected]
    assert list(history_infos(info, entries[-1].id)) == expected
    middle = list(history_infos(info, entries[count // 2].id))
    assert [each.parent_id for each in middle] == [*(each.id for each in middle[1:]), None]


def test_threads_read_the_same_values() -> None:
    entries = line(200)
    infos = list(history_infos(opened(entries), entries[-1].id))
    ready, results = Barrier(4), list[list[int]]()

    def read() -> None:
        ready.wait()
        results.append([id(each.metadata) for each in infos])

    threads = [Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == results[0] for result in results)


def test_damage_is_an_error_of_the_field() -> None:
    data = stored(line(20))
    payload = bytes(open_envelope(data, FileType.REPO_INFO)[1]).replace(b"message 7", b"message \xff")
    info = open_repo_info(seal([payload], FileType.REPO_INFO), "a/repo")
    infos = list(history_infos(info, line(20)[-1].id))
    assert len({each.id for each in infos}) == 20
    assert infos[19].metadata == {}
    with pytest.raises(FormatError, match="a/repo: text is not UTF-8"):
        infos[12].message  # noqa: B018


def test_versions_that_share_their_bytes_are_decoded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a file that has one long message for all versions."""
    table = opened(line(40, "a long message " * 20)).table
    messages = table._messages
    shared = dataclasses.replace(messages, values=messages.values[: int(messages.starts.min()) + 400])
    one = dataclasses.replace(shared, starts=shared.starts * 0 + int(messages.starts.min()))
    info = dataclasses.replace(new_repo_info(0), snapshots=dataclasses.replace(table, _messages=one))
    monkeypatch.delattr(SnapshotTable, "messages")  # which would copy the bytes of all versions
    monkeypatch.delattr(SnapshotTable, "metadata")
    infos = list(history_infos(info, line(40)[-1].id))
    assert infos[5].message == infos[7].message
    assert [each.metadata for each in infos] == [each.metadata for each in line(40)[::-1]]
    assert infos[3] == snapshot_infos([info.snapshots.entry(info.table.find_snapshot(line(40)[-4].id))])[0]


def test_a_block_forgets_its_descriptions() -> None:
    """A description that stays in memory keeps no other one there, when all fields are decoded."""
    entries = line(20)
    infos = list(history_infos(opened(entries), entries[-1].id))
    assert count_reachable(infos[0]) > 1
    assert repr(infos[0])  # which reads all fields
    assert count_reachable(infos[0]) == 0


def count_reachable(info: SnapshotInfo) -> int:
    """How many descriptions a description keeps in memory."""
    reachable, count = gc.get_referents(info), 0
    for _ in range(7):
        count += sum(type(each) is SnapshotInfo for each in reachable)
        reachable = gc.get_referents(*reachable)
    return count


def test_no_step_for_a_version() -> None:
    def steps(count: int) -> int:
        info, tip = opened(line(count)), line(count)[-1].id
        return python_steps(lambda: [list(history_infos(info, tip)), next(history_infos(info, tip)).message])

    assert steps(1000) < 1.5 * steps(100) + 100


def repository(commits: int, spec_version: int) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=spec_version)
    for number in range(commits):
        repo.writable_session("main").commit(f"commit {number} \u2744", allow_empty=True)
    return repo


@pytest.mark.parametrize("spec_version", [1, 2])
def test_as_objects(spec_version: int) -> None:
    repo = repository(30, spec_version)
    middle = list(repo.ancestry(branch="main"))[10].id
    repo.create_tag("middle", middle)
    for version in ({"branch": "main"}, {"tag": "middle"}, {"snapshot_id": middle}):
        infos = list(repo.ancestry(**version))
        table = repo.history.log(**version)
        assert list(table) == ["id", "parent_id", "written_at", "message"]
        assert table["id"].tolist() == [info.id for info in infos]
        assert [each or None for each in table["parent_id"].tolist()] == [info.parent_id for info in infos]
        times = [time.replace(tzinfo=UTC) for time in table["written_at"].tolist()]
        assert times == [info.written_at for info in infos]
        assert table["message"].tolist() == [info.message for info in infos]


def test_wrong_arguments() -> None:
    repo = repository(1, 2)
    with pytest.raises(RefNotFoundError):
        repo.history.log(branch="absent")
    with pytest.raises(ValueError, match="branch"):
        repo.history.log()


def test_no_step_for_a_commit() -> None:
    few, many = (repository(commits, 2) for commits in (20, 200))
    steps = [python_steps(partial(repo.history.log, branch="main")) for repo in (few, many)]
    assert steps[1] < 1.5 * steps[0] + 50
    assert np.unique(many.history.log(branch="main")["id"]).size == 201


SOON = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(params=[1, 2])
def repo(request: pytest.FixtureRequest) -> frazil.Repository:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(MemoryStorage(), config, spec_version=request.param)
    for value in (1, 2, 3):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.create_array(store, name=f"x{value}", data=np.full(4, value), chunks=(2,))
    return repo


def versions(repo: frazil.Repository) -> list[str]:
    """Ids, newest first."""
    return [each.id for each in repo.ancestry(branch="main")]


def manifests(repo: frazil.Repository) -> list[str]:
    """Of the newest three versions, newest first: the one that each of them added."""
    ids = [{each.id for each in repo.list_manifest_files(id_)} for id_ in versions(repo)]
    return [(new - old).pop() for new, old in pairwise(ids)]


def exchange(storage: Any, one: str, other: str) -> None:
    first, second = bytes(storage.get(one)), bytes(storage.get(other))
    storage.put(one, second)
    storage.put(other, first)


def read_all(repo: frazil.Repository) -> None:
    group = zarr.open_group(repo.readonly_session("main").store, mode="r")
    for value in (1, 2, 3):
        assert (np.asarray(group[f"x{value}"]) == value).all()


def late_session(repo: frazil.Repository) -> frazil.Session:
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="x1")[:] = 9
    return session


READERS: dict[str, list[Callable[[frazil.Repository], Any]]] = {
    "manifests": [
        read_all,
        lambda repo: repo.garbage_collect(SOON),
        lambda repo: repo.chunk_storage_stats(),
        lambda repo: [repo.inspect_manifest(id_) for id_ in manifests(repo)],
    ],
    "snapshots": [
        read_all,
        lambda repo: repo.garbage_collect(SOON),
        lambda repo: repo.chunk_storage_stats(),
        lambda repo: [repo.inspect_snapshot(id_) for id_ in versions(repo)],
        lambda repo: late_session(repo).commit("later"),
    ],
    "transactions": [
        lambda repo: [repo.inspect_transaction_log(id_) for id_ in versions(repo)[:-1]],
        lambda repo: repo.diff(from_snapshot_id=versions(repo)[-1], to_branch="main"),
    ],
}
CASES = [(folder, reader) for folder, readers in READERS.items() for reader in readers]


@pytest.mark.sample(16)
@pytest.mark.parametrize(("folder", "reader"), CASES)
def test_two_files_that_changed_places_are_refused(
    repo: frazil.Repository, folder: str, reader: Callable[[frazil.Repository], Any]
) -> None:
    names = manifests(repo) if folder == "manifests" else versions(repo)
    exchange(repo.storage, f"{folder}/{names[0]}", f"{folder}/{names[1]}")
    fresh = frazil.Repository.open(repo.storage)
    with pytest.raises(FormatError, match=f"{folder}/") as caught:
        reader(fresh)
    assert names[0] in caught.value.message
    assert names[1] in caught.value.message


def test_a_log_that_is_another_stops_a_rebase(repo: frazil.Repository) -> None:
    late = late_session(repo)
    for value in (2, 3):
        with repo.transaction("main", message="other") as store:
            zarr.open_array(store, path=f"x{value}")[:] = 0
    newest, before, *_ = versions(repo)
    exchange(repo.storage, f"transactions/{newest}", f"transactions/{before}")
    with pytest.raises(FormatError, match=f"transactions/{before}"):
        late.commit("late", rebase_with=frazil.ConflictDetector())
    assert versions(repo)[0] == newest


def test_histories_of_spec_version_1_are_not_taken_from_another_file() -> None:
    repo = frazil.Repository.create(MemoryStorage(), spec_version=1)
    for value in range(12):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.create_group(store, path=f"g{value}")
    ids = versions(repo)
    repo.storage.put(f"snapshots/{ids[4]}", repo.storage.get(f"snapshots/{ids[7]}"))
    with pytest.raises(FormatError, match=f"snapshots/{ids[4]}"):
        versions(frazil.Repository.open(repo.storage))
    with pytest.raises(FormatError, match=f"snapshots/{ids[4]}"):
        frazil.upgrade_icechunk_repository(frazil.Repository.open(repo.storage), dry_run=False)


def short_log() -> frazil.Repository:
    config = frazil.RepositoryConfig(num_updates_per_repo_info_file=3)
    repo = frazil.Repository.create(MemoryStorage(), config)
    repo.save_config()
    for value in range(12):
        repo.create_tag(f"v{value}", versions(repo)[0])
    return repo


def test_a_walk_through_backups_that_lead_back_ends() -> None:
    repo = short_log()
    assert len(list(repo.ops_log())) == 14
    info = read_repo_info(repo.storage)[0]
    name = info.repo_before_updates
    assert name is not None
    repo.storage.put(backup_key(name), repo.storage.get("repo"))
    with pytest.raises(FormatError, match=f"{OVERWRITTEN}/{name}: the updates must be before"):
        list(frazil.Repository.open(repo.storage).ops_log())


@pytest.mark.parametrize("unusual", [(), (3,), (70, 299)])
def test_a_large_log_is_read_alone_and_its_neighbours_together(unusual: tuple[int, ...]) -> None:
    ids = [bytes([number >> 8, number & 255] * 6) for number in range(300)]
    large = np.arange(1 << 17, dtype=">u8").view(np.uint8).reshape(-1, 8)
    logs = [
        replace(empty_log(id_), new_groups=large[: number in unusual and 1 << 17])
        for number, id_ in enumerate(ids)
    ]
    files = list(zip(ids, map(encode_transaction_log, logs), strict=True))
    parts = list(TRANSACTION_LOG.decoded_together(files))
    assert [log.id for part in parts for log in part] == ids
    assert [len(log.new_groups) for part in parts for log in part] == [len(log.new_groups) for log in logs]
    assert sum(len(part) == 1 for part in parts) <= 64 * len(unusual)


@pytest.mark.parametrize("fails", [False, True])
def test_concurrent_requests_for_one_asset_load_it_once(fails: bool) -> None:
    cache: DecodedCache[str] = DecodedCache(10)
    calls: list[int] = []
    started, go = threading.Event(), threading.Event()

    def make(_key: Any) -> Any:
        calls.append(1)
        started.set()
        assert go.wait(patience(10))
        if fails:
            raise OSError("no")
        return "value"

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(cache.get_or_make, b"k", make) for _ in range(8)]
        assert started.wait(patience(10))
        go.set()
    assert fails or calls == [1]
    assert [each.exception() is not None for each in answers] == [fails] * 8
    assert (b"k" in cache) is not fails
    assert cache.get_or_make(b"k", lambda _: "again") == ("again" if fails else "value")


def test_the_oldest_go_first_and_the_newest_always_stays() -> None:
    cache = DecodedCache(5, weigh=int)
    for key, weight in ((b"a", 2), (b"b", 2), (b"a", 2), (b"c", 3)):
        cache.get_or_make(key, {key: weight}.__getitem__)
    assert [key in cache for key in (b"a", b"b", b"c")] == [True, False, True]
    cache.get_or_make(b"huge", lambda _: 100)
    assert [key in cache for key in (b"a", b"c", b"huge")] == [False, False, True]


def test_views_of_one_buffer_weigh_as_much_as_the_buffer() -> None:
    payload = bytes(10_000)
    views = [np.frombuffer(payload, np.uint8, 10, at) for at in (0, 100, 5_000)]
    assert held_bytes({"rows": Ragged(views[0], *(np.zeros(2, np.int64) for _ in range(2)))}) == 10_000 + 32
    assert held_bytes(dict(enumerate(views))) == 10_000
    assert held_bytes({number: memoryview(view) for number, view in enumerate(views)}) < 1_000
    assert held_bytes({"note": "x" * 5_000}) > 5_000


def commit(repo: frazil.Repository, count: int, *, attributes: dict[str, Any] | None = None) -> None:
    for value in range(count):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.create_group(store, path="g", overwrite=True, attributes=attributes or {})


def held(cache: Any) -> list[Any]:
    return [len(cache._values), cache._total]


def test_commits_alone_do_not_fill_the_memory() -> None:
    caching = frazil.CachingConfig(num_snapshot_nodes=20_000, num_chunk_refs=20_000)
    repo = frazil.Repository.create(frazil.in_memory_storage(), frazil.RepositoryConfig(caching=caching))
    with repo.transaction("main", message="array") as store:
        array = zarr.create_array(store, name="x", shape=(50,), chunks=(1,), dtype="i1")
    for value in range(50):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.open_array(store, path="x")[value] = 1
    assets = repo._context.assets
    assert held(assets._snapshots)[0] <= 20
    assert held(assets._manifests)[0] <= 10
    assert array.shape == (50,)


def test_large_attributes_weigh_what_they_take() -> None:
    caching = frazil.CachingConfig(num_snapshot_nodes=3_000)
    repo = frazil.Repository.create(frazil.in_memory_storage(), frazil.RepositoryConfig(caching=caching))
    commit(repo, 6, attributes={"note": "x" * 2_000_000})
    assert held(repo._context.assets._snapshots)[0] == 1
