"""Each check of a verification, with a repository that breaks exactly its rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import zarr
from tests.repository.version_1 import copy_of
from tests.support.flatbuffer_patch import Patch, patched

import frazil
from frazil.errors import FormatError
from frazil.format.envelope import FileType
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkTable, Manifest, decode_manifest, encode_manifest
from frazil.format.repo_info import decode_repo_info, encode_repo_info
from frazil.format.snapshot import SnapshotTable, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import Move, decode_transaction_log, encode_transaction_log
from frazil.maintenance.verification.findings import checks
from frazil.storage.memory import MemoryStorage

REPO, SNAPSHOT, MANIFEST, LOG = (
    FileType.REPO_INFO,
    FileType.SNAPSHOT,
    FileType.MANIFEST,
    FileType.TRANSACTION_LOG,
)
INITIAL = "1CECHNKREP0F1RSTCMT0"
OTHER_NODE = np.arange(8, dtype=np.uint8).reshape(1, 8)


@cache
def template(spec_version: int) -> MemoryStorage:
    """Three commits, with two arrays, two groups, tags and branches; chunks of every kind."""
    storage = MemoryStorage()
    split, halves = (
        frazil.ManifestSplitCondition.name_matches("split"),
        frazil.ManifestSplitDimCondition.Any(),
    )
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=8,
        packing=frazil.PackingConfig(enabled=False),
        manifest=frazil.ManifestConfig(
            splitting=frazil.ManifestSplittingConfig.from_dict({split: {halves: 2}})
        ),
    )
    repo = frazil.Repository.create(storage, config, spec_version=spec_version)
    with repo.transaction("main", message="arrays", metadata={"author": "a", "topic": "b"}) as store:
        zarr.create_group(store)
        for name in ("a/b", "a/c"):
            zarr.create_group(store, path=name)
        for name in ("a/x", "a/y", "split"):
            options: Any = {"dtype": "i4", "compressors": None, "dimension_names": ("t", "x")}
            array = zarr.create_array(store, name=name, shape=(4, 4), chunks=(1, 4), **options)
            array[:] = np.arange(16).reshape(4, 4) + 1
    with repo.transaction("main", message="two arrays", metadata={"author": "a", "topic": "b"}) as store:
        for name in ("a/x", "a/y"):
            zarr.open_array(store, path=name)[:2] = 5
            zarr.open_array(store, path=name).attrs["units"] = "m"
        del zarr.open_group(store)["a/b"]
    for name in ("t1", "t2", "t3", "t4"):
        repo.create_tag(name, repo.lookup_branch("main"))
    repo.create_branch("dev", repo.lookup_branch("main"))
    for name in ("t3", "t4"):
        repo.delete_tag(name)
    if spec_version == 2:
        repo.save_config()
        repo.set_feature_flag("move_node", True)
        session = repo.rearrange_session("main")
        session.move("/a/x", "/a/p")
        session.move("/a/y", "/a/q")
        session.commit("moved", metadata={"author": "a", "topic": "b"})
    return storage


@pytest.fixture
def storage() -> MemoryStorage:
    return copy_of(template(2))


def tip(storage: MemoryStorage, number: int = 0) -> str:
    """A snapshot of `main`: 0 is the last one."""
    repo = frazil.Repository.open(storage)
    return [each.id for each in repo.ancestry(branch="main")][number]


def names(storage: MemoryStorage, level: Any = "metadata") -> set[str]:
    return {each.check for each in frazil.Repository.open(storage).upkeep.verify(level).findings}


def key_of(storage: MemoryStorage, file_type: FileType, number: int = 0) -> str:
    if file_type is REPO:
        return "repo"
    if file_type is MANIFEST:
        snapshot = decode_snapshot(storage.get(f"snapshots/{tip(storage)}"), "")
        # The manifests with most references.
        order = np.argsort(-snapshot.manifests.num_chunk_refs.astype(int), kind="stable")
        return f"manifests/{id_to_text(snapshot.manifests.ids[order[number]].tobytes())}"
    folder = "snapshots" if file_type is SNAPSHOT else "transactions"
    return f"{folder}/{tip(storage, number)}"


def table_of(patch: Patch, slot: int, row: int = 0) -> int:
    return patch.tables(patch.root, slot)[row]


def array_of(patch: Patch) -> int:
    """The first ArrayNodeData with several manifests, else the first one."""
    nodes = [node for node in patch.tables(patch.root, 2) if patch.number("<B", patch.field(node, 3)) == 1]
    arrays = [patch.follow(patch.field(node, 4)) for node in nodes]
    return max(arrays, key=lambda array: len(patch.tables(array, 2)))


def refs_of(patch: Patch, row: int = 0) -> int:
    return table_of(patch, 1, row)


def ref_of(patch: Patch) -> int:
    return patch.tables(refs_of(patch), 1)[0]


def change_id(patch: Patch, at: int) -> None:
    """Change the last byte of an id. The order of the ids stays."""
    patch.put("<B", at + 11, patch.number("<B", at + 11) ^ 1)


def with_header(at: int, value: int) -> Callable[[MemoryStorage], object]:
    def change(storage: MemoryStorage) -> None:
        data = bytearray(storage.get(f"snapshots/{tip(storage)}"))
        data[at] = value
        storage.put(f"snapshots/{tip(storage)}", data)

    return change


def breaks(check: str, file_type: FileType, change: Callable[[Patch], object], number: int = 0) -> Any:
    """A change of one file by a patch that breaks one rule."""
    return pytest.param(check, file_type, change, number, id=check)


def cycle(patch: Patch) -> None:
    infos = patch.tables(patch.root, 4)
    for row, info in enumerate(infos):
        if patch.number("<i", patch.field(info, 1)) >= 0:
            patch.put("<i", patch.field(info, 1), row)
            return


def orphan(patch: Patch) -> None:
    infos = patch.tables(patch.root, 4)
    parents = [patch.number("<i", patch.field(info, 1)) for info in infos]
    # The tip, whose ancestors stay reachable by tags.
    row = next(row for row in range(len(infos)) if row not in parents)
    patch.put("<i", patch.field(infos[row], 1), -1)


def same_extents(patch: Patch) -> None:
    one, two, *_ = patch.tables(array_of(patch), 2)
    start, count = patch.vector(one, 1)
    other, _ = patch.vector(two, 1)
    patch.payload[other : other + 8 * count] = patch.payload[start : start + 8 * count]


BREAKS = [
    # headers are in another test
    breaks("text-utf8", REPO, lambda p: p.text(table_of(p, 4), 3, b"\xff")),
    breaks("metadata-values", REPO, lambda p: p.resize(p.tables(table_of(p, 4, 1), 4)[0], 1, 0)),
    breaks("repo-required", REPO, lambda p: p.drop(p.root, 3)),
    breaks("repo-spec-version", REPO, lambda p: p.put("<B", p.field(p.root, 0), 1)),
    breaks("tags-sorted", REPO, lambda p: p.swap(p.root, 1)),
    breaks("branches-sorted", REPO, lambda p: p.swap(p.root, 2)),
    breaks("deleted-tags-sorted", REPO, lambda p: p.swap(p.root, 3)),
    breaks("snapshots-sorted", REPO, lambda p: p.swap(p.root, 4)),
    breaks("config-flexbuffer", REPO, lambda p: p.resize(p.root, 9, 2)),
    breaks("status-availability", REPO, lambda p: p.put("<B", p.field(p.follow(p.field(p.root, 5)), 0), 7)),
    breaks("main-branch", REPO, lambda p: p.text(table_of(p, 2, 1), 0, b"mail")),
    breaks("tag-reuse", REPO, lambda p: p.text(table_of(p, 1, 1), 0, b"t4")),
    breaks("ref-target", REPO, lambda p: p.put("<I", p.field(table_of(p, 1), 1), 77)),
    breaks("parent-offset", REPO, lambda p: p.put("<i", p.field(table_of(p, 4), 1), 77)),
    breaks("parent-cycle", REPO, cycle),
    breaks("initial-snapshot", REPO, orphan),
    breaks("snapshot-summary", REPO, lambda p: p.put("<Q", p.field(table_of(p, 4), 2), 77)),
    breaks("update-kind", REPO, lambda p: p.put("<B", p.field(table_of(p, 7), 0), 99)),
    breaks("ops-order", REPO, lambda p: p.put("<Q", p.field(table_of(p, 7), 2), 5)),
    breaks("backup-name", REPO, lambda p: p.text(table_of(p, 7, 1), 3, b"repo.1")),
    breaks("snapshot-required", SNAPSHOT, lambda p: p.drop(p.root, 4)),
    breaks("snapshot-id", SNAPSHOT, lambda p: change_id(p, p.field(p.root, 0))),
    breaks("snapshot-metadata-sorted", SNAPSHOT, lambda p: p.swap(p.root, 5)),
    breaks("nodes-sorted", SNAPSHOT, lambda p: p.swap(p.root, 2)),
    breaks("node-path", SNAPSHOT, lambda p: p.text(table_of(p, 2, 2), 1, b"/a/")),
    breaks("node-document", SNAPSHOT, lambda p: p.text(table_of(p, 2, 1), 2, b"{}")),
    breaks("array-shape-v1-empty", SNAPSHOT, lambda p: p.put("<I", p.follow(p.field(array_of(p), 0)), 1)),
    breaks("array-shape-v2", SNAPSHOT, lambda p: p.drop(array_of(p), 3)),
    breaks("array-shape", SNAPSHOT, lambda p: p.put("<Q", p.field(p.tables(array_of(p), 3)[0], 0), 5)),
    breaks("num-chunks", SNAPSHOT, lambda p: p.put("<I", p.field(p.tables(array_of(p), 3)[0], 1), 5)),
    breaks("dimension-names", SNAPSHOT, lambda p: p.resize(array_of(p), 1, 1)),
    breaks("extents-rank", SNAPSHOT, lambda p: p.resize(p.tables(array_of(p), 2)[0], 1, 1)),
    breaks(
        "extents-range", SNAPSHOT, lambda p: p.put("<2I", p.vector(p.tables(array_of(p), 2)[0], 1)[0], 9, 1)
    ),
    breaks("extents-overlap", SNAPSHOT, same_extents),
    breaks("manifest-files-v1-empty", SNAPSHOT, lambda p: p.resize(p.root, 6, 1)),
    breaks("manifest-files-sorted", SNAPSHOT, lambda p: p.swap(p.root, 7)),
    breaks("manifest-files-v2", SNAPSHOT, lambda p: p.drop(p.root, 7)),
    breaks("manifest-file-fields", SNAPSHOT, lambda p: p.put("<Q", p.field(table_of(p, 7), 1), 0)),
    breaks("manifest-listed", SNAPSHOT, lambda p: change_id(p, p.field(table_of(p, 7), 0))),
    breaks("manifest-size", SNAPSHOT, lambda p: p.put("<Q", p.field(table_of(p, 7), 1), 7)),
    breaks("manifest-count", SNAPSHOT, lambda p: p.put("<I", p.field(table_of(p, 7), 2), 7)),
    breaks("manifest-required", MANIFEST, lambda p: p.drop(refs_of(p), 0)),
    breaks("manifest-id", MANIFEST, lambda p: change_id(p, p.field(p.root, 0))),
    breaks("refs-sorted", MANIFEST, lambda p: p.swap(refs_of(p), 1)),
    breaks("ref-kind", MANIFEST, lambda p: p.drop(ref_of(p), 4)),
    breaks("ref-range", MANIFEST, lambda p: p.put("<Q", p.field(ref_of(p), 2), 2**64 - 1)),
    breaks("ref-rank", MANIFEST, lambda p: p.resize(ref_of(p), 0, 1)),
    breaks("location-compression", MANIFEST, lambda p: p.put("<B", p.field(p.root, 3), 9)),
    breaks("log-required", LOG, lambda p: p.drop(p.root, 4)),
    breaks("log-id", LOG, lambda p: change_id(p, p.field(p.root, 0))),
    breaks("log-ids-sorted", LOG, lambda p: p.swap(p.root, 5, 8), 1),
    breaks("log-chunks-sorted", LOG, lambda p: p.swap(p.root, 7), 1),
    breaks("log-coords-sorted", LOG, lambda p: p.swap(table_of(p, 7), 1), 1),
    breaks("log-coords-rank", LOG, lambda p: p.resize(p.tables(table_of(p, 7), 1)[0], 0, 1), 1),
    breaks("move-fields", LOG, lambda p: p.drop(table_of(p, 8), 0)),
    breaks("moves-sorted", LOG, lambda p: p.swap(p.root, 8)),
]


@pytest.mark.sample(5, 16)
@pytest.mark.parametrize(("check", "file_type", "change", "number"), BREAKS)
def test_a_broken_rule_has_its_name(
    storage: MemoryStorage, check: str, file_type: FileType, change: Callable[[Patch], object], number: int
) -> None:
    key = key_of(storage, file_type, number)
    repo = frazil.Repository.open(storage)  # a file `repo` that cannot be read would not open
    storage.put(key, patched(storage.get(key), file_type, change))
    keys = {each.key for each in repo.upkeep.verify().findings if each.check == check}
    assert keys
    assert key in keys or check in OTHER_KEYS


#: Rules of one node, whose damage leaves all values as they are.
OF_ONE_NODE = {"extents-rank", "array-shape-v2", "log-coords-rank"}


@pytest.mark.parametrize(
    ("check", "file_type", "change", "number"), [each for each in BREAKS if each.id in OF_ONE_NODE]
)
def test_one_wrong_node_leaves_all_values(
    storage: MemoryStorage, check: str, file_type: FileType, change: Callable[[Patch], object], number: int
) -> None:
    def values() -> dict[str, Any]:
        session = frazil.Repository.open(storage).readonly_session("main")
        members = zarr.open_group(session.store, mode="r").members(max_depth=None)
        return {
            name: frazil.read(session, name).tolist()
            for name, each in members
            if isinstance(each, zarr.Array)
        }

    expected = values()
    key = key_of(storage, file_type, number)
    storage.put(key, patched(storage.get(key), file_type, change))
    assert values() == expected
    repo = frazil.Repository.open(storage)
    assert repo.diff(from_snapshot_id=tip(storage, 2), to_snapshot_id=tip(storage)).updated_chunks
    with repo.transaction("main", message="one node") as store:
        zarr.create_group(store, path="new")
    assert values() == expected
    findings = [each for each in repo.upkeep.verify().findings if each.check == check]
    assert findings
    assert not any(each.affected.branches == ("main",) for each in findings)


def test_a_shape_of_another_rank_than_the_metadata_hides_no_chunks(storage: MemoryStorage) -> None:
    def change(patch: Patch) -> None:
        array = array_of(patch)
        patch.resize(array, 3, 1)
        for ref in patch.tables(array, 2):
            patch.resize(ref, 1, 1)

    key = key_of(storage, SNAPSHOT)
    storage.put(key, patched(storage.get(key), SNAPSHOT, change))
    session = frazil.Repository.open(storage).readonly_session("main")
    with pytest.raises(FormatError, match="must have 1 dimensions"):
        zarr.open_array(session.store, path="split", mode="r")[...]
    assert np.any(zarr.open_array(session.store, path="a/q", mode="r")[...])


#: Changes after which an array lacks a required field.
LACKS: dict[str, Callable[[Patch, int, int], object]] = {
    "id": lambda p, node, array: p.drop_once(node, 0),
    "metadata": lambda p, node, array: p.drop_once(node, 2),
    "data": lambda p, node, array: p.drop_once(node, 4),
    "manifests": lambda p, node, array: p.drop_once(array, 2),
    "id of a manifest": lambda p, node, array: p.drop_once(p.tables(array, 2)[0], 0),
    "extents": lambda p, node, array: p.drop_once(p.tables(array, 2)[0], 1),
}


@pytest.mark.parametrize("change", LACKS.values(), ids=LACKS)
def test_an_array_without_a_required_field_fails_by_itself(
    storage: MemoryStorage, change: Callable[[Patch, int, int], object]
) -> None:
    def drop(patch: Patch) -> None:
        node = next(
            each for each in patch.tables(patch.root, 2) if patch.number("<B", patch.field(each, 3)) == 1
        )
        change(patch, node, patch.follow(patch.field(node, 4)))

    key = key_of(storage, SNAPSHOT)
    nodes = decode_snapshot(storage.get(key), key).nodes
    first, *others = np.array(nodes.paths_list())[nodes.is_array].tolist()
    storage.put(key, patched(storage.get(key), SNAPSHOT, drop))
    repo = frazil.Repository.open(storage)
    session = repo.writable_session("main")
    for path in others:
        assert np.any(zarr.open_array(session.store, path=path, mode="r")[...])
        assert frazil.Array(session, path)[...].any()
    with pytest.raises(FormatError, match="lacks a required field"):
        zarr.open_array(session.store, path=first, mode="r")
    with pytest.raises(FormatError, match="lacks a required field"):
        zarr.create_array(session.store, name=first, shape=(1,), dtype="i1")
    zarr.create_group(session.store, path="new")
    with pytest.raises(FormatError, match="Restore the snapshot"):  # the array would be lost
        session.commit("without the array")
    assert "snapshot-required" in names(storage)


#: Findings whose key is another file than the damaged one.
OTHER_KEYS = {"manifest-size", "manifest-count", "snapshot-summary"}


def rewritten(storage: MemoryStorage, change: Callable[[Any], Any], number: int = 0) -> None:
    """Store a snapshot with another content."""
    key = key_of(storage, SNAPSHOT, number)
    storage.put(key, encode_snapshot(change(decode_snapshot(storage.get(key), key))))


def relogged(storage: MemoryStorage, change: Callable[[Any], Any], number: int = 0) -> None:
    key = key_of(storage, LOG, number)
    storage.put(key, encode_transaction_log(change(decode_transaction_log(storage.get(key), key))))


def reinformed(storage: MemoryStorage, **changes: Any) -> None:
    info = decode_repo_info(storage.get("repo"), "repo")
    storage.put("repo", encode_repo_info(replace(info, **changes)))


def remanifested(storage: MemoryStorage, change: Callable[[Manifest], Any], number: int = 0) -> None:
    key = key_of(storage, MANIFEST, number)
    storage.put(key, encode_manifest(change(decode_manifest(storage.get(key), key))))


FLAGS = {"enabled_flags": frozenset({3, 4}), "disabled_flags": frozenset({7, 9})}


def unsorted_flags(slot: int) -> Callable[[MemoryStorage], None]:
    def change(storage: MemoryStorage) -> None:
        reinformed(storage, **FLAGS)
        storage.put("repo", patched(storage.get("repo"), REPO, lambda patch: patch.swap(patch.root, slot, 2)))

    return change


def without_logs_of_expired_versions(storage: MemoryStorage) -> None:
    """Expire versions like icechunk 2.0, which makes the root the parent, and lists no logs."""
    repo = frazil.Repository.open(storage)
    for name in repo.list_tags():
        repo.delete_tag(name)
    repo.delete_branch("dev")
    repo.expire_snapshots(older_than=next(repo.ancestry(branch="main")).written_at)
    info = decode_repo_info(storage.get("repo"), "repo")
    entries = info.table.entries(np.arange(len(info.table)))
    table = SnapshotTable.of([replace(each, pruned_ancestor_tx_logs=()) for each in entries])
    reinformed(storage, snapshots=table)
    checks = {each.check: each for each in repo.upkeep.verify().findings}
    assert "log-nodes" not in checks
    assert not frazil.Repository.upkeep.repair(storage).steps


def lost_branch(storage: MemoryStorage) -> None:
    info = decode_repo_info(storage.get("repo"), "repo")
    branches = {**info.branches, "dev": info.snapshots.id_of(0), "new": info.snapshots.id_of(0)}
    reinformed(storage, branches=branches)


def same_node_ids(storage: MemoryStorage) -> None:
    def change(snapshot: Any) -> Any:
        nodes = snapshot.nodes
        ids = nodes.ids.copy()
        ids[-1] = ids[-2]
        return replace(snapshot, nodes=replace(nodes, ids=ids))

    rewritten(storage, change)


def outside(storage: MemoryStorage) -> None:
    def change(manifest: Manifest) -> Manifest:
        return Manifest(
            manifest.id,
            {node: replace(table, index=table.index + 9) for node, table in manifest.arrays.items()},
        )

    remanifested(storage, change)


def virtual_refs(storage: MemoryStorage, location: str, **checksum: Any) -> None:
    def change(manifest: Manifest) -> Manifest:
        node, table = next(iter(manifest.arrays.items()))
        virtual = ChunkTable.from_virtual(table.index, [location] * len(table), 0, 16, **checksum)
        return Manifest(manifest.id, {**manifest.arrays, node: virtual})

    remanifested(storage, change)


def etag_and_time(storage: MemoryStorage) -> None:
    virtual_refs(storage, "s3://b/k", modified=7)
    key = key_of(storage, MANIFEST)
    data = patched(storage.get(key), MANIFEST, lambda patch: patch.rename(ref_of(patch), 5, 5))
    # The offset of the location is also read as one of an etag.
    patch = Patch(data, MANIFEST)
    ref = ref_of(patch)
    vtable = ref - patch.number("<i", ref)
    patch.put("<H", vtable + 4 + 2 * 6, patch.number("<H", vtable + 4 + 2 * 5))
    storage.put(key, patch.sealed())


def lost_dictionary(storage: MemoryStorage) -> None:
    virtual_refs(storage, "s3://bucket/key", etag="e")
    key = key_of(storage, MANIFEST)

    def change(patch: Patch) -> None:
        patch.put("<B", patch.field(patch.root, 3), 1)
        virtual = next(
            ref
            for row in range(len(patch.tables(patch.root, 1)))
            for ref in patch.tables(refs_of(patch, row), 1)
            if patch.field(ref, 5)
        )
        patch.rename(virtual, 5, 8)

    storage.put(key, patched(storage.get(key), MANIFEST, change))


def unsorted_arrays(storage: MemoryStorage) -> None:
    # One manifest of two arrays.
    def change(manifest: Manifest) -> Manifest:
        node, table = next(iter(manifest.arrays.items()))
        return Manifest(manifest.id, {node: table, bytes(8): table})

    remanifested(storage, change)
    key = key_of(storage, MANIFEST)
    storage.put(key, patched(storage.get(key), MANIFEST, lambda patch: patch.swap(patch.root, 1)))


def initial_log(storage: MemoryStorage) -> None:
    key = f"transactions/{INITIAL}"
    log = decode_transaction_log(storage.get(key), key)
    storage.put(key, encode_transaction_log(replace(log, new_groups=OTHER_NODE)))


def with_moves(change: Callable[[tuple[Move, ...]], tuple[Move, ...]]) -> Callable[[MemoryStorage], None]:
    return lambda storage: relogged(storage, lambda log: replace(log, moves=change(log.moves)))


def moved_on(targets: dict[str, str]) -> Callable[[MemoryStorage], None]:
    """Nodes have other paths in the snapshot; a move of the log leads to the path of `/a/q`."""

    def change(snapshot: Any) -> Any:
        rows = np.array([snapshot.nodes.find_node(path) for path in targets])
        return replace(snapshot, nodes=snapshot.nodes.renamed(rows, list(targets.values())))

    def follow(moves: tuple[Move, ...]) -> tuple[Move, ...]:
        return tuple(replace(m, target=targets["/a/q"]) if m.target == "/a/q" else m for m in moves)

    def both(storage: MemoryStorage) -> None:
        rewritten(storage, change)
        with_moves(follow)(storage)

    return both


def with_parent(storage: MemoryStorage) -> None:
    key = key_of(storage, SNAPSHOT)
    data = patched(storage.get(key), SNAPSHOT, lambda patch: patch.rename(patch.root, 0, 1))
    patch = Patch(data, SNAPSHOT)
    vtable = patch.root - patch.number("<i", patch.root)
    patch.put("<H", vtable + 4, patch.number("<H", vtable + 6))
    storage.put(key, patch.sealed())


STORED: dict[str, Callable[[MemoryStorage], object]] = {
    "file-header": with_header(0, 0),
    "file-spec-version": with_header(36, 9),
    "file-type": with_header(37, 9),
    "file-compression": with_header(38, 9),
    "file-payload": lambda s: s.put(f"snapshots/{tip(s)}", bytes(s.get(f"snapshots/{tip(s)}"))[:-1]),
    "missing": lambda s: s.delete([key_of(s, MANIFEST)]),
    "unreadable": lambda s: s.put(
        key_of(s, MANIFEST), patched(s.get(key_of(s, MANIFEST)), MANIFEST, lambda p: p.put("<I", 0, 2**31))
    ),
    "enabled-flags-sorted": unsorted_flags(10),
    "disabled-flags-sorted": unsorted_flags(11),
    "flags-exclusive": lambda s: reinformed(s, **FLAGS | {"enabled_flags": frozenset({7})}),
    "ops-refs": lost_branch,
    "log-expired": without_logs_of_expired_versions,
    "snapshot-parent-v2": with_parent,
    "node-ids": same_node_ids,
    "manifest-extents": outside,
    "ref-location": lambda s: virtual_refs(s, "no-url", etag="e"),
    "ref-checksum": etag_and_time,
    "location-dictionary": lost_dictionary,
    "arrays-sorted": unsorted_arrays,
    "log-initial": initial_log,
    "log-nodes-once": lambda s: relogged(s, lambda log: replace(log, updated_arrays=log.new_arrays), 2),
    "log-nodes": lambda s: relogged(s, lambda log: replace(log, new_groups=OTHER_NODE)),
    "log-chunks": lambda s: relogged(s, lambda log: replace(log, updated_chunks={}), 1),
    "move-identity": with_moves(lambda moves: tuple(replace(m, source=m.target) for m in moves)),
    "moves-collapsed": with_moves(lambda moves: (*moves, replace(moves[0], target="/other"))),
    "moves-paths": with_moves(lambda moves: tuple(replace(m, source="/other") for m in moves)),
    "moves-complete": with_moves(lambda moves: moves[:1]),
    "moves-parent": moved_on({"/a/q": "/z/q"}),
    "moves-overwrite": moved_on({"/a/c": "/a/d", "/a/q": "/a/c"}),
    "file-name": lambda s: s.put("snapshots/README.md", b"text"),
    "unreferenced": lambda s: s.put("manifests/" + "0" * 20, b"text"),
}


@pytest.mark.sample(4, 18)
@pytest.mark.parametrize("check", STORED)
def test_a_broken_file_has_the_name_of_its_rule(storage: MemoryStorage, check: str) -> None:
    assert check not in names(storage)
    repo = frazil.Repository.open(storage)
    STORED[check](storage)
    assert check in {each.check for each in repo.upkeep.verify().findings}


# Spec version 1, and checks that other tests break


def v1_shape(storage: MemoryStorage) -> None:
    key = min(each.key for each in storage.list("snapshots") if INITIAL not in each.key)

    def change(patch: Patch) -> None:
        # The field with the names of dimensions becomes shape_v2, of which the vtable has no slot. The first
        # vtable with that many slots is that of the root.
        array = array_of(patch)
        vtable = patch.root - patch.number("<i", patch.root)
        assert patch.number("<H", vtable) >= 12
        patch.put("<i", array, array - vtable)

    storage.put(key, patched(storage.get(key), SNAPSHOT, change))


def v1_parent(storage: MemoryStorage) -> None:
    refs = json.loads(bytes(storage.get("refs/tag.t1/ref.json")))
    key = f"snapshots/{refs['snapshot']}"
    storage.put(key, patched(storage.get(key), SNAPSHOT, lambda patch: patch.drop(patch.root, 1)))


VERSION_1: dict[str, Callable[[MemoryStorage], object]] = {
    "ref-file": lambda s: s.put("refs/tag.t1/ref.json", b"no json"),
    "main-branch": lambda s: s.delete(["refs/branch.main/ref.json"]),
    "config-file": lambda s: s.put("config.yaml", b"- a list"),
    "array-shape-v1": v1_shape,
    "snapshot-parent-v1": v1_parent,
}


@pytest.mark.parametrize("check", VERSION_1)
def test_a_broken_rule_of_spec_version_1(check: str) -> None:
    storage = copy_of(template(1))
    repo = frazil.Repository.open(storage)
    assert check not in {each.check for each in repo.upkeep.verify().findings}
    VERSION_1[check](storage)
    assert check in {each.check for each in repo.upkeep.verify().findings}


#: Checks that are broken in other files of tests.
ELSEWHERE = {
    *("exchanged", "checksum", "undecodable", "codec-missing", "statistics", "unavailable", "short"),
    "repo-latest",
    *(f"virtual-{each}" for each in ("modified", "unauthorized", "unreadable", "unavailable", "unchecked")),
}


def test_each_check_is_broken_by_a_test() -> None:
    broken = {param.id for param in BREAKS} | STORED.keys() | VERSION_1.keys() | ELSEWHERE
    assert {each.name for each in checks} == broken
