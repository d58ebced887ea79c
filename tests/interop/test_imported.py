"""The reference reads what was imported from older formats as Frazil does."""

from __future__ import annotations

from pathlib import Path

import icechunk
import pytest
import zarr
from tests.expected import ancestry_of, diff_text, keys_of, refs_of
from tests.importing.older import (
    FOLDERS,
    check_array,
    copy_of,
    expected_of,
    is_too_long,
    named,
    open_imported,
    virtual_objects,
)

import frazil

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:The data type")]


@pytest.mark.parametrize("mode", ["copy", "reference", "in place"])
@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_the_reference_reads_it(folder: Path, mode: str, tmp_path: Path) -> None:
    source = copy_of(folder, tmp_path / "old")
    target = source if mode == "in place" else tmp_path / "new"
    old, new = (frazil.local_filesystem_storage(str(path)) for path in (source, target))
    report = frazil.upgrade(old) if mode == "in place" else frazil.upgrade(old, new, chunks=mode)
    expected = expected_of(folder)
    with virtual_objects(folder, tmp_path) as places:
        repo, theirs = (
            open_imported(package, target, places, report.virtual_prefixes) for package in (frazil, icechunk)
        )
        assert refs_of(theirs) == refs_of(repo)
        for branch in repo.list_branches():
            assert ancestry_of(theirs, branch=branch) == ancestry_of(repo, branch=branch)
            first = [*repo.ancestry(branch=branch)][-1].id
            tip = repo.lookup_branch(branch)
            assert diff_text(theirs.diff(from_snapshot_id=first, to_snapshot_id=tip)) == diff_text(
                repo.diff(from_snapshot_id=first, to_snapshot_id=tip)
            )
        assert [str(op.kind) for op in theirs.ops_log()]
        for id_, snapshot in expected["snapshots"].items():
            session = theirs.readonly_session(snapshot_id=report.snapshot_ids[id_])
            ours = repo.readonly_session(snapshot_id=report.snapshot_ids[id_])
            assert sorted(keys_of(session)) == sorted(keys_of(ours))
            for node in snapshot["nodes"]:
                # The reference opens the path in a `file:` URL, whatever folder it is told.
                unread = node["path"].startswith("/virt") or is_too_long(node)
                if node["type"] == "array" and not unread:
                    check_array(session, node)
        with theirs.transaction("main", message="theirs") as store:
            zarr.create_group(store, path="theirs")
        assert next(iter(repo.ancestry(branch="main"))).message == "theirs"
