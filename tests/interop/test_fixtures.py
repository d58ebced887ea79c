"""Every repository of versions 1 and 2 among the fixtures holds what its ``expected.json`` says."""

from __future__ import annotations

import json
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.expected import array_at, check_repository, check_snapshot, refs_of
from tests.fixtures import fixture_folders, fixture_path, hide_original_files

import frazil
from frazil.credentials import LocalFileSystemAccess

PREFIX = "file:///srv/icechunk-fixtures/_virtual/"
MODIFIED = datetime(2026, 11, 21, 7, 2, 53, tzinfo=UTC).timestamp()
VIRT = [[100, 101, 102, 103], [104, 105, 106, 107], [108, 109, 110, 111], [-1, -1, -1, -1]]

FOLDERS = fixture_folders("v1-*/*") + fixture_folders("v2-*/*")
REPOSITORIES = [path.parent for path in (f / "expected.json" for f in FOLDERS)]
OTHER_STATES = [path for folder in REPOSITORIES for path in sorted(folder.glob("repo_*"))]


@pytest.fixture(autouse=True)
def _copies_of_the_original_files(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_original_files(monkeypatch)


def named(folder: Path) -> str:
    return "/".join(folder.parts[-3:] if folder.name.startswith("repo_") else folder.parts[-2:])


def virtual_copy(to: Path, modified: float = MODIFIED) -> Path:
    """The files that virtual chunks point to, with the time that their references know."""
    folder = Path(shutil.copytree(fixture_path("_virtual"), to / "virtual"))
    for file in folder.rglob("*"):
        os.chmod(file, 0o755 if file.is_dir() else 0o644)
    os.utime(folder / "data.bin", (modified, modified))
    return folder


def opened(path: Path, virtual: Path | None = None, name: str | None = None) -> frazil.Repository:
    storage = frazil.local_filesystem_storage(str(path))
    if virtual is None:
        return frazil.Repository.open(storage)
    store = frazil.local_filesystem_store(str(virtual))
    config = frazil.RepositoryConfig()
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(PREFIX, store, name))
    return frazil.Repository.open(storage, config, {PREFIX: LocalFileSystemAccess})


def expected_of(folder: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    return expected


def saved_by_hand(path: Path) -> dict[str, Any] | None:
    """Of a ``config.yaml``, what lines of text tell."""
    if not path.exists():
        return None
    text = path.read_text()
    threshold = re.search(r"^inline_chunk_threshold_bytes: (.*)$", text, re.MULTILINE)
    containers = re.search(r"^virtual_chunk_containers:\n((?: .*\n)*)", text, re.MULTILINE)
    return {
        "inline_chunk_threshold_bytes": json.loads(threshold[1]) if threshold else None,
        "virtual_chunk_containers": re.findall(
            r"^  (\S.*):$", containers[1] if containers else "", re.MULTILINE
        ),
    }


def unread(path: str, node: dict[str, Any]) -> Any:
    """What the arrays hold that the wheels could not read."""
    return VIRT if path == "/virt" else None


def test_fixtures_exist() -> None:
    fixture_path("v2-2.3.0", "basic", "repo")
    assert len(REPOSITORIES) == 19
    assert len(OTHER_STATES) == 6


@pytest.mark.parametrize("folder", REPOSITORIES, ids=named)
def test_the_repository(folder: Path) -> None:
    expected = expected_of(folder)
    repo = opened(folder / "repo")
    check_repository(repo, expected)
    saved = frazil.Repository.fetch_config(repo.storage)
    if repo.spec_version == frazil.SpecVersion.v1:
        wanted = saved_by_hand(folder / "repo" / "config.yaml")
    else:
        wanted = expected["repo_info_raw"]["config"]
    assert (saved is None) == (wanted is None)
    if wanted is not None:
        assert saved is not None
        assert saved.inline_chunk_threshold_bytes == wanted["inline_chunk_threshold_bytes"]
        assert set(saved.virtual_chunk_containers or {}) == set(wanted["virtual_chunk_containers"] or {})
    for id_ in expected["snapshots"]:
        assert repo.lookup_snapshot(id_).id == id_


@pytest.mark.sample(7)
@pytest.mark.parametrize("folder", REPOSITORIES, ids=named)
def test_every_snapshot(folder: Path, tmp_path: Path) -> None:
    expected = expected_of(folder)
    name = "loc" if folder.name == "vcc" else None
    repo = opened(folder / "repo", virtual_copy(tmp_path), name)
    arrays = 0
    with zarr.config.set({"array.rectilinear_chunks": True}):
        for id_, snapshot in expected["snapshots"].items():
            arrays += check_snapshot(repo.readonly_session(snapshot_id=id_), snapshot, unread)
    holding = ("basic", "expired", "split", "vcc", "rectilinear")
    assert arrays > 0 or not folder.name.startswith(holding)


@pytest.mark.parametrize("path", OTHER_STATES, ids=named)
def test_other_states_open(path: Path) -> None:
    """No ``expected.json`` is theirs, but all in them can be read."""
    repo = opened(path)
    refs = refs_of(repo)
    assert refs["branches"]
    for id_ in {*refs["branches"].values(), *refs["tags"].values()}:
        session = repo.readonly_session(snapshot_id=id_)
        chain = list(repo.ancestry(snapshot_id=id_))
        assert chain[-1].parent_id is None
        assert chain[0].id == id_
        for node in session.workspace.node_table().paths_list():
            if session.workspace.require_node(node).array is not None and not node.startswith("/virt"):
                array_at(session, node)[...]
    assert repo.spec_version == frazil.SpecVersion.v1 or list(repo.ops_log())


@pytest.mark.parametrize("parts", [("v2-migrated-by-2.3.0", "expired-from-1.0.0"), ("v1-1.0.0", "expired")])
def test_directories_without_files_do_not_matter(parts: tuple[str, str], tmp_path: Path) -> None:
    path = shutil.copytree(fixture_path(*parts, "repo"), tmp_path / "r")
    before = refs_of(opened(path))
    for name in ("branch.main", "branch.gone", "tag.t5", "tag.gone"):
        (path / "refs" / name).mkdir(parents=True, exist_ok=True)
    assert refs_of(opened(path)) == before


@pytest.mark.parametrize("parts", [("v2-2.3.0", "component-order-handpatched"), ("v1-1.0.0", "order")])
def test_lookup_of_every_node_in_another_order(parts: tuple[str, str]) -> None:
    """The reference does not find some of them."""
    folder = fixture_path(*parts)
    expected = expected_of(folder)
    session = opened(folder / "repo").readonly_session("main")
    nodes = expected["snapshots"][session.snapshot_id]["nodes"]
    paths = [node["path"] for node in nodes]
    assert len(paths) == 14
    assert paths != sorted(paths, key=str.encode)
    for node in nodes:
        assert session.get_node_id(node["path"]) == node["node_id"]
        assert zarr.open_group(session.store, path=node["path"].strip("/"), mode="r") is not None
    below = sorted(f"/{name}" for name in session.workspace.children("/"))
    assert below == sorted(path for path in paths if path.count("/") == 1 and path != "/")


def test_containers_of_the_first_version() -> None:
    """0.2.0 saved containers by name, with a scheme as prefix."""
    repo = opened(fixture_path("v1-0.2.0", "basic", "repo"))
    containers = repo.config.virtual_chunk_containers or {}
    assert {name: one.url_prefix for name, one in containers.items()} == {
        "s3": "s3", "file": "file", "tigris": "tigris", "local": "file", "fixture-s3": "s3", "az": "az",
        "gcs": "gcs",
    }  # fmt: skip
    assert containers["local"].store == frazil.local_filesystem_store("/srv/icechunk-fixtures/_virtual/")
