"""The ops log of a repository whose backups Frazil has collected, read and continued by the reference; and
what Frazil assumes of the entries that the reference writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from tests.maintenance.test_garbage import updated
from tests.maintenance.test_in_use import TOMORROW

import frazil
from frazil.repository.catalog import repo_update
from frazil.repository.clock import now_us

pytestmark = pytest.mark.interop


@pytest.mark.sample(1)
@pytest.mark.parametrize("keep", [4, 1000])
def test_the_reference_reads_and_continues_the_log(keep: int, tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path))
    repo = updated(storage, 40, keep)
    settings = icechunk.RepositoryConfig(num_updates_per_repo_info_file=keep)

    def theirs() -> Any:
        return icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)), settings)

    def log_entries() -> list[Any]:
        return [update.updated_at for update in theirs().ops_log()]

    before = log_entries()
    assert len(before) == 41
    assert repo.garbage_collect(TOMORROW).backups_deleted > 15
    assert log_entries()[1:] == before
    for number in range(12):
        other = theirs()
        with other.transaction("main", message=str(number)) as store:
            zarr.create_group(store, path="g", overwrite=True)
        mine = [update.updated_at for update in repo.ops_log()]
        assert log_entries() == mine
        assert len(mine) == 43 + number
        assert mine[-41:] == before


def test_the_reference_writes_no_entry_that_is_older_than_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times in the ops log are its sequence numbers: commits find collections by them."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    monkeypatch.setattr(repo_update, "now_us", lambda: now_us() + 3600 * 1_000_000)
    repo.create_tag("of the future", repo.lookup_branch("main"))
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    with pytest.raises(icechunk.IcechunkError, match="timestamp"):
        theirs.create_tag("of now", theirs.lookup_branch("main"))
