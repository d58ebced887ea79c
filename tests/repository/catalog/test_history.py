"""The history of versions as blocks and as columns, and the ops log across its files."""

from __future__ import annotations

import dataclasses
import gc
from datetime import UTC
from functools import partial
from threading import Barrier, Thread

import numpy as np
import pytest
from tests.counting import python_steps

import frazil
from frazil.errors import FormatError, RefNotFoundError
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.repo_info import (
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    encode_repo_info,
    new_repo_info,
    open_repo_info,
)
from frazil.repository.catalog.ancestry import ancestry
from frazil.repository.catalog.presentation import history_infos, snapshot_infos
from frazil.repository.catalog.version_info import SnapshotInfo

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
