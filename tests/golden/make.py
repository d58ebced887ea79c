"""Writes the golden repositories: what the published ``icechunk`` makes of a few small stories.

Each becomes ``<name>.zip``: the repository, and what the same wheel reads in it, in the words of
``tests/expected.py``. Run it with ``make golden``; ids and times differ in every run.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from tests.expected import LISTS, diff_text, digest_of, flags_of, history_of, keys_of, ops_of, refs_of  # noqa: E402  # found from here only after the line above

# Its name ends up in the saved configuration, so it is the same on every machine.
VIRTUAL = Path("/tmp/frazil-golden")
MODIFIED = datetime(2026, 11, 1, 12, 0, 0, tzinfo=UTC)
KINDS = {1: "native", 2: "virtual", 3: "inline"}
Expected = dict[str, Any]
Checksums = dict[tuple[str, tuple[int, ...]], Expected]


# What the wheel reads


def described(repo: Any, checksums: Checksums) -> Expected:
    inspected = repo.inspect_repo_info()
    ids = [entry["id"] for entry in inspected["snapshots"]]
    return {
        "reader": {name: version(name) for name in ("icechunk", "zarr", "numpy")},
        "spec_version": 2,
        "refs": {**refs_of(repo), "deleted_tags": sorted(inspected["deleted_tags"])},
        "ancestry": history_of(repo),
        "ops_log": ops_of(repo),
        "repo_metadata": repo.get_metadata(),
        "status": str(repo.get_status()),
        "feature_flags": flags_of(repo),
        "snapshots": {id_: snapshot_of(repo, id_, checksums) for id_ in ids},
        # Where ancestors were expired, the wheel shows their logs as part of this one.
        "tx_logs": {
            id_: log_of(repo, id_) for id_ in ids if "pruned" not in repo.lookup_snapshot(id_).message
        },
        "diffs": {f"branch:{name}": diff_of(repo, repo.lookup_branch(name)) for name in repo.list_branches()},
    }


def snapshot_of(repo: Any, id_: str, checksums: Checksums) -> Expected:
    seen = repo.inspect_snapshot(id_)
    session = repo.readonly_session(snapshot_id=id_)
    return {
        "raw": {
            "id": seen["id"],
            "flushed_at": microseconds(repo.lookup_snapshot(id_).written_at),
            "message": seen["commit_message"],
            "metadata": [{"name": name, "value": value} for name, value in seen["metadata"].items()],
            "manifest_files_v2": seen["manifests"],
        },
        "store_keys": sorted(keys_of(session)),
        "nodes": [node_of(session, node, checksums) for node in seen["nodes"]],
    }


def microseconds(when: datetime) -> int:
    delta = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def node_of(session: Any, seen: Expected, checksums: Checksums) -> Expected:
    path = seen["path"]
    buffer = asyncio.run(
        session.store.get(f"{path}/zarr.json".strip("/"), zarr.core.buffer.default_buffer_prototype())
    )
    out: Expected = {
        "path": path,
        "type": seen["node_type"],
        "node_id": seen["id"],
        "zarr_json": json.loads(buffer.to_bytes()),
    }
    if seen["node_type"] == "group":
        return out
    chunks = asyncio.run(chunks_of(session, path))
    for chunk in chunks:
        index = chunk["index"]
        chunk["manifest"] = next(
            ref["id"]
            for ref in seen["manifest_refs"]
            if all(low <= at < high for at, (low, high) in zip(index, ref["extents"], strict=True))
        )
        chunk.update(checksums.get((path, tuple(index)), {}))
    out |= {
        "dimension_names": out["zarr_json"].get("dimension_names"),
        "shape_v2": [[dim["array_length"], dim["num_chunks"]] for dim in seen["shape"]],
        "manifests": seen["manifest_refs"],
        "chunks": chunks,
    }
    if not any(chunk.get("location", "").startswith("s3:") for chunk in chunks):
        out["array"] = digest_of(zarr.open_array(session.store, path=path.strip("/"), mode="r"))
    return out


async def chunks_of(session: Any, path: str) -> list[Expected]:
    out = []
    async for at, kinds, locations, offsets, lengths, inlined in session.store.array_chunk_iterator(path):
        for row, index in enumerate(at.tolist()):
            kind = KINDS[int(kinds[row])]
            chunk: Expected = {"index": index, "kind": kind}
            if kind == "inline":
                chunk["inline"] = bytes(inlined[row]).hex()
            else:
                name = "chunk_id" if kind == "native" else "location"
                # The wheel tells where a relative location leads now; all local ones here are relative.
                location = locations[row].replace(f"file://{VIRTUAL}/", "vcc://golden/")
                chunk |= {name: location, "offset": int(offsets[row]), "length": int(lengths[row])}
            out.append(chunk)
    return sorted(out, key=lambda chunk: chunk["index"])


def diff_of(repo: Any, tip: str) -> Expected:
    """What changed since the initial snapshot."""
    root = list(repo.ancestry(snapshot_id=tip))[-1].id
    return {} if root == tip else diff_text(repo.diff(from_snapshot_id=root, to_snapshot_id=tip))


def log_of(repo: Any, id_: str) -> Expected:
    seen = repo.inspect_transaction_log(id_)
    nodes = {node["path"]: node for node in repo.inspect_snapshot(id_)["nodes"]}
    moves = [
        {
            "from": move["from"],
            "to": move["to"],
            "node_id": nodes[move["to"]]["id"],
            "node_type": int(nodes[move["to"]]["node_type"] == "array"),
        }
        for move in seen["moved_nodes"]
    ]
    return {field: seen[field] for field in LISTS} | {
        "updated_chunks": seen["updated_chunks"],
        "moved_nodes": moves,
    }


# The stories


def config(**settings: Any) -> Any:
    settings_ = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=24, **settings)
    store = icechunk.local_filesystem_store(str(VIRTUAL))
    # The wheel opens the path that the URL names: relative locations are what can be moved.
    settings_.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(f"file://{VIRTUAL}/", store, name="golden")
    )
    settings_.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer("s3://golden/", icechunk.s3_store(region="eu-west-1"))
    )
    return settings_


def created(path: Path, settings: Any) -> Any:
    access: dict[str, Any] = {f"file://{VIRTUAL}/": icechunk.credentials.LocalFileSystemAccess}
    return icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), settings, access)


def array(store: Any, name: str, values: Any, chunks: Any, **more: Any) -> Any:
    values = np.asarray(values)
    target = zarr.create_array(
        store, name=name, shape=values.shape, chunks=chunks, dtype=values.dtype, **more
    )
    target[...] = values
    return target


def story(path: Path) -> tuple[Any, Checksums]:
    """Every kind of chunk, branches, tags, an amended, a moved and a detached snapshot, settings."""
    repo = created(path, config())
    session = repo.writable_session("main")
    root = zarr.create_group(session.store, attributes={"title": "golden", "nested": {"a": [1, 2.5, None]}})
    root.create_group("g", attributes={"é": "ü"}).create_group("sub")
    root.create_group("g-b")
    root.create_group("π")
    array(
        session.store, "g/temp", np.arange(12, dtype="f4").reshape(3, 4), (2, 2), dimension_names=["t", None]
    )
    array(session.store, "g/sub/counts", np.arange(60, dtype="u2").reshape(3, 4, 5), (2, 2, 5))
    array(session.store, "π/größe x", np.arange(8, dtype="i8") * -3, (3,), compressors=None)
    array(session.store, "scalar", np.float64(2.5), ())
    array(session.store, "sharded", np.arange(128, dtype="i4").reshape(8, 16), (2, 4), shards=(4, 8))
    array(session.store, "names", np.array(["a", "bé", ""], dtype=np.dtypes.StringDType()), (2,))
    array(session.store, "when", np.array([0, 1, "NaT"], "M8[s]"), (3,))
    array(session.store, "empty", np.zeros((0, 3), "f4"), (1, 3))
    zarr.create_array(session.store, name="g-b/unwritten", shape=(5,), chunks=(2,), dtype="c8", fill_value=1j)
    virtual = zarr.create_array(
        session.store, name="virt", shape=(4, 4), chunks=(1, 4), dtype="<i4", fill_value=-1, compressors=None
    )
    assert virtual.metadata.shape == (4, 4)
    store = session.store
    store.set_virtual_ref("virt/c/0/0", "vcc://golden/data.bin", offset=7, length=16)
    store.set_virtual_ref("virt/c/1/0", "vcc://golden/data.bin", offset=23, length=16, checksum=MODIFIED)
    spec = icechunk.VirtualChunkSpec([2, 0], "s3://golden/some dir/data%20x.bin", 0, 9, etag_checksum='"tag"')
    zarr.create_array(store, name="elsewhere", shape=(9, 1), chunks=(3, 1), dtype="u1", compressors=None)
    store.set_virtual_refs("elsewhere", [spec])
    first = session.commit("first", {"author": "golden", "n": 1, "deep": {"l": [1, "x", None, True, -2.5]}})
    repo.create_tag("v1", first)
    repo.create_tag("gone", first)
    repo.delete_tag("gone")
    repo.create_branch("dev/é", first)
    repo.create_branch("old", first)
    repo.delete_branch("old")

    session = repo.writable_session("main")
    root = zarr.open_group(session.store, mode="a")
    temp = zarr.open_array(session.store, path="g/temp", mode="a")
    temp.resize((5, 4))
    temp[3:] = 9
    temp.attrs["units"] = "K"
    del root["g-b/unwritten"]
    session.commit("resized and deleted")

    session = repo.writable_session("dev/é")
    zarr.open_array(session.store, path="g/temp", mode="a")[0] = -1
    session.commit("to be amended")
    session = repo.writable_session("dev/é")
    zarr.open_array(session.store, path="scalar", mode="a")[...] = 7
    session.amend("amended", metadata={"by": "amend"})
    session = repo.rearrange_session("dev/é")
    session.move("/g/sub", "/moved")
    session.commit("moved")
    session = repo.writable_session("dev/é")
    zarr.open_group(session.store, mode="a").create_group("detached")
    session.flush("detached")
    repo.writable_session("main").commit("nothing", allow_empty=True)
    repo.reset_branch("dev/é", repo.lookup_branch("dev/é"))
    repo.set_metadata({"team": "ice", "n": [1, 2.5, None, {"deep": True}], "big": 2**40})
    repo.update_metadata({"more": "ü"})
    repo.save_config()
    repo.set_feature_flag("create_tag", False)
    repo.set_feature_flag("delete_tag", True)
    repo.set_feature_flag("move_node", False)
    repo.set_feature_flag("move_node", None)
    repo.set_status(icechunk.RepoStatus(icechunk.RepoAvailability.read_only, None, "kept as it is"))
    seconds = int(MODIFIED.timestamp())
    return repo, {("/virt", (1, 0)): {"last_modified": seconds}, ("/elsewhere", (2, 0)): {"etag": '"tag"'}}


def split(path: Path) -> tuple[Any, Checksums]:
    """Manifests split along two axes, an array that grows, and rules by name."""
    dims, arrays = icechunk.ManifestSplitDimCondition, icechunk.ManifestSplitCondition
    rules: dict[Any, Any] = {
        arrays.name_matches("^/big$"): {dims.DimensionName("t"): 3, dims.Axis(1): 2},
        arrays.AnyArray(): {dims.Any(): 4},
    }
    splitting = icechunk.ManifestSplittingConfig.from_dict(rules)
    repo = created(path, config(manifest=icechunk.ManifestConfig(splitting=splitting)))
    with repo.transaction("main", message="two arrays") as store:
        array(store, "big", np.arange(80, dtype="i4").reshape(10, 8), (1, 2), dimension_names=["t", "x"])
        array(store, "other", np.arange(9, dtype="f8"), (1,))
    with repo.transaction("main", message="grown") as store:
        big = zarr.open_array(store, path="big", mode="a")
        big.resize((12, 8))
        big[10:] = 5
    with repo.transaction("main", message="one chunk") as store:
        zarr.open_array(store, path="big", mode="a")[0, 0] = -7
    return repo, {}


def expired(path: Path) -> tuple[Any, Checksums]:
    """Five commits, the first three expired and collected, then another one."""
    repo = created(path, config(num_updates_per_repo_info_file=4))
    with repo.transaction("main", message="commit 0") as store:
        array(store, "a", np.arange(40, dtype="i4"), (10,), compressors=None)
    repo.create_tag("old", repo.lookup_branch("main"))
    cut = datetime.now(UTC)
    for number in range(1, 5):
        if number == 3:
            cut = datetime.now(UTC)
        with repo.transaction("main", message=f"commit {number}{' (pruned)' * (number == 3)}") as store:
            zarr.open_array(store, path="a", mode="a")[number * 8 :] = number
        time.sleep(0.01)
    repo.expire_snapshots(cut, delete_expired_tags=True)
    repo.garbage_collect(cut)
    with repo.transaction("main", message="after") as store:
        zarr.open_array(store, path="a", mode="a")[:3] = 100
    return repo, {}


def rectilinear(path: Path) -> tuple[Any, Checksums]:
    """An array whose chunks have different sizes."""
    repo = created(path, config())
    with zarr.config.set({"array.rectilinear_chunks": True}):
        session = repo.writable_session("main")
        target = zarr.create_array(
            session.store, name="r", shape=(10, 6), chunks=[[2, 3, 5], [4, 2]], dtype="i4"
        )
        target[...] = np.arange(60).reshape(10, 6)
        session.commit("uneven")
    return repo, {}


def virtual(path: Path) -> tuple[Any, Checksums]:
    """Many virtual references, their locations compressed with a dictionary; and relative ones."""
    repo = created(path, config())
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="many", shape=(40, 30), chunks=(1, 1), dtype="u1", compressors=None)
    count = 1200
    session.store.set_virtual_refs_arr(
        "many",
        (40, 30),
        [f"s3://golden/year={1980 + n // 30}/station-{n % 30:03d}.nc" for n in range(count)],
        np.arange(count, dtype="u8") * 3 + 2**33,
        np.full(count, 1, "u8"),
    )
    zarr.create_array(session.store, name="rel", shape=(1200,), chunks=(1,), dtype="u1", compressors=None)
    session.store.set_virtual_refs_arr(
        "rel",
        (1200,),
        ["vcc://golden/data.bin"] * 1200,
        np.arange(1200, dtype="u8") % 75,
        np.full(1200, 1, "u8"),
        checksum=MODIFIED,
    )
    session.commit("many")
    seconds = int(MODIFIED.timestamp())
    return repo, {("/rel", (n,)): {"last_modified": seconds} for n in range(1200)}


STORIES: dict[str, Callable[[Path], tuple[Any, Checksums]]] = {
    "story": story,
    "split": split,
    "expired": expired,
    "rectilinear": rectilinear,
    "virtual": virtual,
}


def data() -> None:
    """The file that virtual chunks point to, as old as their references say."""
    VIRTUAL.mkdir(exist_ok=True)
    content = bytes(range(7)) + np.arange(100, 116, dtype="<i4").tobytes() + b"tail"
    (VIRTUAL / "data.bin").write_bytes(content)
    seconds = MODIFIED.timestamp()
    os.utime(VIRTUAL / "data.bin", (seconds, seconds))


def make(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "repo"
        repo, checksums = STORIES[name](path)
        with zarr.config.set({"array.rectilinear_chunks": True}):
            expected = described(repo, checksums)
        text = json.dumps(expected, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        with zipfile.ZipFile(FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            archive.writestr("expected.json", text)
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    archive.write(file, f"repo/{file.relative_to(path)}")
            archive.write(VIRTUAL / "data.bin", "virtual/data.bin")
    print(f"{name}: {(FOLDER / f'{name}.zip').stat().st_size} bytes, {len(expected['snapshots'])} snapshots")


def provenance() -> None:
    wheels = ", ".join(f"{name} {version(name)}" for name in ("icechunk", "zarr", "numpy"))
    system = f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}"
    (FOLDER / "PROVENANCE.md").write_text(
        f"""# Where these files come from

Written by `tests/golden/make.py` (`make golden`) on {datetime.now(UTC):%Y-%m-%d}, with the wheels of
{wheels} from PyPI, under {system} {platform.machine()}. Nothing in them was edited by hand, and nothing
comes from anywhere else.

Each `<name>.zip` holds `repo/`, the repository, `expected.json`, what the same wheels read in it, and
`virtual/data.bin`, what its relative virtual references point to (its time of modification is to be set by
who reads them: 2026-11-01 12:00 UTC).

| name | what it holds |
|---|---|
"""
        + "".join(f"| {name} | {(make.__doc__ or '').strip()} |\n" for name, make in STORIES.items())
    )


if __name__ == "__main__":
    data()
    for each in sys.argv[1:] or STORIES:
        make(each)
    provenance()
    shutil.rmtree(VIRTUAL)
