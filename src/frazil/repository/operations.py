"""What was done to a repository."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from frazil.format.keys import backup_key
from frazil.format.repo_info import OpsEntry, RepoInfo, decode_repo_info
from frazil.storage.base import Storage


def ops_log(storage: Storage, info: RepoInfo) -> Iterator[OpsEntry]:
    """All operations, newest first; the older part is read from the backups as it is asked for."""
    name: str | None = None
    while True:
        entries = map(info.ops.entry, range(len(info.ops)))
        # What does not say where it is, is in this file: its newest, and all that came by an upgrade.
        yield from (replace(entry, backup_path=entry.backup_path or name) for entry in entries)
        name = info.repo_before_updates
        if name is None:
            return
        key = backup_key(name)
        info = decode_repo_info(storage.get(key), key)
