"""The backups of ``repo`` that contain the older parts of the ops log.

A file of the ops log names a backup for each of its updates except the newest one. The backup was
written directly after the update, so this update is the newest one in it. Most of these backups may be
deleted. A garbage collection keeps only the chain, in which each file names the file with the next
older part of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from frazil.errors import FormatError, IcechunkError
from frazil.format.keys import OVERWRITTEN, REPO, backup_key
from frazil.format.ops_log import OpsLog, UpdateKind
from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.format.rules.repo_info import repo_info_violations
from frazil.maintenance.verification.file_checks import check_file, read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.ops_history import older_ops_backup
from frazil.storage.base import Storage
from frazil.threads import Purpose, thread_pool

#: Number of the newest backups that are tried to find a readable one.
_TRIED: Final = 20


@dataclass(frozen=True, slots=True)
class Named:
    """A backup that the ops log names, with the times of its newest update and of the update before.

    ``older`` is the backup that was written after the update before. It is None if no file names it.
    """

    name: str
    time: int
    older: str | None
    older_time: int


@dataclass(slots=True, eq=False)
class Chain:
    """The ops log: its parts, the newest first, with the findings of the files that contain them.

    ``is_complete`` says that the parts reach back to the first update.
    """

    findings: list[Finding] = field(default_factory=list)
    logs: list[OpsLog] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    is_complete: bool = False

    def named(self) -> Iterator[Named]:
        """Yield all backups that the log names."""
        if not self.names:  # the texts of `repo` are damaged
            return iter(())
        pairs = zip(self.names, self.times, [*self.names[1:], ""], [*self.times[1:], 0], strict=True)
        return (Named(name, time, older or None, at) for name, time, older, at in pairs if name)


def check_chain(storage: Storage, info: RepoInfo) -> Chain:
    """Read all parts of the ops log."""
    chain = Chain()
    part: RepoInfo | None = info
    name = ""
    while part is not None:
        key = backup_key(name) if name else REPO
        try:
            # The newest update in a file names no backup, because this would be the file itself.
            chain.names += [name, *part.ops.backups.texts()[1:]]
            chain.times += part.ops.updated_at.tolist()
            chain.logs.append(part.ops)
            name = part.repo_before_updates or ""
            key = backup_key(name)
            part = older_ops_backup(storage, part)
        except IcechunkError as error:
            chain.findings.append(read_finding(error, key))
            return chain
    oldest = chain.logs[-1].kinds
    chain.is_complete = len(oldest) > 0 and int(oldest[-1]) == UpdateKind.REPO_INITIALIZED
    return chain


def check_named(storage: Storage, named: Sequence[Named]) -> Iterator[list[Finding]]:
    """Yield findings of backups: existing ones must be readable and not exchanged. A piece of work."""

    def check(backup: Named) -> list[Finding]:
        key = backup_key(backup.name)
        file = check_file(storage, key, lambda data: decode_repo_info(data, key), repo_info_violations)
        if file.value is None:
            return [] if file.is_missing else file.findings
        return [*file.findings, *_exchanged(key, backup, file.value)]

    with thread_pool(Purpose.VERIFICATION_READS) as pool:
        yield from pool.map(check, named)


def _exchanged(key: str, backup: Named, info: RepoInfo) -> Iterator[Finding]:
    times = info.ops.updated_at[:2].tolist()
    if times[:1] != [backup.time]:
        yield Finding(
            "exchanged", key, detail=f"the newest update is at {times[:1]} us, not {backup.time} us"
        )
    elif backup.older is not None and times[1:] and times[1] != backup.older_time:
        # The name of this backup is in the chain. Only the backup itself has its time.
        detail = f"the newest update is at {backup.older_time} us, not {times[1]} us"
        yield Finding("exchanged", backup_key(backup.older), detail=detail)


def newest_readable(storage: Storage) -> tuple[str, RepoInfo] | None:
    """Return the newest backup of ``repo`` that can be read, with its key, or None."""
    keys = (each.key for each in storage.list(OVERWRITTEN))
    for key in islice(sorted(keys), _TRIED):  # newer backups have smaller names
        try:
            return key, decode_repo_info(storage.get(key), key)
        except FormatError:
            continue
    return None
