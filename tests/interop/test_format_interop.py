"""The published icechunk opens repositories whose ``repo`` and snapshot files we wrote, and finds all."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fixtures import fixture_folders, fixture_path

from frazil.format.ids import INITIAL_SNAPSHOT_ID, backup_name, id_from_text, id_to_text
from frazil.format.repo_info import (
    OpsEntry,
    RepoInfo,
    SnapshotEntry,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
    new_repo_info,
)
from frazil.format.snapshot import (
    ArrayData,
    Node,
    NodeTable,
    decode_snapshot,
    encode_snapshot,
    initial_snapshot,
)

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore"),  # what the reference and zarr warn of while they read is theirs
]

REPOSITORIES = fixture_folders("v2-*/*")


def name(folder: Path) -> str:
    return folder.name


def opened(path: Path) -> Any:
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))


def described(path: Path) -> dict[str, Any]:
    """All that the reference can say about a repository."""
    repo = opened(path)
    branches = {branch: repo.lookup_branch(branch) for branch in repo.list_branches()}
    tags = {tag: repo.lookup_tag(tag) for tag in repo.list_tags()}
    return {
        "branches": branches,
        "tags": tags,
        "ancestry": {id_: ancestry(repo, id_) for id_ in {*branches.values(), *tags.values()}},
        "ops": [(str(op.kind), op.updated_at, op.backup_path) for op in repo.ops_log()],
        "status": str(repo.get_status()),
        "flags": str(repo.feature_flags()),
        "config": sorted(str(repo.config).splitlines()),  # containers come in any order
        "metadata": repo.get_metadata(),
        "content": {id_: content(repo, id_) for id_ in {*branches.values(), *tags.values()}},
    }


def ancestry(repo: Any, snapshot: str) -> list[Any]:
    return [
        (each.id, each.parent_id, each.written_at, each.message, each.metadata)
        for each in repo.ancestry(snapshot_id=snapshot)
    ]


def content(repo: Any, snapshot: str) -> dict[str, Any]:
    group = zarr.open_group(repo.readonly_session(snapshot_id=snapshot).store, mode="r")
    out: dict[str, Any] = {"/": dict(group.attrs)}
    for path, member in group.members(max_depth=None):
        out[path] = str(member.metadata)
        if isinstance(member, zarr.Array):
            try:
                out[path] += repr(np.asarray(member[...]).tolist())
            except Exception as error:  # virtual chunks whose bytes are not here: the same error, then
                out[path] += type(error).__name__
    return out


def rewrite(path: Path) -> None:
    """Every snapshot and the repo info by our own hand."""
    (path / "repo").write_bytes(encode_repo_info(decode_repo_info((path / "repo").read_bytes(), "repo")))
    for file in (path / "snapshots").iterdir():
        file.write_bytes(encode_snapshot(decode_snapshot(file.read_bytes(), file.name)))


@pytest.mark.sample(4)
@pytest.mark.parametrize("folder", REPOSITORIES, ids=name)
def test_the_reference_finds_the_same(folder: Path, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    shutil.copytree(folder / "repo", theirs)
    shutil.copytree(folder / "repo", ours)
    rewrite(ours)
    assert (ours / "repo").read_bytes() != (theirs / "repo").read_bytes()
    with zarr.config.set({"array.rectilinear_chunks": True}):
        before, after = described(theirs), described(ours)
    if folder.name == "component-order-handpatched":
        # The reference does not find all nodes of its own file, but of ours, which is in byte order.
        lost, current = before.pop("content"), after.pop("content")
        assert all(len(current[id_]) >= len(lost[id_]) for id_ in lost)
        assert max(map(len, current.values())) == 14
    assert after == before


@pytest.mark.parametrize("folder", REPOSITORIES, ids=name)
def test_the_reference_inspects_the_same(folder: Path, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    shutil.copytree(folder / "repo", theirs)
    shutil.copytree(folder / "repo", ours)
    rewrite(ours)
    before, after = opened(theirs), opened(ours)
    assert inspected(after.inspect_repo_info()) == inspected(before.inspect_repo_info())
    for file in (theirs / "snapshots").iterdir():
        if file.read_bytes()[36] == 2 and folder.name != "component-order-handpatched":
            assert inspected(after.inspect_snapshot(file.name)) == inspected(
                before.inspect_snapshot(file.name)
            )


def inspected(value: Any) -> Any:
    content = json.loads(value) if isinstance(value, str) else value
    content.pop("header", None)  # it names the writer
    return content


def test_the_reference_goes_on_where_we_wrote(tmp_path: Path) -> None:
    path = tmp_path / "repo"
    shutil.copytree(fixture_path("v2-2.3.0", "basic", "repo"), path)
    rewrite(path)
    repo = opened(path)
    session = repo.writable_session("main")
    array = zarr.open_group(session.store, mode="a").create_array("more", shape=(6,), chunks=(4,), dtype="i4")
    array[:] = np.arange(6)
    id_ = session.commit("on top", {"by": "reference"})
    info = decode_repo_info((path / "repo").read_bytes(), "repo")
    assert id_to_text(info.branches["main"]) == id_
    snapshot = decode_snapshot((path / "snapshots" / id_).read_bytes(), id_)
    node = snapshot.nodes.node(snapshot.nodes.find_node("/more"))
    assert node.array is not None
    assert (node.array.shape, node.array.num_chunks) == ((6,), (2,))
    rewrite(path)
    again = zarr.open_group(opened(path).readonly_session("main").store, mode="r")
    assert again["more"][:].tolist() == list(range(6))


def test_the_reference_opens_what_we_create(tmp_path: Path) -> None:
    """A repository from nothing, then a commit of ours with a group and an array, then one of theirs."""
    log = fixture_path("v2-2.3.0", "basic", "repo", "transactions", "1CECHNKREP0F1RSTCMT0").read_bytes()
    path = tmp_path / "repo"
    for folder in ("snapshots", "transactions", "overwritten"):
        (path / folder).mkdir(parents=True)
    now = time.time_ns() // 1000 - 10_000_000
    initial = id_to_text(INITIAL_SNAPSHOT_ID)
    (path / "snapshots" / initial).write_bytes(encode_snapshot(initial_snapshot(now)))
    (path / "transactions" / initial).write_bytes(log)
    info = new_repo_info(now, metadata={"team": "sea ice", "list": [1, 2.5, None]})
    (path / "repo").write_bytes(encode_repo_info(info))
    repo = opened(path)
    assert [snapshot.message for snapshot in repo.ancestry(branch="main")] == ["Repository initialized"]
    assert repo.get_metadata() == {"team": "sea ice", "list": [1, 2.5, None]}

    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [9, 2],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 7.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "dimension_names": ["time", None],
    }
    group = b'{"zarr_format":3,"node_type":"group","attributes":{"title":"ours"}}'
    nodes = NodeTable.from_nodes(
        [
            Node(b"\1" * 8, "/", group, None),
            Node(b"\2" * 8, "/é", group, None),
            Node(b"\3" * 8, "/é/t", json.dumps(document).encode(), ArrayData((9, 2), (3, 1), ("time", None))),
        ]
    )
    id_ = id_from_text("0T77ASKT3EJQ8KK1ZG10")
    snapshot = dataclasses.replace(
        initial_snapshot(now + 10), id=id_, message="ours", metadata={"b": 1, "a": ["x"]}, nodes=nodes
    )
    (path / "snapshots" / id_to_text(id_)).write_bytes(encode_snapshot(snapshot))
    backup = backup_name(now // 1000, b"\5" * 12)
    shutil.copyfile(path / "repo", path / "overwritten" / backup)
    entry = SnapshotEntry(id_, INITIAL_SNAPSHOT_ID, now + 10, "ours", snapshot.metadata)
    info = dataclasses.replace(info, branches={"main": id_}, snapshots=info.snapshots.added(entry))
    update = OpsEntry(UpdateKind.NEW_COMMIT, now + 20, name="main", new_snapshot=id_)
    info = info.recorded(update, backup=backup, keep=1)
    assert (len(info.ops), info.repo_before_updates) == (1, backup)
    (path / "repo").write_bytes(encode_repo_info(info))

    repo = opened(path)
    newest = next(iter(repo.ancestry(branch="main")))
    assert (newest.message, newest.metadata) == (
        "ours",
        {"a": ["x"], "b": 1},
    )
    assert [str(op.kind).split(".")[-1].split("(")[0] for op in repo.ops_log()] == [
        "NewCommit",
        "RepoInitialized",
    ]
    array = zarr.open_group(repo.readonly_session("main").store, mode="r")["é/t"]
    assert array.metadata.dimension_names == ("time", None)
    assert (np.asarray(array[...]) == 7).all()
    session = repo.writable_session("main")
    zarr.open_group(session.store, mode="a")["é/t"][:] = 1
    session.commit("theirs")
    info = decode_repo_info((path / "repo").read_bytes(), "repo")
    assert len(info.snapshots) == 3
    assert info.ops.entry(1).backup_path


@pytest.mark.parametrize("migrated", [False, True])
def test_spilling_as_the_reference_does(migrated: bool, tmp_path: Path) -> None:
    """Both sides record the same updates with room for three: the logs agree after each."""
    storage = icechunk.local_filesystem_storage(str(tmp_path / "repo"))
    config = icechunk.RepositoryConfig.default()
    config.num_updates_per_repo_info_file = 3
    if migrated:
        folder = fixture_path("v2-migrated-by-2.3.0", "basic-from-0.2.0", "repo")
        shutil.copytree(folder, tmp_path / "repo")
        repo = icechunk.Repository.open(storage, config=config)
    else:
        repo = icechunk.Repository.create(storage, config=config)
    state = decode_repo_info((tmp_path / "repo/repo").read_bytes(), "repo")
    for number in range(6):
        before = {path.name for path in (tmp_path / "repo/overwritten").glob("repo.*")}
        repo.create_branch(f"b{number}", repo.lookup_branch("main"))
        (backup,) = {path.name for path in (tmp_path / "repo/overwritten").glob("repo.*")} - before
        after = decode_repo_info((tmp_path / "repo/repo").read_bytes(), "repo")
        state = state.recorded(after.ops.entry(0), backup=backup, keep=3)
        assert log(state) == log(after)
    assert state.repo_before_updates
    assert len(state.ops) == 3


def log(info: RepoInfo) -> tuple[list[OpsEntry], str | None]:
    return [info.ops.entry(row) for row in range(len(info.ops))], info.repo_before_updates
