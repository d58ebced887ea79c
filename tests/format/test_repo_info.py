"""The repo info: round trips, snapshots as columns against plain lists, the rules of the ops log."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.json_values import JSON, METADATA, TEXT

from frazil.errors import ErrorKind, FormatError, InternalError, InvalidMetadataError
from frazil.format import flexbuffer
from frazil.format.columns import Ragged
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.flatbuffer import Buffer
from frazil.format.repo_info import (
    FIELDS_OF,
    Availability,
    OpsEntry,
    OpsLog,
    RepoInfo,
    SnapshotEntry,
    Snapshots,
    SnapshotTable,
    Status,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
    encoded_config,
    new_repo_info,
    open_repo_info,
)

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
IDS = st.binary(min_size=12, max_size=12)
TIMES = st.integers(0, 2**63)
U8 = st.integers(0, 255)
STATUSES = st.builds(Status, st.sampled_from(Availability), TIMES, st.none() | TEXT)
VALUES = {
    "name": NAMES,
    "previous_snapshot": IDS,
    "new_snapshot": IDS,
    "versions": st.tuples(U8, U8),
    "flag": st.tuples(st.integers(0, 2**16 - 1), st.booleans(), st.booleans()),
    "status": STATUSES,
}


@st.composite
def entries(draw: st.DrawFn) -> OpsEntry:
    kind = draw(st.sampled_from(UpdateKind))
    fields: dict[str, Any] = {field: draw(VALUES[field]) for field in FIELDS_OF[kind]}
    return OpsEntry(kind, draw(TIMES), draw(st.none() | NAMES), **fields)


@st.composite
def histories(draw: st.DrawFn) -> list[SnapshotEntry]:
    """Snapshots in the order they were made: each but the first has an earlier one as its parent."""
    ids = draw(st.lists(IDS, unique=True, min_size=1, max_size=8))
    return [
        SnapshotEntry(
            id_,
            draw(st.sampled_from(ids[:number])) if number else None,
            draw(st.integers(0, 2**64 - 1)),
            draw(TEXT),
            draw(METADATA),
            tuple(draw(st.lists(IDS, max_size=2))),
        )
        for number, id_ in enumerate(ids)
    ]


@st.composite
def infos(draw: st.DrawFn) -> RepoInfo:
    history = draw(histories())
    refs = st.dictionaries(NAMES, st.sampled_from([entry.id for entry in history]), max_size=3)
    flags = st.frozensets(st.integers(0, 2**16 - 1), max_size=3)
    return RepoInfo(
        2,
        draw(refs),
        draw(refs),
        frozenset(draw(st.lists(NAMES, max_size=3))),
        SnapshotTable.of(history),
        draw(STATUSES),
        draw(METADATA),
        OpsLog.of(draw(st.lists(entries(), max_size=6))),
        draw(st.none() | NAMES),
        draw(st.none() | st.dictionaries(st.sampled_from(["caching", "é"]), JSON)),
        draw(flags),
        draw(flags),
    )


def content(info: RepoInfo) -> dict[str, Any]:
    return {
        "refs": (info.branches, info.tags, info.deleted_tags),
        "snapshots": snapshots_of(info.snapshots),
        "ops": ops_of(info),
        "rest": (info.status, info.metadata, info.repo_before_updates, info.config),
        "flags": (info.enabled_flags, info.disabled_flags),
    }


def snapshots_of(table: Snapshots) -> list[SnapshotEntry]:
    return [table.entry(row) for row in range(len(table))]


def ops_of(info: RepoInfo) -> list[OpsEntry]:
    return [info.ops.entry(row) for row in range(len(info.ops))]


def by_id(history: list[SnapshotEntry]) -> list[SnapshotEntry]:
    return sorted(history, key=lambda entry: entry.id)


@given(infos())
@settings(max_examples=examples(200))
def test_round_trip(info: RepoInfo) -> None:
    read = decode_repo_info(encode_repo_info(info), "repo")
    assert content(read) == content(info)
    assert content(decode_repo_info(encode_repo_info(read), "repo")) == content(info)
    assert content(pickle.loads(pickle.dumps(read))) == content(info)
    rows = np.arange(len(read.table))[::-1]
    assert list(read.table.entries(rows)) == snapshots_of(info.table)[::-1]
    assert read.table.messages(rows) == info.table.messages(rows)


@given(histories(), st.booleans())
@settings(max_examples=examples(150))
def test_added_one_by_one(history: list[SnapshotEntry], through_files: bool) -> None:
    table = SnapshotTable.of(history[:1])
    for number, entry in enumerate(history[1:], 2):
        table = table.added(entry)
        if through_files:
            info = dataclasses.replace(new_repo_info(0), branches={}, snapshots=table)
            table = decode_repo_info(encode_repo_info(info), "repo").table
        assert snapshots_of(table) == by_id(history[:number])
        parents = {entry.id: entry.parent for entry in history[:number]}
        for id_ in parents:
            walk = [id_]
            while (parent := parents[walk[-1]]) is not None:
                walk.append(parent)
            assert [table.id_of(row) for row in table.chain(table.find_snapshot(id_)).tolist()] == walk
    ids = np.frombuffer(b"".join(entry.id for entry in history) + b"\xff" * 12, np.uint8).reshape(-1, 12)
    rows = table.find_snapshots(ids).tolist()
    assert [table.id_of(row) for row in rows[:-1]] == [entry.id for entry in history]
    assert table.find_snapshot(b"short") == -1


@given(histories(), st.data())
@settings(max_examples=examples(150))
def test_only_some_rows(history: list[SnapshotEntry], data: st.DataObject) -> None:
    """Ancestors go, their children get the root as parent and a list of what went: as expiration does it."""
    root = history[0].id
    table = SnapshotTable.of(history)
    gone = set(
        data.draw(st.lists(st.sampled_from([entry.id for entry in history[1:]]))) if history[1:] else []
    )
    logs = tuple(sorted(gone))
    model = [
        dataclasses.replace(entry, parent=root, pruned_ancestor_tx_logs=logs)
        if entry.parent in gone
        else entry
        for entry in history
        if entry.id not in gone
    ]
    orphans = [entry.id for entry in history if entry.parent in gone and entry.id not in gone]
    keep = np.array([table.id_of(row) not in gone for row in range(len(table))])
    after = table.select_snapshots(keep, dict.fromkeys(orphans, root), dict.fromkeys(orphans, logs))
    assert snapshots_of(after) == by_id(model)
    info = dataclasses.replace(new_repo_info(0), branches={"main": root}, snapshots=after)
    assert snapshots_of(decode_repo_info(encode_repo_info(info), "repo").snapshots) == by_id(model)
    if orphans:
        with pytest.raises(InternalError, match="parent of a remaining snapshot"):
            table.select_snapshots(keep, {}, {})


def line(count: int) -> list[SnapshotEntry]:
    """A straight history whose ids are in no order."""
    noise = np.random.default_rng(1).bytes(12 * count)
    ids = [noise[at : at + 12] for at in range(0, len(noise), 12)]
    return [
        SnapshotEntry(id_, before, 5, "m", {}) for before, id_ in zip([None, *ids[:-1]], ids, strict=True)
    ]


def test_what_cannot_be_added() -> None:
    history = line(3)
    table = SnapshotTable.of(history)
    with pytest.raises(InternalError, match="is already listed") as raised:
        table.added(history[1])
    assert raised.value.kind == ErrorKind.DUPLICATE_SNAPSHOT_ID
    with pytest.raises(InternalError, match="is not listed"):
        table.added(SnapshotEntry(b"\1" * 12, b"\2" * 12, 5, "m", {}))
    with pytest.raises(InternalError, match="the same id"):
        SnapshotTable.of([history[0], history[0]])
    info = dataclasses.replace(new_repo_info(0), tags={"v1": b"\1" * 12})
    with pytest.raises(InternalError, match="`v1` is on a snapshot that is not listed"):
        encode_repo_info(info)


def test_a_cycle_of_parents() -> None:
    table = SnapshotTable.of(line(5))
    parents = table.parents().copy()
    parents[int(np.flatnonzero(parents < 0)[0])] = 0
    ring = dataclasses.replace(table, _parents=parents)
    with pytest.raises(FormatError, match=r"repo: the ancestors of snapshot .* form a cycle"):
        ring.chain(0)


# -- the ops log


@pytest.mark.parametrize("keep", [1, 2, 5, 100])
def test_the_log_is_whole_across_backups(keep: int) -> None:
    """Whatever is kept in one file, the walk over backups finds every update once, newest first."""
    backups: dict[str, RepoInfo] = {}
    info = new_repo_info(0)
    times = [1]
    for number in range(20):
        backup = f"repo.{number}"
        backups[backup] = decode_repo_info(encode_repo_info(info), backup)
        times.append(10 * number + 10)
        entry = OpsEntry(UpdateKind.METADATA_CHANGED, times[-1], backup_path="none yet")
        info = info.recorded(entry, backup=backup, keep=keep)
        assert len(info.ops) == min(keep, len(times))
        assert info.ops.entry(0).backup_path is None
        for entry in ops_of(info)[1:]:
            # A backup holds the state right after the entry that names it.
            assert entry.backup_path
            assert backups[entry.backup_path].ops.entry(0).updated_at == entry.updated_at
    walked, at = [], info
    while True:
        walked += [entry.updated_at for entry in ops_of(at)]
        if at.repo_before_updates is None:
            break
        at = backups[at.repo_before_updates]
    assert walked == times[::-1]


def test_the_log_is_not_cut_before_an_entry_without_backup() -> None:
    """As after a migration, which makes up entries that never were states of this file."""
    entries = [OpsEntry(UpdateKind.NEW_COMMIT, 9 - n, name="main", new_snapshot=bytes(12)) for n in range(5)]
    info = dataclasses.replace(new_repo_info(0), ops=OpsLog.of(entries))
    counts = []
    for number in range(5):
        entry = OpsEntry(UpdateKind.CONFIG_CHANGED, 20 + number)
        info = info.recorded(entry, backup=f"b{number}", keep=2)
        counts.append((len(info.ops), info.repo_before_updates))
    assert counts == [(6, None), (2, "b0"), (2, "b1"), (2, "b2"), (2, "b3")]


def test_what_recorded_refuses() -> None:
    info = new_repo_info(10)
    for late in (10, 11):
        with pytest.raises(InternalError, match=f"update at {late}, expected later than the last one at 11"):
            info.recorded(OpsEntry(UpdateKind.GC_RAN, late), backup="b", keep=10)
    with pytest.raises(InternalError, match="at least 1"):
        info.recorded(OpsEntry(UpdateKind.GC_RAN, 50), backup="b", keep=0)


# -- the file


def patched(info: RepoInfo, slot: int, place: int, dtype: str, value: Any, child: int = 0) -> bytes:
    """The file of ``info`` with another value in a field of one table of the vector in ``slot``."""
    payload = bytearray(open_envelope(encode_repo_info(info), FileType.REPO_INFO)[1])
    tables, _ = Buffer(bytes(payload)).root().children(slot)
    at = int(tables._fields(place)[child])
    data = np.array([value], dtype).tobytes()
    payload[at : at + len(data)] = data
    return seal([bytes(payload)], FileType.REPO_INFO)


@pytest.mark.parametrize(("slot", "place", "late"), [(2, 1, "branches"), (4, 1, "snapshots"), (7, 0, "ops")])
def test_opened_parts_are_decoded_when_they_are_read(slot: int, place: int, late: str) -> None:
    """Damage of one part does not prevent reads of the others."""
    dtype, value = ("u1", 17) if slot == 7 else ("<i4", 9)
    opened = open_repo_info(patched(new_repo_info(0), slot, place, dtype, value), "a/repo")
    assert (opened.config, opened.status.set_at, opened.tags if late == "ops" else {}) == (None, 0, {})
    with pytest.raises(FormatError, match=r"^a/repo: "):
        getattr(opened, late)


def test_snapshots_in_any_order_are_put_in_order() -> None:
    """No writer is known to do it, but the indices in the file say enough."""
    history = line(6)
    info = dataclasses.replace(
        new_repo_info(0),
        snapshots=SnapshotTable.of(history),
        branches={"main": history[-1].id, "a": history[2].id},
    )
    payload = bytearray(open_envelope(encode_repo_info(info), FileType.REPO_INFO)[1])
    tables, _ = Buffer(bytes(payload)).root().children(4)
    # Two snapshots exchange their ids: the file is out of order, and its story another one.
    one, two = int(tables._fields(0)[1]), int(tables._fields(0)[4])
    payload[one : one + 12], payload[two : two + 12] = payload[two : two + 12], payload[one : one + 12]
    read = decode_repo_info(seal([bytes(payload)], FileType.REPO_INFO), "repo")
    ids = [row.tobytes() for row in info.snapshots.ids()]
    names = {id_: id_ for id_ in ids} | {ids[1]: ids[4], ids[4]: ids[1]}
    assert [row.tobytes() for row in read.snapshots.ids()] == ids
    assert read.branches == {branch: names[id_] for branch, id_ in info.branches.items()}
    story = {names[entry.id]: entry.parent and names[entry.parent] for entry in history}
    assert {entry.id: entry.parent for entry in snapshots_of(read.snapshots)} == story


def test_only_spec_version_2() -> None:
    payload = open_envelope(encode_repo_info(new_repo_info(0)), FileType.REPO_INFO)[1]
    with pytest.raises(FormatError, match="spec versions") as raised:
        decode_repo_info(seal([payload], FileType.REPO_INFO, spec_version=1), "repo")
    assert raised.value.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION


# -- many snapshots


def test_rows_that_share_their_bytes_are_read_one_at_a_time() -> None:
    message = np.frombuffer(b"the same for all", np.uint8)
    shared = Ragged(message, np.zeros(40, np.int64), np.full(40, len(message)))
    snapshots = dataclasses.replace(SnapshotTable.of(line(40)), _messages=shared)
    entries = snapshots.entries(np.arange(40))
    assert not isinstance(entries, list)
    assert {entry.message for entry in entries} == {"the same for all"}
    damaged = Ragged(np.frombuffer(b"\xff" * 40, np.uint8), np.arange(40), np.ones(40, np.int64))
    snapshots = dataclasses.replace(snapshots, _messages=damaged, _source="the file")
    for read in (lambda: list(snapshots.entries(np.arange(3))), lambda: snapshots.entry(0)):
        with pytest.raises(FormatError, match="the file: text is not UTF-8"):
            read()


def test_rows_that_mention_a_name() -> None:
    metadata: list[dict[str, Any]] = [{}, {"k": 1}, {"a": 1, "k": None}, {"kk": {"k": 1}}]
    ids = [bytes([n]) * 12 for n in range(4)]
    table = SnapshotTable.of(
        [SnapshotEntry(i, None, n, "", m) for n, (i, m) in enumerate(zip(ids, metadata, strict=True))]
    )
    assert table.mentioning(np.arange(4), "k").tolist() == [1, 2]
    assert table.mentioning(np.array([3, 2, 0]), "k").tolist() == [2]
    assert table.mentioning(np.arange(4), "none").tolist() == []


# -- the configuration


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1, True, 1.0, "1"], id="equal values of other types"),
        pytest.param([[1, 2], (1, 2), [2, 1]], id="sequences"),
        pytest.param([{"b": 1, "a": 2}, {"a": 2, "b": 1}, {}], id="maps"),
        pytest.param([np.float64(0.5), np.arange(3), np.int64(7)], id="values of numpy"),
    ],
)
def test_every_value_has_its_own_bytes(values: list[Any]) -> None:
    config: dict[str, Any] = {"inner": {}}
    for value in [*values, *values]:
        config["inner"]["x"] = value
        assert encoded_config(config) == flexbuffer.dumps({"inner": {"x": value}})


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, float("nan"), "\ud800", object()])
def test_a_value_that_is_not_like_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMetadataError):
        encoded_config({"x": value})
