"""Any bytes are a snapshot, a repo info, or a ``FormatError`` that names the file.

What is decoded lazily is asked for as well, and what could be read is written again. Time and memory are
bounded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.fixtures import fixture_path

from frazil.errors import FormatError, IcechunkError
from frazil.format.envelope import HEADER_BYTES, FileType, open_envelope, seal
from frazil.format.flatbuffer import Buffer
from frazil.format.nodes import ArrayData, ManifestRef, Node, NodeTable
from frazil.format.repo_info import (
    OpsEntry,
    OpsLog,
    RepoInfo,
    SnapshotEntry,
    Status,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
    new_repo_info,
)
from frazil.format.snapshot import Snapshot, decode_snapshot, encode_snapshot, initial_snapshot

NAME = "some/file"
LEAST = b"\3" * 12


def exhaust_snapshot(data: Any) -> None:
    snapshot = decode_snapshot(data, NAME)
    nodes = snapshot.nodes
    each(partial(nodes.node, row) for row in range(len(nodes)))
    each([nodes.paths_list, nodes.manifest_ids, partial(nodes.children, "/"), partial(nodes.find_node, "/a")])
    write(lambda: encode_snapshot(snapshot))


def exhaust_repo_info(data: Any) -> None:
    info = decode_repo_info(data, NAME)
    rows = range(len(info.snapshots))
    each(partial(method, row) for method in (info.snapshots.entry, info.snapshots.chain) for row in rows)
    each(partial(info.ops.entry, row) for row in range(len(info.ops)))
    write(lambda: encode_repo_info(info))


def each(calls: Iterable[Callable[[], Any]]) -> None:
    """Every call answers, or raises ``FormatError``."""
    for call in calls:
        with contextlib.suppress(FormatError):
            call()


def write(call: Callable[[], bytes]) -> None:
    # Damage that reading let pass, such as a number that JSON does not have, may not be writable.
    with contextlib.suppress(IcechunkError):
        call()


def refused(exhaust: Callable[[Any], None], data: Any) -> bool:
    """Whether decoding refused the bytes; it does so in the one way that is allowed."""
    try:
        exhaust(data)
    except FormatError as error:
        message = error.message
    else:
        return False
    assert NAME in message
    return True


def a_snapshot() -> bytes:
    refs = (ManifestRef(LEAST, np.array([[0, 3], [1, 2]], np.uint32)),)
    document = b'{"chunk_grid":{"configuration":{"chunk_shape":[4,2]}}}'
    nodes = [
        Node(b"\1" * 8, "/", b"{}", None),
        Node(b"\2" * 8, "/a", document, ArrayData((9, 4), (3, 2), ("x", None), refs)),
        Node(b"\3" * 8, "/g/b", document, ArrayData((1,), (1,), None)),
    ]
    snapshot = dataclasses.replace(
        initial_snapshot(7), nodes=NodeTable.from_nodes(nodes), metadata={"a": [1, {"b": None}], "n": 1.5}
    )
    return encode_snapshot(snapshot)


def a_repo_info() -> bytes:
    info = new_repo_info(5, config={"a": {"b": [1, "x"]}}, metadata={"k": "v"})
    child = SnapshotEntry(LEAST, next(iter(info.branches.values())), 9, "child", {"m": 1}, (b"\4" * 12,))
    log = [
        OpsEntry(UpdateKind.REPO_STATUS_CHANGED, 30, status=Status(set_at=3, reason="why")),
        OpsEntry(UpdateKind.FEATURE_FLAG_CHANGED, 29, "repo.3", flag=(3, True, True)),
        OpsEntry(UpdateKind.COMMIT_AMENDED, 28, "repo.2", "main", LEAST, LEAST),
        OpsEntry(UpdateKind.REPO_MIGRATED, 27, "repo.1", versions=(1, 2)),
    ]
    info = dataclasses.replace(
        info,
        snapshots=info.snapshots.added(child),
        tags={"v1": LEAST},
        deleted_tags=frozenset(["v0"]),
        ops=OpsLog.of(log),
        repo_before_updates="repo.0",
        enabled_flags=frozenset([3]),
    )
    return encode_repo_info(info)


def a_snapshot_of_version_1() -> bytes:
    folder = fixture_path("v1-1.0.0", "order", "repo", "snapshots")
    return max((file.read_bytes() for file in folder.iterdir()), key=len)


KINDS = [
    pytest.param(a_snapshot, exhaust_snapshot, FileType.SNAPSHOT, 2, id="snapshot"),
    pytest.param(a_snapshot_of_version_1, exhaust_snapshot, FileType.SNAPSHOT, 1, id="snapshot-v1"),
    pytest.param(a_repo_info, exhaust_repo_info, FileType.REPO_INFO, 2, id="repo-info"),
]
Exhaust = Callable[[Any], None]


@pytest.mark.parametrize(("make", "exhaust", "kind", "spec"), KINDS)
def test_a_file_cut_anywhere(make: Callable[[], bytes], exhaust: Exhaust, kind: FileType, spec: int) -> None:
    data = make()
    assert not refused(exhaust, data)
    assert all(refused(exhaust, data[:size]) for size in range(len(data)))


@pytest.mark.deep
@pytest.mark.parametrize(("make", "exhaust", "kind", "spec"), KINDS)
def test_a_payload_cut_anywhere(
    make: Callable[[], bytes], exhaust: Exhaust, kind: FileType, spec: int
) -> None:
    payload = bytes(open_envelope(make(), kind)[1])
    sizes = [
        refused(exhaust, seal([payload[:size]], kind, spec_version=spec)) for size in range(len(payload))
    ]
    assert all(sizes[: len(payload) // 2])


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize(("make", "exhaust", "kind", "spec"), KINDS)
def test_a_payload_changed_anywhere(
    make: Callable[[], bytes], exhaust: Exhaust, kind: FileType, spec: int
) -> None:
    """Single bits, single bytes, and whole words that are dangerous as offsets, lengths and counts."""
    payload = np.frombuffer(bytes(open_envelope(make(), kind)[1]), np.uint8)
    rng = np.random.default_rng(20261121)
    words = np.array([0, 1, 2, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(payload)], "<u4").view(np.uint8)
    outcomes = []
    started = time.process_time()
    for number in range(2500):
        changed = payload.copy()
        for _ in range(1 + number % 3):
            at = int(rng.integers(len(payload) - 4))
            match number % 4:
                case 0:
                    changed[at] ^= 1 << int(rng.integers(8))
                case 1:
                    changed[at] = rng.integers(256)
                case 2:
                    word = int(rng.integers(len(words) // 4)) * 4
                    changed[at & ~3 : (at & ~3) + 4] = words[word : word + 4]
                case _:
                    other = int(rng.integers(len(payload) - 4))
                    changed[at & ~3 : (at & ~3) + 4] = payload[other & ~3 : (other & ~3) + 4]
        outcomes.append(refused(exhaust, seal([changed.tobytes()], kind, spec_version=spec, level=1)))
    assert 0.02 < np.mean(outcomes) < 0.98  # else the mutations miss, or hit nothing but the root
    assert time.process_time() - started < 60


@pytest.mark.parametrize(("make", "exhaust", "kind", "spec"), KINDS)
def test_random_bytes(make: Callable[[], bytes], exhaust: Exhaust, kind: FileType, spec: int) -> None:
    rng = np.random.default_rng(7)
    head = make()[:HEADER_BYTES]
    for size in [*range(60), *rng.integers(60, 5000, 100).tolist()]:
        noise = rng.bytes(size)
        assert refused(exhaust, noise)
        assert refused(exhaust, head + noise)
        assert refused(exhaust, seal([noise], kind, spec_version=spec))


# -- a few bytes, used over and over


def reshared(data: bytes, kind: FileType, slot: int, field: int, *, inner: int | None = None) -> bytes:
    """The file, with an offset field of every table of a vector leading to the first table's target."""
    payload = bytearray(open_envelope(data, kind)[1])
    tables, _ = Buffer(bytes(payload)).root().children(slot)
    if inner is not None:
        tables, _ = tables.children(inner)
    places = tables._fields(field)
    target = int(tables.targets(field)[0][0])
    for place in places[places < target].tolist():
        payload[place : place + 4] = np.uint32(target - place).tobytes()
    return seal([bytes(payload)], kind)


def peak_of(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def wide_snapshot() -> Snapshot:
    nodes = [Node(bytes(8), f"/{n:05d}", b"x" * (1_000_000 if n == 0 else 1), None) for n in range(20_000)]
    return dataclasses.replace(initial_snapshot(1), nodes=NodeTable.from_nodes(nodes))


def test_shared_user_data_stays_shared() -> None:
    """20,000 nodes with the same megabyte: 20 GB for whoever copies them, so nobody does."""
    data = reshared(encode_snapshot(wide_snapshot()), FileType.SNAPSHOT, 2, 2)

    def read() -> None:
        snapshot = decode_snapshot(data, NAME)
        last = snapshot.nodes.node(len(snapshot.nodes) - 1)
        assert len(last.user_data) == 1_000_000
        with pytest.raises(FormatError, match="too many for one file"):
            encode_snapshot(snapshot)

    assert peak_of(read) < 60_000_000


def wide_info() -> RepoInfo:
    info = new_repo_info(1)
    table = info.snapshots
    metadata = {f"{n:05d}": "x" * (1_000_000 if n == 0 else 1) for n in range(5_000)}
    child = SnapshotEntry(LEAST, table.id_of(0), 1, "m", metadata)
    return dataclasses.replace(info, snapshots=table.added(child), branches={}, metadata={})


def test_shared_metadata_is_refused() -> None:
    data = reshared(encode_repo_info(wide_info()), FileType.REPO_INFO, 4, 1, inner=4)

    def read() -> None:
        with pytest.raises(FormatError, match=f"{NAME}: metadata have"):
            decode_repo_info(data, NAME).snapshots.entry(0)

    assert peak_of(read) < 30_000_000


def test_shared_names_of_refs_are_refused() -> None:
    info = new_repo_info(1)
    (id_,) = info.branches.values()
    names = {f"{n:05d}" + "x" * (1_000_000 if n == 0 else 1): id_ for n in range(5_000)}
    data = reshared(encode_repo_info(dataclasses.replace(info, branches=names)), FileType.REPO_INFO, 2, 0)

    def read() -> None:
        with pytest.raises(FormatError, match=f"{NAME}: names of refs have"):
            decode_repo_info(data, NAME)

    assert peak_of(read) < 30_000_000


def test_a_bomb_of_zeros() -> None:
    """64 MiB behind a few kB: reading ends at once, since nothing in it is a table."""
    data = seal([bytes(1 << 26)], FileType.REPO_INFO)
    assert len(data) < 10_000
    started = time.process_time()
    assert refused(exhaust_repo_info, data)
    assert refused(exhaust_snapshot, seal([bytes(1 << 26)], FileType.SNAPSHOT))
    assert time.process_time() - started < 5
