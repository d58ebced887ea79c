"""The ops log across the files it is spread over."""

from __future__ import annotations

import frazil


def test_every_older_entry_names_its_backup() -> None:
    """Also the newest entry of a backup, which in that file has no name yet."""
    config = frazil.RepositoryConfig(num_updates_per_repo_info_file=2)
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    for number in range(7):
        repo.create_branch(f"b{number}", repo.lookup_branch("main"))
    log = list(repo.ops_log())
    assert len(log) == 8
    assert log[0].backup_path is None
    paths = [update.backup_path for update in log[1:]]
    backups = {entry.key.removeprefix("overwritten/") for entry in repo.storage.list("overwritten/")}
    assert len(set(paths)) == 7
    assert set(paths) == backups
