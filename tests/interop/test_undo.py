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
    repo.history.undo(branch="main").apply()
    repo.history.restore_to(start).apply()
    repo.history.undo().apply()
    same_by_reference(tmp_path, repo)

    theirs = reference().Repository.open(reference_storage(tmp_path))
    ours = [type(update.kind).__name__ for update in repo.ops_log()]
    assert [type(update.kind).__name__ for update in theirs.ops_log()] == ours
    session = theirs.writable_session("main")
    zarr.create_group(session.store, path="theirs")
    session.commit("by the reference")
    repo.history.undo().apply()  # of the commit of the reference
    assert next(repo.ancestry(branch="main")).message == "1"
    repo.history.redo().apply()
    same_by_reference(tmp_path, repo)
    assert repo.upkeep.verify().ok


@pytest.mark.deep
def test_undo_goes_on_after_the_reference_replaced_the_metadata(tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    for number in range(5):
        repo.set_metadata({"n": number})
    repo.history.undo().apply()
    repo.history.undo().apply()
    theirs = reference().Repository.open(reference_storage(tmp_path))
    theirs.update_metadata({"owner": "theirs"})  # which keeps the record
    repo.history.undo().apply()
    assert repo.get_metadata() == {"n": 2}
    theirs = reference().Repository.open(reference_storage(tmp_path))
    theirs.set_metadata({"owner": "theirs"})  # which removes it
    assert repo.get_metadata() == {"owner": "theirs"}
    for number in (2, 1, 0):
        repo.history.undo().apply()
        assert repo.get_metadata() == {"n": number}
    for number in (1, 2):
        repo.history.redo().apply()
        assert repo.get_metadata() == {"n": number}
    assert repo.upkeep.verify().ok
