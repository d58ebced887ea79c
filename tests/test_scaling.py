"""Ten times the rows take ten times the work, and none of it is a Python loop over rows."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.counting import assert_no_step_for_each_row, assert_time_grows_with_the_rows, python_steps
from tests.zarr_store.documents import array_document

import frazil
from frazil.changes.change_set import Moves, MoveTree, moved_nodes
from frazil.changes.diff import compare_versions, compose_logs, differing
from frazil.changes.zarr_metadata import shifted
from frazil.format import manifest as manifest_module
from frazil.format.ids import manifest_key
from frazil.format.manifest import ChunkTable, LocationCompression, Manifest, decode_manifest, encode_manifest
from frazil.format.nodes import ArrayData, ManifestRef, Node, NodeTable
from frazil.format.repo_info import (
    OpsEntry,
    OpsLog,
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
    new_repo_info,
)
from frazil.format.snapshot import decode_snapshot, encode_snapshot, initial_snapshot
from frazil.format.transaction_log import (
    TransactionLog,
    decode_transaction_log,
    empty_log,
    encode_transaction_log,
)
from frazil.maintenance.collection import without_expired
from frazil.maintenance.expiration import expire
from frazil.repository.catalog.assets import MANIFEST_CHUNK_FILES, MANIFEST_CHUNK_RANGES, FileKind
from frazil.repository.settings.manifest_config import DEFAULT_SPLITTING
from frazil.storage.memory import MemoryStorage
from frazil.survey.columns import RangeSums, id_digests, no_ids
from frazil.survey.survey import read_files

ID: Final = b"manifest-id!"
NODE: Final = b"node-001"
PREFIX: Final = "s3://bucket/some/prefix/"
WIDE: Final = 50  # chunks along the second dimension


class Case(NamedTuple):
    name: str
    make: Callable[[int], Any]
    call: Callable[[Any], object]
    #: Rows of the shorter run whose time is taken: so many that what is done once does not matter, and so
    #: few that ten times as many still fit into a cache.
    few: int = 4_000
    #: Rows of the shorter run whose steps are counted. Work on groups of 1,000 rows takes steps for each.
    counted: int = 2_000


def grid(count: int, first: int = 0) -> NDArray[np.int64]:
    return np.stack(np.divmod(np.arange(first, first + count), WIDE), axis=1)


def random_ids(count: int, size: int = 12) -> NDArray[np.uint8]:
    return np.random.default_rng(3).integers(0, 256, (count, size), np.uint8)


def id_list(count: int, size: int = 12) -> list[bytes]:
    whole = random_ids(count, size).tobytes()
    return [whole[at : at + size] for at in range(0, len(whole), size)]


# ---------------------------------------------------------------------------------- references


def locations(count: int, files: int) -> list[str]:
    return [f"{PREFIX}file-{i % files:07d}.nc" for i in range(count)]


def virtual(count: int, files: int | None = 10, **checksum: Any) -> ChunkTable:
    offset = np.arange(count) * 1000
    return ChunkTable.from_virtual(grid(count), locations(count, files or count), offset, 1000, **checksum)


def distinct(count: int) -> ChunkTable:
    return virtual(count, None)


def native(count: int) -> ChunkTable:
    return ChunkTable.from_native(grid(count), random_ids(count), np.arange(count), 0, 1000)


def inline(count: int) -> ChunkTable:
    return ChunkTable.from_inline(grid(count), [b"%d" % i for i in range(count)])


def mixed(count: int) -> ChunkTable:
    """Every kind, in turns, with every kind of checksum."""
    makers: tuple[Callable[[int], ChunkTable], ...] = (
        *(virtual, distinct, native, inline),
        *(partial(virtual, etag="e"), partial(virtual, modified=5)),
    )
    rows = np.arange(count)
    parts = [make(count).select_chunks(rows % len(makers) == number) for number, make in enumerate(makers)]
    return ChunkTable.merge_tables(parts)


TABLES: Final = {"virtual": virtual, "distinct": distinct, "native": native, "inline": inline, "mixed": mixed}


def compressed(table: ChunkTable) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_module, "_dictionary_helps", lambda *_: True)
        return encode_manifest(Manifest(ID, {NODE: table}), locations=LocationCompression())


def open_manifest(file: bytes) -> ChunkTable:
    return decode_manifest(file, "m").arrays[NODE]


def fresh(table: ChunkTable) -> ChunkTable:
    """The same rows, without the search keys that a table keeps."""
    return table.select_chunks(slice(None))


def halves(count: int) -> list[ChunkTable]:
    """Two tables of every kind that have half of their rows in common, not in order."""
    rows = np.arange(count)
    table = mixed(count)
    return [table.select_chunks(rows[: count * 3 // 4]), table.select_chunks(rows[count // 4 :])]


def shuffled(count: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    return np.random.default_rng(1).permutation(grid(count)), random_ids(count)


def many_tables(count: int) -> list[ChunkTable]:
    table, parts = native(count), count // 100
    return [table.select_chunks(slice(part, None, parts)) for part in range(parts)]


def find_some(table: ChunkTable) -> None:
    table = fresh(table)
    assert min([table.find_chunk((row, 7)) for row in range(4)]) == 7


def many_arrays(count: int) -> Manifest:
    table = ChunkTable.from_inline([[0]], [b"x"])
    return Manifest(ID, dict.fromkeys(id_list(count, 8), table))


def open_arrays(file: bytes) -> None:
    assert len(decode_manifest(file, "m").arrays)


REFERENCES: Final = [
    Case("decode-manifest-of-arrays", lambda n: encode_manifest(many_arrays(n)), open_arrays),
    Case("compress-locations", distinct, compressed),
    Case("decompress-locations", lambda n: compressed(distinct(n)), open_manifest),
    Case(
        "sort",
        shuffled,
        lambda given: ChunkTable.from_native(given[0], given[1], np.arange(len(given[0])), 0, 1),
    ),
    Case("find-some", native, find_some),
    Case("duplicates", halves, ChunkTable.duplicates),
    Case(
        "find-many",
        lambda n: (native(n), grid(n)[::-1].astype(np.uint32)),
        lambda given: fresh(given[0]).find_chunks(given[1]),
    ),
    Case("prune", lambda n: mixed(n).select_chunks(slice(0, None, 3)), ChunkTable.prune),
]

# ------------------------------------------------------------------------------------- changes


def array_of(count: int, manifests: int = 0) -> ArrayData:
    """An array whose ``count`` chunks are in so many manifests."""
    high = -(-count // WIDE)
    cuts = np.linspace(0, high, manifests + 1).astype(np.uint32).tolist()
    boxes = [np.array([[a, b], [0, WIDE]], np.uint32) for a, b in pairwise(cuts)]
    refs = tuple(ManifestRef(id_, box) for id_, box in zip(id_list(manifests), boxes, strict=True))
    return ArrayData((high, WIDE), (high, WIDE), None, refs)


def log_of_chunks(count: int) -> TransactionLog:
    chunks = {node: grid(count // 4).astype(np.uint32) for node in id_list(4, 8)}
    return dataclasses.replace(empty_log(ID), updated_chunks=chunks)


def log_of_nodes(count: int) -> TransactionLog:
    parts = np.array_split(random_ids(count, 8), 6)
    names = ("new_groups", "new_arrays", "deleted_groups", "deleted_arrays", "updated_arrays")
    ids: dict[str, Any] = dict(zip(names, parts, strict=False))
    return dataclasses.replace(empty_log(ID), **ids)


def log_of_arrays(count: int) -> TransactionLog:
    coords = np.zeros((1, 2), np.uint32)
    return dataclasses.replace(empty_log(ID), updated_chunks=dict.fromkeys(id_list(count, 8), coords))


def log_out_of_order(count: int) -> TransactionLog:
    coords = grid(2).astype(np.uint32)[::-1]
    return dataclasses.replace(empty_log(ID), updated_chunks=dict.fromkeys(id_list(count // 2, 8), coords))


def read_log(data: bytes) -> TransactionLog:
    return decode_transaction_log(data, "t")


def named(log: TransactionLog) -> NodeTable:
    ids = {*log.updated_chunks, *(id_.tobytes() for id_ in log.new_arrays)}
    return NodeTable.from_nodes([Node(id_, f"/{n:07d}", b"{}", None) for n, id_ in enumerate(sorted(ids))])


def composed(make: Callable[[int], TransactionLog], count: int) -> tuple[Any, ...]:
    """Two logs, with the nodes before and after."""
    log = make(count)
    return [empty_log(ID), log], NodeTable.from_nodes([]), named(log)


def group_of(count: int) -> NodeTable:
    """A group ``/a`` with all others below it."""
    ids = id_list(count + 3, 8)
    paths = ["/", "/a", "/b", *(f"/a/{n:07d}" for n in range(count))]
    return NodeTable.from_nodes([Node(id_, path, b"{}", None) for id_, path in zip(ids, paths, strict=True)])


def no_chunks(path: str) -> ChunkTable:
    return native(0)


def moved_group(count: int) -> tuple[NodeTable, Moves]:
    nodes, moves = group_of(count), Moves()
    MoveTree(nodes, moves).move("/a", "/b/a")
    return nodes, moves


def compare_moved(given: tuple[NodeTable, Moves]) -> object:
    return compare_versions(given[0], moved_nodes(*given), no_chunks, no_chunks)


def grid_node(count: int) -> Node:
    array = array_of(count)
    grid = {"name": "regular", "configuration": {"chunk_shape": [1, 1]}}
    document = json.dumps({"shape": array.shape, "chunk_grid": grid}).encode()
    return Node(bytes(8), "/a", document, array)


LOGS: Final = {
    "chunks": log_of_chunks,
    "nodes": log_of_nodes,
    "arrays": log_of_arrays,
    "arrays-out-of-order": log_out_of_order,
}
CHANGES: Final = [
    *[
        Case(f"{verb}-log-of-{name}", prepare, call)
        for name, make in LOGS.items()
        for verb, prepare, call in (
            ("encode", make, encode_transaction_log),
            ("decode", lambda n, make=make: encode_transaction_log(make(n)), read_log),
        )
    ],
    Case("compose-chunks", partial(composed, log_of_chunks), lambda given: compose_logs(*given)),
    Case("compose-nodes", partial(composed, log_of_nodes), lambda given: compose_logs(*given)),
    Case("compose-arrays", partial(composed, log_of_arrays), lambda given: compose_logs(*given), few=1_000),
    Case("tables-of-moves", moved_group, lambda given: moved_nodes(*given)),
    Case("compare-nodes", moved_group, compare_moved),
    Case("compare-chunks", lambda n: halves(n), lambda given: differing(*given)),
    Case("shift", lambda n: (grid_node(n), native(n), (1, -1)), lambda given: shifted(*given)[0]),
    Case(
        "compose-two-logs",
        partial(composed, log_of_chunks),
        lambda given: compose_logs(2 * given[0], *given[1:]),
    ),
]

# ----------------------------------------------------------------------- nodes, snapshots, ops log


def nodes(count: int) -> NodeTable:
    document = b'{"zarr_format":3,"node_type":"array","chunk_grid":{"configuration":{"chunk_shape":[4,2]}}}'
    refs = [(ManifestRef(id_, np.array([[0, 3], [0, 1]], np.uint32)),) for id_ in id_list(count)]
    return NodeTable.from_nodes(
        [
            Node(
                b"%08d" % n,
                f"/group{n // 50:06d}/array{n:02d}",
                document,
                ArrayData((9, 2), (3, 1), ("t", "x"), ref),
            )
            for n, ref in enumerate(refs)
        ]
    )


def snapshot_file(count: int) -> bytes:
    return encode_snapshot(dataclasses.replace(initial_snapshot(5), nodes=nodes(count)))


def open_snapshot(data: bytes) -> NodeTable:
    return decode_snapshot(data, "x").nodes


def change_one_node(data: bytes) -> bytes:
    """Read the snapshot, change a node, write it."""
    snapshot = decode_snapshot(data, "x")
    row = snapshot.nodes.find_node("/group000000/array03")
    node = dataclasses.replace(snapshot.nodes.node(row), user_data=b"{}")
    table = snapshot.nodes.edit(np.array([row]), NodeTable.from_nodes([node]))
    return encode_snapshot(dataclasses.replace(snapshot, nodes=table))


def find_all(data: bytes) -> None:
    table = open_snapshot(data)
    assert min(map(table.find_node, table.paths_list())) == 0
    groups = map("/group{:06d}".format, range(-(-len(table) // 50)))
    assert sum(map(len, map(table.children, groups))) == len(table)


def repo_info(count: int) -> RepoInfo:
    history = id_list(count)
    entries = [
        SnapshotEntry(id_, history[n - 1] if n else None, n, f"commit {n}", {"n": n} if n % 5 else {})
        for n, id_ in enumerate(history)
    ]
    log = [
        OpsEntry(list(UpdateKind)[n % 16], count - n, f"repo.{n}", "main", id_, id_, (1, 2), (1, True, True))
        for n, id_ in enumerate(history)
    ]
    return dataclasses.replace(
        new_repo_info(0),
        branches={"main": history[-1]},
        snapshots=SnapshotTable.of(entries),
        ops=OpsLog.of(log),
    )


def repo_file(count: int) -> bytes:
    return encode_repo_info(repo_info(count))


def open_repo_info(data: bytes) -> RepoInfo:
    return decode_repo_info(data, "repo")


def add_a_snapshot(data: bytes, id_: bytes = b"\7" * 12) -> bytes:
    """Read the repo info, add a snapshot, write it."""
    info = open_repo_info(data)
    entry = SnapshotEntry(id_, info.branches["main"], 10**9, "one more", {"by": "me"})
    info = dataclasses.replace(info, snapshots=info.snapshots.added(entry), branches={"main": entry.id})
    update = OpsEntry(UpdateKind.NEW_COMMIT, 10**9 + id_[0], name="main", new_snapshot=entry.id)
    return encode_repo_info(info.recorded(update, backup="repo.x", keep=10**6))


def grown_repo_file(count: int) -> bytes:
    """The file after a commit. A long history is cut into groups by the first one."""
    return add_a_snapshot(repo_file(count), b"\6" * 12)


def walk(data: bytes) -> None:
    info = open_repo_info(data)
    assert len(info.snapshots.chain(info.snapshots.find_snapshot(info.branches["main"]))) == len(
        info.snapshots
    )


METADATA: Final = [
    Case("open-snapshot", snapshot_file, open_snapshot),
    Case(
        "encode-snapshot", lambda n: dataclasses.replace(initial_snapshot(5), nodes=nodes(n)), encode_snapshot
    ),
    Case("change-one-node", snapshot_file, change_one_node),
    Case("open-repo-info", repo_file, open_repo_info),
    Case("encode-repo-info", repo_info, encode_repo_info),
    Case("add-a-snapshot", grown_repo_file, add_a_snapshot, counted=300),
    Case("walk-the-history", repo_file, walk),
]


def tagged(count: int) -> RepoInfo:
    """With tags far from each other, which keep old snapshots."""
    info = repo_info(count)
    chain = info.snapshots.chain(info.snapshots.find_snapshot(info.branches["main"]))
    tags = {f"t{place}": info.snapshots.id_of(int(chain[place * count // 10])) for place in range(1, 9)}
    return dataclasses.replace(info, tags=tags)


def expire_most(info: RepoInfo) -> None:
    limit = int(info.snapshots.flushed_at().max())
    assert (
        len(expire(info, limit, deletes_branches=False, deletes_tags=False, held=no_ids()).report.removed)
        > len(info.snapshots) // 2
    )


def drop_the_dead(info: RepoInfo) -> None:
    """All but a few versions are on no branch."""
    chain = info.snapshots.chain(info.snapshots.find_snapshot(info.branches["main"]))
    alone = dataclasses.replace(info, branches={"main": info.snapshots.id_of(int(chain[-2]))}, tags={})
    assert len(without_expired(alone, info.snapshots.ids(), no_ids()).snapshots) == 2


def read(storage: MemoryStorage, kind: FileKind[Any]) -> Any:
    ((content,),) = read_files(storage, kind, [ID], 1)
    return content


def stored(count: int) -> MemoryStorage:
    """A manifest under its name."""
    storage = MemoryStorage()
    manifest = encode_manifest(Manifest(ID, {NODE: mixed(count)}))
    storage.put(manifest_key(ID), manifest)
    return storage


def digests_of_files(storage: MemoryStorage) -> object:
    return id_digests(read(storage, MANIFEST_CHUNK_FILES).chunk_ids)


def digests_of_ranges(storage: MemoryStorage) -> object:
    return RangeSums.of([read(storage, MANIFEST_CHUNK_RANGES)])


UPKEEP: Final = [
    Case("expire", tagged, expire_most),
    Case("drop-the-dead", repo_info, drop_the_dead),
    Case("chunk-files-of-a-manifest", stored, digests_of_files),
    Case("chunk-bytes-of-a-manifest", stored, digests_of_ranges),
]
#: They take a step for each node, array or table: only their time counts.
TIMED: Final = [
    Case("find-all-nodes", snapshot_file, find_all),
    Case("encode-manifest-of-arrays", many_arrays, encode_manifest, 2_000),
    Case("merge-many", many_tables, ChunkTable.merge_tables),
]

# ----------------------------------------------------------------------------------- end to end


def array_repository(count: int) -> frazil.Repository:
    """A repository in memory with an array of ``count`` chunks, none of them set."""
    # One manifest, because the number of manifests grows with the number of references.
    config = frazil.RepositoryConfig(manifest=frazil.ManifestConfig(splitting=DEFAULT_SPLITTING))
    config.set_virtual_chunk_container(
        frazil.VirtualChunkContainer("s3://bucket/", frazil.s3_store(region="us-east-1"))
    )
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    session = repo.writable_session("main")
    session.workspace.set_node("/a", array_document(2, [-(-count // WIDE), WIDE]))
    session.commit("an array")
    return repo


def committed(make: Callable[[int], ChunkTable], count: int) -> frazil.Repository:
    repo = array_repository(count)
    session = repo.writable_session("main")
    session.workspace.set_refs("/a", make(count))
    session.commit("all chunks")
    return repo


def commit_refs(table: ChunkTable) -> None:
    committed(lambda _: table, len(table))


def read_refs(repo: frazil.Repository) -> None:
    """As another process would, that has nothing in memory yet."""
    assert len(pickle.loads(pickle.dumps(repo)).readonly_session("main").chunk_table("/a"))


def overwrite_half(given: tuple[frazil.Repository, ChunkTable]) -> None:
    """A commit that has to read a manifest, merge it with references of its own, and write it again."""
    repo, table = given
    session = repo.writable_session("main")
    session.workspace.set_refs("/a", table.select_chunks(slice(0, len(table) // 2)))
    assert len(session.status().updated_chunks) == 1
    session.commit("half of them again")


def merge_forks(tables: list[ChunkTable]) -> None:
    session = array_repository(sum(map(len, tables))).writable_session("main")
    forks = [session.fork() for _ in tables]
    for fork, table in zip(forks, tables, strict=True):
        fork.workspace.set_refs("/a", table)
    session.merge(*map(pickle.loads, map(pickle.dumps, forks)))


def rebase_half(given: tuple[frazil.Repository, ChunkTable]) -> None:
    """Two sessions, of which the later wrote half of the chunks of the earlier, and some more."""
    repo, table = given
    early, late = repo.writable_session("main"), repo.writable_session("main")
    early.workspace.set_refs("/a", table.select_chunks(slice(0, 2 * len(table) // 3)))
    late.workspace.set_refs("/a", table.select_chunks(slice(len(table) // 3, None)))
    early.commit("early")
    late.commit("late", rebase_with=frazil.BasicConflictSolver())


def merge_half(given: tuple[frazil.Repository, ChunkTable]) -> None:
    repo, table = given
    start = repo.lookup_branch("main")
    repo.create_branch(f"b-{start}", start)
    for branch, part in (
        ("main", slice(0, 2 * len(table) // 3)),
        (f"b-{start}", slice(len(table) // 3, None)),
    ):
        session = repo.writable_session(branch)
        session.workspace.set_refs("/a", table.select_chunks(part))
        session.commit("a part")
    merged = repo.merge(f"b-{start}", solver=frazil.BasicConflictSolver())
    repo.revert(merged, solver=frazil.BasicConflictSolver())


def paths_and_offsets(make: Callable[[int], list[str]], count: int) -> tuple[list[str], NDArray[Any]]:
    return make(count), np.arange(count)


def set_grid(given: tuple[list[str], NDArray[Any]]) -> None:
    paths, offsets = given
    store = array_repository(len(paths)).writable_session("main").store
    shape = -(-len(paths) // WIDE), WIDE
    assert store.set_virtual_refs_arr("a", shape, paths, offsets, offsets + 1) is None


def virtual_locations(repo: frazil.Repository) -> None:
    assert repo.readonly_session("main").all_virtual_chunk_locations()


def batches(repo: frazil.Repository) -> None:
    async def count() -> int:
        store = repo.readonly_session("main").store
        return sum([len(batch[0]) async for batch in store.array_chunk_iterator("a", 10**9)])

    assert asyncio.run(count())


END_TO_END: Final = [
    *[
        Case(f"set-and-commit-{name}", make, commit_refs)
        for name, make in (("virtual", virtual), ("distinct", distinct), ("mixed", mixed))
    ],
    *[
        Case(f"set-virtual-refs-arr-{name}", partial(paths_and_offsets, make), set_grid)
        for name, make in (
            ("few-files", lambda n: locations(n, 10)),
            ("distinct-files", lambda n: locations(n, n)),
            ("holes", lambda n: [path if n % 3 else "" for n, path in enumerate(locations(n, n))]),
        )
    ],
    *[
        Case(f"{verb}-{name}", partial(committed, make), call)
        for name, make in TABLES.items()
        for verb, call in (("read-references", read_refs), ("chunk-iterator", batches))
    ],
    *[
        Case(f"all-virtual-locations-{name}", partial(committed, make), virtual_locations)
        for name, make in (("virtual", virtual), ("distinct", distinct), ("mixed", mixed))
    ],
    Case("overwrite-half", lambda n: (committed(mixed, n), distinct(n)), overwrite_half),
    Case("rebase-half", lambda n: (committed(mixed, n), distinct(n)), rebase_half),
    Case("merge-half", lambda n: (committed(mixed, n), distinct(n)), merge_half),
    Case("merge-forks", lambda n: [mixed(n).select_chunks(slice(k, None, 4)) for k in range(4)], merge_forks),
]

CASES: Final = [
    *REFERENCES,
    *CHANGES,
    *METADATA,
    *UPKEEP,
    *[case._replace(few=20_000) for case in END_TO_END],
]


@pytest.mark.sample(14, 14)
@pytest.mark.deep
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_python_step_for_each_row(case: Case) -> None:
    assert_no_step_for_each_row(case.make, case.call, few=case.counted)


@pytest.mark.sample(4, 4)
@pytest.mark.deep
@pytest.mark.parametrize("case", [*CASES, *TIMED], ids=lambda case: case.name)
def test_time_grows_with_the_rows(case: Case) -> None:
    assert_time_grows_with_the_rows(case.make, case.call, case.few)


# ------------------------------------------------------------------------------------- the helper


def loop(rows: range) -> None:
    for _ in rows:
        pass


SLOW: Final[dict[str, Callable[[range], object]]] = {
    "for": loop,
    "comprehension": lambda rows: [row for row in rows],  # noqa: C416
    "generator": lambda rows: sum(row for row in rows),
    "lambda": lambda rows: list(map(lambda row: row, rows)),  # noqa: C417
}


@pytest.mark.parametrize("call", SLOW.values(), ids=SLOW.keys())
def test_every_loop_is_seen(call: Callable[[range], object]) -> None:
    with pytest.raises(AssertionError, match="2000 rows"):
        assert_no_step_for_each_row(range, call)
    # Objects of earlier tests may be deleted at any time, which takes steps too.
    steps = [python_steps(lambda: call(range(500))) for _ in range(5)]
    assert min(steps) > 500
    assert len({*steps}) < len(steps)  # counts are exact
