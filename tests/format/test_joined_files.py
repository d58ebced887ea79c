"""Files that are read together: the same as each of them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.tiers import deep

from frazil.errors import FormatError
from frazil.format.chunk_table import ChunkTable
from frazil.format.envelope import FileType, open_envelope, seal
from frazil.format.flatbuffer import Buffer
from frazil.format.joined_files import decode_chunk_files, decode_chunk_ranges, decode_manifests_of_snapshots
from frazil.format.manifest import Manifest, decode_manifests, encode_manifest
from frazil.format.nodes import ArrayData, ManifestRef, Node, NodeTable
from frazil.format.snapshot import ManifestFiles, Snapshot, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import (
    ID_LISTS,
    Move,
    TransactionLog,
    decode_transaction_logs,
    encode_transaction_log,
)

RANDOM = np.random.default_rng(0)


def ids(count: int) -> NDArray[np.uint8]:
    return RANDOM.integers(0, 256, (count, 12), np.uint8)


# Transaction logs


def log(*chunks: tuple[int, int], ids: int = 0, moves: tuple[Move, ...] = ()) -> bytes:
    """A log with arrays of (count, rank) chunks, and with lists of ids."""
    updated = {
        RANDOM.bytes(8): np.unique(RANDOM.integers(0, 9, (count, rank), np.uint32), axis=0)
        for count, rank in chunks
    }
    lists: dict[str, Any] = {name: RANDOM.integers(0, 256, (ids, 8), np.uint8) for name in ID_LISTS}
    return encode_transaction_log(
        TransactionLog(RANDOM.bytes(12), **lists, updated_chunks=updated, moves=moves)
    )


def content(value: TransactionLog) -> Any:
    lists = [getattr(value, name).tolist() for name in ID_LISTS]
    chunks = [(id_, index.shape, index.tolist()) for id_, index in value.updated_chunks.items()]
    return value.id, lists, chunks, value.moves


@pytest.mark.parametrize(
    "files",
    [
        [log(), log()],
        [log((5, 2)), log(), log((3, 1), (7, 3), (1, 0)), log(ids=3), log((2, 2), ids=1)],
        [log(ids=2), log(ids=0), log(ids=5)],
        [log((0, 2)), log((4, 2))],
        [log(), log(ids=1, moves=(Move("/a", "/b", b"node-001", True),)), log((2, 1))],
    ],
)
def test_the_logs_are_those_of_each_file(files: list[bytes]) -> None:
    alone = [content(*decode_transaction_logs([data])) for data in files]
    assert list(map(content, decode_transaction_logs(files))) == alone


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    payload = bytes(open_envelope(data, FileType.TRANSACTION_LOG)[1])
    assert payload.count(old) == 1
    return seal([payload.replace(old, new)], FileType.TRANSACTION_LOG)


def test_damaged_logs_are_refused_and_unsorted_logs_are_sorted() -> None:
    good = log((2, 2), ids=2)
    ids = decode_transaction_logs([good])[0].new_arrays
    turned = patched(good, ids.tobytes(), ids[::-1].tobytes())
    assert (
        list(map(content, decode_transaction_logs([turned, good, turned])))
        == [content(*decode_transaction_logs([good]))] * 3
    )
    for other in (good[:-1], b"damaged", b""):
        with pytest.raises(FormatError):
            decode_transaction_logs([good, other])


def test_a_vector_ends_in_its_file() -> None:
    payload = bytes(open_envelope(log(ids=2), FileType.TRANSACTION_LOG)[1])
    place = int(Buffer(payload).root().targets(1)[0])
    fits = (len(payload) - place - 4) // 8
    for count, is_inside in ((fits, True), (fits + 1, False)):
        changed = payload[:place] + count.to_bytes(4, "little") + payload[place + 4 :]
        roots = Buffer(changed, payload).root()
        if is_inside:
            assert roots.places(1, 8)[1].tolist() == [fits, 2]
        else:
            with pytest.raises(FormatError, match="out of its file"):
                roots.places(1, 8)


# Manifests


def native(*files: int) -> bytes:
    """A manifest with an array for each number of chunk files, three chunks in each file."""
    arrays = {}
    for number, count in enumerate(files):
        rows = np.arange(3 * count)
        arrays[f"node-{number:03}".encode()] = ChunkTable.from_native(
            rows.reshape(-1, 1), ids(count), rows // 3, rows % 3, 7
        )
    return encode_manifest(Manifest(ids(1).tobytes(), arrays))


def mixed() -> bytes:
    """A manifest with native and inline chunks."""
    parts = [
        ChunkTable.from_native([[0]], ids(1), np.zeros(1, int), 5, 6),
        ChunkTable.from_inline([[1]], [b"data"]),
    ]
    table = ChunkTable.merge_tables(parts)
    return encode_manifest(Manifest(ids(1).tobytes(), {b"node-000": table}))


def columns(value: Any) -> list[Any]:
    names = ("id", "kind", "source", "offset", "length", "chunk_ids")
    return [np.asarray(getattr(value, name)).tolist() for name in names if hasattr(value, name)]


def tables(files: list[bytes]) -> list[Any]:
    """The references of each array of each manifest, without the sources of their neighbours."""
    return [
        (manifest.id, {id_: (table.index.tolist(), *columns(table.prune())) for id_, table in arrays.items()})
        for manifest, arrays in ((each, each.arrays) for each in decode_manifests(files))
    ]


@pytest.mark.parametrize(
    ("decode", "more"), [(decode_chunk_files, [mixed(), native(3)]), (decode_chunk_ranges, []), (tables, [])]
)
def test_what_is_read_is_that_of_each_manifest(decode: Any, more: list[bytes]) -> None:
    one = native(1)
    files = [one, one, native(4), native(), native(1, 30), native(0), native(2, 2), *more]
    view = list if decode is tables else columns
    assert list(map(view, decode(files))) == [view(*decode([data])) for data in files]
    for other in (one[:-3], *([] if more else [mixed()])):
        with pytest.raises(FormatError):
            decode([one, other])


# The manifests of snapshots


def snapshot(listed: Any, used: Any, spec_version: int) -> bytes:
    box = np.array([[0, 1]], np.uint32)
    refs = tuple(ManifestRef(id_.tobytes(), box) for id_ in used)
    nodes = NodeTable.from_nodes(
        [
            Node(b"node-000", "/", b"{}", None),
            Node(b"node-001", "/a", b"{}", ArrayData((4,), (4,), None, refs)),
            Node(b"node-002", "/b", b"{}", ArrayData((4,), (4,), None, refs[:1])),
            Node(b"node-003", "/empty", b"{}", ArrayData((4,), (4,), None)),
        ]
    )
    count = len(listed)
    files = ManifestFiles(listed, np.arange(count, dtype="u8"), np.arange(count, dtype="u4")).sorted()
    parent = bytes(12) if spec_version == 1 else None
    return encode_snapshot(Snapshot(b"s" * 12, 5, "m", {}, nodes, files, parent, spec_version))


@pytest.mark.parametrize("spec_version", [1, 2])
@pytest.mark.parametrize("unlisted", [0, 2])
def test_the_manifests_are_those_of_the_snapshot(spec_version: int, unlisted: int) -> None:
    listed, others = ids(5), ids(unlisted)
    data = snapshot(listed, [*listed[:3], *others], spec_version)
    (decoded,) = decode_manifests_of_snapshots([data])
    whole = decode_snapshot(data, "x")
    assert decoded.id == whole.id
    expected = {*map(bytes, whole.manifests.ids), *map(bytes, whole.nodes.manifest_ids())}
    assert list(map(bytes, decoded.files.ids)) == sorted(expected)
    assert len(decoded.files) == 5 + unlisted
    for id_ in map(bytes, listed):
        assert decoded.files.size_of(id_) == whole.manifests.size_of(id_)


def test_snapshots_that_are_read_together_are_the_same() -> None:
    lists = [ids(count) for count in (5, 1, 40, 3)]
    files = [snapshot(listed, np.random.default_rng(0).permutation(listed), 2) for listed in lists]
    alone = [decode_manifests_of_snapshots([data])[0] for data in files]
    assert list(map(repr, decode_manifests_of_snapshots(files))) == list(map(repr, alone))


@pytest.mark.parametrize("other", ["version 1", "not listed", "cut off"])
def test_other_snapshots_are_read_alone(other: str) -> None:
    listed = ids(3)
    data = {
        "version 1": snapshot(listed, listed, 1),
        "not listed": snapshot(listed[:2], listed, 2),
        "cut off": snapshot(listed, listed, 2)[:90],
    }[other]
    with pytest.raises(FormatError):
        decode_manifests_of_snapshots([snapshot(listed, listed, 2), data])


LISTED = ids(5)
#: A decoder, the type of its files, and a file.
DECODERS: dict[str, tuple[Any, FileType, bytes]] = {
    "logs": (decode_transaction_logs, FileType.TRANSACTION_LOG, log((3, 2), ids=2)),
    "chunk files": (decode_chunk_files, FileType.MANIFEST, native(1, 2)),
    "chunk ranges": (decode_chunk_ranges, FileType.MANIFEST, native(1, 2)),
    "references": (tables, FileType.MANIFEST, native(1, 2)),
    "manifests": (decode_manifests_of_snapshots, FileType.SNAPSHOT, snapshot(LISTED, LISTED, 2)),
}


@pytest.mark.parametrize("name", ["logs", "references", *deep("chunk files", "chunk ranges", "manifests")])
def test_no_file_reads_the_bytes_of_another(name: str) -> None:
    """Each word of the first file leads out of it in turn, also to the same place in the second file."""
    decode, kind, good = DECODERS[name]
    payload = bytes(open_envelope(good, kind)[1])
    words = np.frombuffer(payload[: len(payload) // 4 * 4], "<u4").tolist()
    next_file, refused = -(-len(payload) // 8) * 8, 0
    (expected,) = decode([good])
    for number, word in enumerate(words):
        for value in (len(payload) + 64, 40, (word + next_file) % (1 << 32)):
            changed = payload[: 4 * number] + value.to_bytes(4, "little") + payload[4 * number + 4 :]
            data = seal([changed], kind)
            try:
                one, *others = decode([data, good, good])
            except FormatError:
                refused += 1
            else:
                assert list(map(repr, others)) == [repr(expected)] * 2
                assert repr(one) == repr(*decode([data]))
    assert refused > 10
