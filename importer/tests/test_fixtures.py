"""Every older repository among the fixtures is recognised, and imported as its ``expected.json`` says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from importer.tests.older import (
    BUCKET,
    FOLDERS,
    Json,
    check_array,
    contents,
    copy_of,
    document_of,
    expected_of,
    is_too_long,
    named,
    open_imported,
    reference_of,
    virtual_config,
    virtual_objects,
)
from tests.fixtures import fixture_path, hide_original_files

import frazil
from frazil.format.ids import id_from_text, id_to_text
from frazil_import.generations import timestamp

pytestmark = pytest.mark.filterwarnings("ignore:The data type")
folders = pytest.mark.parametrize("folder", FOLDERS, ids=named)


@pytest.fixture(autouse=True)
def _copies_of_the_original_files(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_original_files(monkeypatch)


GENERATIONS = {
    "basic": "D",
    "alpha1-like-colon-refs": "M0",
    "alpha.2-to-4": "M1",
    "alpha.5-to-7": "M2",
    "alpha.8": "M3",
    "alpha.9": "M4",
    "alpha.10": "M5",
    "alpha.11": "M6",
    "alpha.12": "M6",
    "alpha.13-to-15": "M7",
    "0.1.0-to-0.1.3": "M8",
    "handmade-v01": "M8",
}


#: Their virtual references say 100 bytes, of objects with 19.
TOO_LONG = {"alpha.10", "alpha.11"}


def test_fixtures_exist() -> None:
    fixture_path("s2-draft-json", "basic", "repo")
    assert {folder.name for folder in FOLDERS} == set(GENERATIONS)


@folders
def test_it_is_recognised(folder: Path) -> None:
    storage = frazil.local_filesystem_storage(str(folder / "repo"))
    with pytest.raises(frazil.FormatError, match="older format, as written by"):
        frazil.Repository.open(storage)


@pytest.mark.sample(11, 11)
@pytest.mark.deep
@pytest.mark.parametrize("mode", ["copy", "reference", "in place"])
@folders
def test_it_is_imported(folder: Path, mode: str, tmp_path: Path) -> None:
    source = copy_of(folder, tmp_path / "old")
    before = contents(source)
    target = source if mode == "in place" else tmp_path / "new"
    old, new = (frazil.local_filesystem_storage(str(path)) for path in (source, target))
    expected = expected_of(folder)
    with virtual_objects(folder, tmp_path) as places:
        options: dict[str, Any] = {}
        if folder.name in TOO_LONG:
            config, access = virtual_config(frazil, places, (BUCKET,))
            options = {"config": config, "authorize_virtual_chunk_access": access}
        if mode == "in place":
            report = frazil.upgrade(old, **options)
            assert contents(source).items() >= before.items()
        else:
            report = frazil.upgrade(old, new, chunks="copy" if mode == "copy" else "reference", **options)
            assert contents(source) == before
        assert report.generation.startswith(f"{GENERATIONS[folder.name]}, ")
        repo = open_imported(frazil, target, places, report.virtual_prefixes)
        check_refs(repo, expected, report)
        for id_, snapshot in expected["snapshots"].items():
            check_snapshot(repo, report.snapshot_ids[id_], snapshot, mode)
    same_ids = all(old == new for old, new in report.snapshot_ids.items())
    assert same_ids == (mode != "in place" and folder.name != "basic")
    others = [line for line in report.left_out if not line.startswith(("started_at", "properties"))]
    assert [line.split(" ")[1:] for line in others] == left_out_of(folder.name, expected)


def left_out_of(name: str, expected: Json) -> list[list[str]]:
    """What the report tells but for the first word."""
    wrong = sorted({entry[0] for entry in expected.get("wrong_rank_entries", [])})
    lines = [f"references in manifest {id_}: no array uses them" for id_ in wrong]
    if name in TOO_LONG:
        chunks = [
            chunk["manifest"]
            for snapshot in expected["snapshots"].values()
            for node in snapshot["nodes"]
            for chunk in node.get("chunks", [])
            if chunk["kind"] == "virtual"
        ]
        lines += [
            f"ends of 1 virtual references in manifest {id_}: they are after the ends of their objects"
            for id_ in sorted(set(chunks))
        ]
    return [each.split(" ") for each in lines]


def check_refs(repo: frazil.Repository, expected: Json, report: frazil.ImportReport) -> None:
    refs, ids = expected["refs"], report.snapshot_ids
    assert {name: repo.lookup_branch(name) for name in repo.list_branches()} == {
        name: ids[id_] for name, id_ in refs["branches"].items()
    }
    assert {name: repo.lookup_tag(name) for name in repo.list_tags()} == {
        name: ids[id_] for name, id_ in refs["tags"].items()
    }
    assert sorted(repo._info().deleted_tags) == refs.get("deleted_tags", [])
    assert sorted(ids) == sorted(expected["snapshots"])
    for name, chain in expected["ancestry"].items():
        kind, _, ref = name.partition(":")
        at = {"snapshot_id": ids[kind]} if not ref else {kind: ref}
        entries = list(repo.ancestry(**at))
        # The first versions quote an id of the initial snapshot that no file has.
        expected_ids = [ids.get(entry["id"]) for entry in chain]
        pairs = zip(expected_ids, entries, strict=True)
        assert [entry.id for entry in entries] == [id_ or entry.id for id_, entry in pairs]
        assert [entry.message for entry in entries] == [entry["message"] for entry in chain]
        assert [
            repo._info().snapshots.entry(repo._info().snapshots.find_snapshot(id_from_text(f.id))).flushed_at
            for f in entries
        ] == [timestamp(entry["written_at"]) for entry in chain]
    assert len(list(repo.ops_log())) > len(ids)


def check_snapshot(repo: frazil.Repository, id_: str, expected: Json, mode: str) -> None:
    session = repo.readonly_session(snapshot_id=id_)
    snapshot = session.workspace.snapshot
    assert id_to_text(snapshot.id) == id_
    assert snapshot.message == expected["message"]
    assert snapshot.flushed_at == timestamp(expected["written_at"])
    assert snapshot.metadata == expected.get("metadata", expected.get("properties"))
    nodes = {node["path"]: node for node in expected["nodes"]}
    assert session.workspace.node_table().paths_list() == sorted(nodes)
    for path, node in nodes.items():
        actual = session.workspace.require_node(path)
        assert json.loads(actual.user_data) == document_of(node), path
        if isinstance(node.get("node_id"), str):
            assert id_to_text(actual.id) == node["node_id"]
        if node["type"] == "array":
            check_references(session, node, mode)
            check_array(session, node)


def check_references(session: frazil.Session, node: Json, mode: str) -> None:
    table = session.workspace.ref_table(node["path"])
    actual = [
        {"index": index, **reference_of(table.ref(row))} for row, index in enumerate(table.index.tolist())
    ]
    for each in actual:
        assert session.workspace.ref(node["path"], tuple(each["index"])) is not None
    if not isinstance(node.get("chunks"), list):
        return
    wanted = [{name: value for name, value in each.items() if name != "manifest"} for each in node["chunks"]]
    for each in wanted:
        if each["kind"] == "virtual" and is_too_long(node):
            each["length"] = 19
    if mode == "reference":
        wanted = [{**each, "kind": each["kind"].replace("native", "virtual")} for each in wanted]
        for each, other in zip(actual, wanted, strict=True):
            if "chunk_id" in other:
                assert each["location"].endswith(f"/chunks/{other.pop('chunk_id')}")
                del each["location"]
    assert actual == wanted


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "folder", [folder for folder in FOLDERS if (folder / "repo" / "transactions").is_dir()], ids=named
)
def test_derived_logs_equal_the_stored_ones(folder: Path, tmp_path: Path) -> None:
    """Where a commit wrote no chunk again with the same content, both say the same."""
    with_logs = imported(copy_of(folder, tmp_path / "a"))
    without = copy_of(folder, tmp_path / "b")
    shutil.rmtree(without / "transactions")
    compared = imported(without)
    for id_ in with_logs[1].snapshot_ids.values():
        parents = [repo.lookup_snapshot(id_).parent_id for repo, _ in (with_logs, compared)]
        if parents[0] is not None:
            ends = {"from_snapshot_id": parents[0], "to_snapshot_id": id_}
            one, other = (str(repo.diff(**ends)) for repo, _ in (with_logs, compared))
            assert one == other


def imported(path: Path) -> tuple[frazil.Repository, frazil.ImportReport]:
    storage = frazil.local_filesystem_storage(str(path))
    report = frazil.upgrade(storage)
    return frazil.Repository.open(storage), report
