"""The reference reads what was imported from older formats as Frazil does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from importer.tests.older import (
    BUCKET,
    FOLDERS,
    check_array,
    copy_of,
    expected_of,
    named,
    open_imported,
    virtual_config,
    virtual_objects,
)
from tests.expected import ancestry_of, diff_text, keys_of, refs_of

import frazil

pytestmark = [pytest.mark.deep, pytest.mark.interop, pytest.mark.filterwarnings("ignore:The data type")]


@pytest.mark.sample(9, 9)
@pytest.mark.parametrize("mode", ["copy", "reference", "in place"])
@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_the_reference_reads_it(folder: Path, mode: Any, tmp_path: Path) -> None:
    source = copy_of(folder, tmp_path / "old")
    target = source if mode == "in place" else tmp_path / "new"
    old, new = (frazil.local_filesystem_storage(str(path)) for path in (source, target))
    expected = expected_of(folder)
    with virtual_objects(folder, tmp_path) as places:
        config, access = virtual_config(frazil, places, (BUCKET,))
        options: dict[str, Any] = {"config": config, "authorize_virtual_chunk_access": access}
        if mode == "in place":
            report = frazil.upgrade(old, **options)
        else:
            report = frazil.upgrade(old, new, **options, chunks=mode)
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
                if node["type"] == "array" and not node["path"].startswith("/virt"):
                    check_array(session, node)
        with theirs.transaction("main", message="theirs") as store:
            zarr.create_group(store, path="theirs")
        assert next(iter(repo.ancestry(branch="main"))).message == "theirs"
