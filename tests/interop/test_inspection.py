"""``inspect_*`` says the same of every file, whoever wrote it."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from tests.fixtures import fixture_folders
from tests.interop.both import Side, sides

import frazil

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
OPENED = {"snapshots": "inspect_snapshot", "manifests": "inspect_manifest"}
LOGS = {"transactions": "inspect_transaction_log"}


def answer_of(call: Callable[..., Any], *arguments: str) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        return type(error).__name__, getattr(error, "kind", None)


def in_order(document: Any) -> Any:
    """The reference shows nodes in the order of the file, Frazil always by path."""
    if isinstance(document, dict) and "nodes" in document:
        return {**document, "nodes": sorted(document["nodes"], key=lambda node: node["path"])}
    return document


def compare(path: Path) -> int:
    """Every file of a repository; how many there were."""
    ours, theirs = (side.open() for side in sides(path))
    assert ours.repo.inspect_repo_info() == theirs.repo.inspect_repo_info()
    number = 0
    for folder, method in (OPENED | LOGS).items():
        for name in sorted(file.name for file in (path / folder).glob("*")):
            mine = answer_of(getattr(ours.repo, method), name)
            assert in_order(mine) == in_order(answer_of(getattr(theirs.repo, method), name))
            number += 1
    return number


@pytest.mark.deep
def test_what_frazil_writes(tmp_path: Path) -> None:
    ours, _ = sides(tmp_path / "repo", tmp_path)
    repo = ours.create(ours.config(inline_chunk_threshold_bytes=8)).repo
    with repo.transaction("main", message="first", metadata={"by": "me", "n": [1, 2.5, None]}) as store:
        root = zarr.create_group(store, attributes={"a": 1})
        for name, shape in (("x", (6, 2)), ("s", ()), ("none", (4,))):
            array = root.create_array(name, shape=shape, chunks=shape and (2,) * len(shape), dtype="i4")
            if name != "none":
                array[...] = 1
        root.create_array("v", shape=(3000,), chunks=(1,), dtype="i1", dimension_names=["t"])
        store.set_virtual_refs_arr(
            "/v",
            (3000,),
            [f"{ours.prefix}data{n}.bin" for n in range(3000)],
            np.zeros(3000, np.uint64),
            np.ones(3000, np.uint64),
        )
    first = repo.lookup_branch("main")
    repo.create_branch("dev", first)
    repo.create_tag("v1", first)
    repo.create_tag("v2", first)
    repo.delete_tag("v2")
    with repo.transaction("main", message="second") as store:
        zarr.open_array(store, path="x")[0] = 7
        zarr.open_group(store).create_group("g")
    repo.set_metadata({"k": {"l": True}})
    repo.set_feature_flag("create_tag", False)
    repo.set_feature_flag("create_tag", None)
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.read_only, None, "closed"))
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.online))
    repo.reset_branch("dev", repo.lookup_branch("main"))
    repo.delete_branch("dev")
    with repo.transaction("main", message="third") as store:
        zarr.open_array(store, path="x")[2] = 8
        del zarr.open_group(store)["g"]
    repo.expire_snapshots(datetime.now(UTC))
    assert compare(tmp_path / "repo") >= 8


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.zip")))
def test_golden_repositories(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    assert compare(tmp_path / "repo")


@pytest.mark.parametrize("folder", fixture_folders("v2-*/*"), ids=lambda folder: folder.name)
def test_fixtures(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "repo", tmp_path / "repo")
    assert compare(tmp_path / "repo")


def test_a_lost_log_of_an_expired_snapshot_is_named(tmp_path: Path) -> None:
    ours, theirs = sides(tmp_path / "repo")
    repo = ours.create().repo
    lost = []
    for n in range(3):
        with repo.transaction("main", message=str(n)) as store:
            zarr.create_group(store, path=f"g{n}")
        lost.append(repo.lookup_branch("main"))
    repo.expire_snapshots(datetime.now(UTC))
    (tmp_path / "repo" / "transactions" / lost[0]).unlink()
    mine = repo.inspect_transaction_log(lost[2])
    assert mine == theirs.open().repo.inspect_transaction_log(lost[2])
    assert mine["synthetic_composite"]["missing_tx_logs"] == lost[:1]
    assert mine["synthetic_composite"]["merged_pruned_ancestor_tx_logs"] == lost[1:2]


@pytest.mark.parametrize("method", [*OPENED.values(), *LOGS.values()])
def test_what_is_missing(method: str, tmp_path: Path) -> None:
    """The reference says "retry later" of a snapshot that does not exist; Frazil says that."""
    raised = []
    for package in (frazil, icechunk):
        side = Side(package.__name__, package, tmp_path / package.__name__).create()
        with pytest.raises(package.IcechunkError) as error:
            getattr(side.repo, method)("ZZZZZZZZZZZZZZZZZZZ0")
        raised.append((type(error.value).__name__, str(error.value.kind)))
    of_storage = ("StorageError", "object-not-found")
    mine = of_storage if "manifest" in method else ("SnapshotNotFoundError", "snapshot-not-found")
    assert raised == [mine, of_storage]
