"""The reference reads a repository after undo, redo and restoration, and continues to write to it."""

from __future__ import annotations

from pathlib import Path

import pytest
import zarr
from tests.support.judge import reference, reference_storage, same_by_reference

import frazil


@pytest.mark.deep
def test_the_reference_reads_what_an_undo_leaves(tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    for number in range(3):
        with repo.transaction("main", message=str(number)) as store:
            zarr.create_array(store, name=f"a{number}", shape=(2,), dtype="i4")[:] = number
    start = next(repo.ops_log())
    repo.create_branch("dev", "main")
    repo.set_metadata({"owner": "team"})
    repo.undo(branch="main")
    repo.restore_to(start)
    repo.undo()
    same_by_reference(tmp_path, repo)

    theirs = reference().Repository.open(reference_storage(tmp_path))
    ours = [type(update.kind).__name__ for update in repo.ops_log()]
    assert [type(update.kind).__name__ for update in theirs.ops_log()] == ours
    session = theirs.writable_session("main")
    zarr.create_group(session.store, path="theirs")
    session.commit("by the reference")
    repo.undo()  # of the commit of the reference
    assert next(repo.ancestry(branch="main")).message == "1"
    repo.redo()
    same_by_reference(tmp_path, repo)
    assert repo.verify().ok
