"""Long lists of snapshots: groups are written once, and files of other layouts stay readable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import zstandard

from frazil.errors import FormatError
from frazil.format import snapshot_groups
from frazil.format.envelope import (
    HEADER_BYTES,
    PIECE_GAP,
    FileType,
    compressed_piece,
    open_envelope,
    opened_piece,
    seal,
    stored_piece,
    stored_pieces,
)
from frazil.format.repo_info import RepoInfo, SnapshotEntry, decode_repo_info, encode_repo_info, new_repo_info
from frazil.format.snapshot import SnapshotTable

RANDOM = np.random.default_rng(0)
LONG = snapshot_groups.LONG


def entries(first: SnapshotEntry) -> Iterator[SnapshotEntry]:
    """Yield an endless history with branches, removed versions, and texts of many lengths."""
    made = [first.id]
    while True:
        k = len(made)
        parent = made[-1] if k % 5 else made[int(RANDOM.integers(k))]
        pruned = tuple(RANDOM.bytes(12) for _ in range(k % 4)) if k % 7 == 0 else ()
        metadata = {"run": k, "é": "x" * (k % 30)} if k % 3 else {}
        entry = SnapshotEntry(RANDOM.bytes(12), parent, 10**15 + k, f"step {k} ü" * (k % 4), metadata, pruned)
        made.append(entry.id)
        yield entry


def long_history(count: int = LONG) -> tuple[RepoInfo, Iterator[SnapshotEntry]]:
    info = new_repo_info(10**15)
    endless = entries(info.snapshots.entry(0))
    history = [info.snapshots.entry(0), *islice(endless, count - 1)]
    return replace(info, snapshots=SnapshotTable.of(history)), endless


def added(info: RepoInfo, entry: SnapshotEntry) -> RepoInfo:
    return replace(info, snapshots=info.snapshots.added(entry), branches={"main": entry.id})


def listed(info: RepoInfo) -> list[SnapshotEntry]:
    return list(info.table.entries(np.arange(len(info.table))))


def test_groups_have_the_same_content_and_are_used_again() -> None:
    info, endless = long_history(LONG - 2)
    expected = listed(info)
    kept = None
    for count in range(4):
        info = added(info, entry := next(endless))
        expected = sorted([*expected, entry], key=lambda each: each.id)
        file = encode_repo_info(info)
        groups = info.table.groups()
        assert (groups is None) == (len(expected) < LONG)
        read = decode_repo_info(file, "repo")
        assert listed(read) == expected == listed(info)
        if groups is None:
            continue
        assert len(groups.full) == LONG // 1000
        found = read.table.groups()
        assert found is not None
        assert (found.slots == groups.slots).all()
        blocks = [(bytes(each.tables.blocks), bytes(each.texts.blocks)) for each in found.full]
        assert all(part in file for pair in blocks for part in pair)
        assert kept in (None, blocks)
        kept = blocks
        if count % 2:
            info = read  # a new process
        assert encode_repo_info(replace(read, tags={"v": entry.id})) == encode_repo_info(
            replace(info, tags={"v": entry.id})
        )


def test_a_list_without_some_rows_is_written_anew() -> None:
    info, endless = long_history()
    info = added(info, next(endless))
    table = decode_repo_info(encode_repo_info(info), "repo").table
    assert table.groups() is not None
    relinked = table.relinked(np.full(len(table), -1, np.int32), table.pruned())
    keep = np.ones(len(table), np.bool_)
    keep[table.parents() == -1] = False
    for changed in (relinked, relinked.select_snapshots(keep, {}, {})):
        assert changed.groups() is None
        read = decode_repo_info(encode_repo_info(replace(info, snapshots=changed, branches={})), "repo")
        assert listed(read) == list(changed.entries(np.arange(len(changed))))


@pytest.mark.parametrize("what", ["vtable", "text", "order", "cut", "other writer"])
def test_groups_that_are_not_ours_are_not_used(what: str) -> None:
    info, endless = long_history()
    info = added(info, next(endless))
    file = encode_repo_info(info)
    payload = bytearray(open_envelope(file, FileType.REPO_INFO)[1])
    table = decode_repo_info(file, "repo").table
    origin = table._origin
    assert origin is not None
    assert origin.groups() is not None
    places = origin.places.copy()
    if what == "vtable":
        payload[int(places.min())] ^= 16  # the table has another vtable than its bytes in the file say
    elif what == "text":
        at = bytes(payload).index(b"step 1")
        payload[at] ^= 1
    elif what == "order":
        places[0] = places[1]
    elif what == "cut":
        places = places[:LONG]
    else:
        file = seal([bytes(payload)], FileType.REPO_INFO)
        assert listed(decode_repo_info(file, "repo")) == listed(info)
    assert replace(origin, file=file, payload=bytes(payload), places=places).groups() is None


def test_a_piece_means_the_same_after_any_blocks() -> None:
    """A match at distance 1, 4 or 8 at the start of a piece needs the offsets of the start of a frame."""
    starts = [bytes([k]) * 40 + bytes(range(8)) * 9 + b"abcd" * 30 for k in range(4)]
    pieces = [compressed_piece(bytes(PIECE_GAP) + start) for start in starts]
    parts: list[Any] = [
        b"first" * 1000,
        pieces[0],
        stored_piece(b"x" * 300_000),
        pieces[1],
        pieces[2],
        pieces[3],
    ]
    file = seal(parts, FileType.REPO_INFO)
    expected = b"".join(getattr(part, "data", part) for part in parts)
    assert zstandard.ZstdDecompressor().decompress(file[HEADER_BYTES:]) == expected
    assert bytes(open_envelope(file, FileType.REPO_INFO)[1]) == expected
    # The large stored piece is two or three blocks after the first one.
    assert [opened_piece(blocks).data for blocks in stored_pieces(file)][1:] == [
        each.data for each in pieces[1:]
    ]
    with pytest.raises(FormatError, match="not those of a piece"):
        opened_piece([b"\x44\0\0" + bytes(8)])
    for place in (-1, HEADER_BYTES + 60, len(file) // 2):
        broken = bytearray(file)
        broken[place] ^= 1
        with pytest.raises(FormatError):
            open_envelope(bytes(broken), FileType.REPO_INFO)


def test_the_reference_reads_and_continues_a_long_history(tmp_path: object) -> None:
    icechunk = pytest.importorskip("icechunk")
    import frazil

    path = str(tmp_path)
    repo = frazil.Repository.create(frazil.local_filesystem_storage(path))
    info, endless = long_history()
    first = decode_repo_info(repo.storage.get("repo"), "repo")
    history = [each for each in listed(info) if each.parent is not None]
    root = first.snapshots.entry(0)
    table = SnapshotTable.of([root, *history])
    info = replace(first, snapshots=table, branches={"main": root.id})
    repo.storage.put("repo", encode_repo_info(added(info, replace(next(endless), parent=root.id))))
    ours = frazil.Repository.open(repo.storage)
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(path))
    tip = ours.lookup_branch("main")

    def seen(handle: object, id_: str) -> list[object]:
        history = handle.ancestry(snapshot_id=id_)  # type: ignore[attr-defined]
        return [(each.id, each.parent_id, each.message, each.metadata, each.written_at) for each in history]

    ids = [frazil.format.ids.id_to_text(each.id) for each in history[::400]]
    for id_ in (tip, *ids):
        assert seen(theirs, id_) == seen(ours, id_)
    for turn in range(3):
        ours.create_tag(f"ours {turn}", tip)
        theirs.create_tag(f"theirs {turn}", tip)
        assert ours.list_tags() == theirs.list_tags()
