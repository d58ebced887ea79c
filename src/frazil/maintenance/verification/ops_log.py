"""The ops log: the backups that contain its older parts, and the log against the branches and tags.

A file of the ops log names a backup for each of its updates except the newest one. The backup was written
directly after the update, so this update is the newest one in it. Most of these backups may be deleted. A
garbage collection keeps only the chain, in which each file names the file with the next older part of the
log.

Each update says how a ref was before and after it. All updates of one ref are compared in pairs: what one
update leaves is what the next one finds. What the last one leaves is the present state of the ref. An
expiration deletes refs without an update for each. A migration writes entries that are not exact, so older
entries are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import IcechunkError
from frazil.format.columns import I64
from frazil.format.ids import INITIAL_SNAPSHOT_ID, id_keys
from frazil.format.keys import REPO, backup_key
from frazil.format.ops_log import OpsLog, UpdateKind
from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.maintenance.verification.files import check_file, read_finding
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.ops_history import older_ops_backup
from frazil.storage.base import Storage
from frazil.threads import Purpose, thread_pool


@dataclass(frozen=True, slots=True)
class NamedBackup:
    """A backup that the ops log names, with the times of its newest update and of the update before.

    ``older`` is the backup that was written after the update before. It is None if no file names it.
    """

    name: str
    time: int
    older: str | None
    older_time: int


@dataclass(slots=True, eq=False)
class OpsChain:
    """The ops log: its parts, the newest first, with the findings of the files that contain them.

    ``is_complete`` says that the parts reach back to the first update.
    """

    findings: list[Finding] = field(default_factory=list)
    logs: list[OpsLog] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    is_complete: bool = False

    def named(self) -> Iterator[NamedBackup]:
        """Yield all backups that the log names."""
        if not self.names:  # the texts of `repo` are damaged
            return iter(())
        pairs = zip(self.names, self.times, [*self.names[1:], ""], [*self.times[1:], 0], strict=True)
        return (NamedBackup(name, time, older or None, at) for name, time, older, at in pairs if name)


def check_chain(storage: Storage, info: RepoInfo) -> OpsChain:
    """Read all parts of the ops log."""
    chain = OpsChain()
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


def check_backups(context: Context, item: tuple[None, Sequence[NamedBackup]]) -> Iterator[list[Finding]]:
    """Yield findings of backups: existing ones must be readable and not exchanged."""

    def check(backup: NamedBackup) -> list[Finding]:
        key = backup_key(backup.name)
        file = check_file(context.storage, key, lambda data, broken: decode_repo_info(data, key, broken))
        if file.value is None:
            return [] if file.is_missing else file.findings
        return [*file.findings, *_exchanged(key, backup, file.value)]

    with thread_pool(Purpose.VERIFICATION_READS) as pool:
        yield from pool.map(check, item[1])


def _exchanged(key: str, backup: NamedBackup, info: RepoInfo) -> Iterator[Finding]:
    times = info.ops.updated_at[:2].tolist()
    if times[:1] != [backup.time]:
        yield Finding(
            "exchanged", key, detail=f"the newest update is at {times[:1]} us, not {backup.time} us"
        )
    elif backup.older is not None and times[1:] and times[1] != backup.older_time:
        # The name of this backup is in the chain. Only the backup itself has its time.
        detail = f"the newest update is at {backup.older_time} us, not {times[1]} us"
        yield Finding("exchanged", backup_key(backup.older), detail=detail)


# The log against the refs

_BRANCH: Final = "branch"
_TAG: Final = "tag"
#: The state of a ref: absent, on a snapshot that is not known, or on a snapshot that the update names.
_ABSENT, _PRESENT, _PREVIOUS, _NEW = range(4)
#: What an update says about its ref: the kind of the ref, and the state before and after it.
_EFFECTS: Final = {
    UpdateKind.TAG_CREATED: (_TAG, _ABSENT, _PRESENT),
    UpdateKind.TAG_DELETED: (_TAG, _PREVIOUS, _ABSENT),
    UpdateKind.BRANCH_CREATED: (_BRANCH, _ABSENT, _PRESENT),
    UpdateKind.BRANCH_DELETED: (_BRANCH, _PREVIOUS, _ABSENT),
    UpdateKind.BRANCH_RESET: (_BRANCH, _PREVIOUS, _PRESENT),
    UpdateKind.NEW_COMMIT: (_BRANCH, _PRESENT, _NEW),
    UpdateKind.COMMIT_AMENDED: (_BRANCH, _PREVIOUS, _NEW),
}
_LAST: Final = np.iinfo(np.uint64).max
#: One update of a ref: its number, the time, whether the ref exists before and after it, and its snapshot
#: before and after it, zeros if it is not known.
_UPDATE: Final = np.dtype(
    [("ref", "i8"), ("time", "u8"), ("before", "?"), ("after", "?"), ("found", "S12"), ("left", "S12")]
)

type _Numbers = dict[tuple[str, str], int]


def ops_findings(info: RepoInfo, chain: OpsChain) -> Iterator[Finding]:
    """Yield refs that the ops log does not explain."""
    numbers: _Numbers = {}
    parts: list[NDArray[Any]] = []
    expirations = [np.zeros(0, np.uint64)]
    is_complete = chain.is_complete
    for log in chain.logs:
        migrations = np.flatnonzero(log.kinds == UpdateKind.REPO_MIGRATED)
        exact = log.newest(int(migrations[0])) if len(migrations) else log
        parts += _updates(exact, numbers)
        expirations.append(exact.updated_at[exact.kinds == UpdateKind.EXPIRATION_RAN])
        if len(migrations):
            is_complete = False
            break
    refs = {(_BRANCH, name): id_ for name, id_ in info.branches.items()}
    refs |= {(_TAG, name): id_ for name, id_ in info.tags.items()}
    for key in refs:
        numbers.setdefault(key, len(numbers))
    parts.append(_state_at(_LAST, refs, numbers))
    if is_complete:
        parts.append(_state_at(0, {(_BRANCH, "main"): INITIAL_SNAPSHOT_ID}, numbers))
    updates = np.concatenate(parts)
    updates = updates[np.lexsort((updates["time"], updates["ref"]))]
    names = list(numbers)
    for row in _contradictions(updates, np.sort(np.concatenate(expirations))).tolist():
        kind, name = names[int(updates["ref"][row])]
        time = int(updates["time"][row + 1])
        what = f"the present state of the {kind} `{name}`"
        what = what if time == _LAST else f"the {kind} `{name}` before {time} us"
        yield Finding("ops-refs", REPO, detail=f"the ops log does not explain {what}")


def _updates(log: OpsLog, numbers: _Numbers) -> Iterator[NDArray[Any]]:
    """Yield the updates of refs in a log, for each kind. New refs get numbers."""
    ids = {_PREVIOUS: log.previous, _NEW: log.new}
    for kind, (ref, before, after) in _EFFECTS.items():
        rows = np.flatnonzero(log.kinds == kind)
        updates = np.zeros(len(rows), _UPDATE)
        names = log.names.take(rows).texts()
        updates["ref"] = [numbers.setdefault((ref, name), len(numbers)) for name in names]
        updates["time"] = log.updated_at[rows]
        updates["before"], updates["after"] = before != _ABSENT, after != _ABSENT
        for column, state in (("found", before), ("left", after)):
            if state in ids:
                updates[column] = id_keys(ids[state][rows])
        yield updates


def _state_at(time: int, refs: Mapping[tuple[str, str], bytes], numbers: _Numbers) -> NDArray[Any]:
    """Return the state of all refs at a time, as an update of each that changes nothing."""
    states = np.zeros(len(numbers), _UPDATE)
    states["ref"], states["time"] = np.arange(len(numbers)), time
    states["before"] = states["after"] = [key in refs for key in numbers]
    states["found"] = states["left"] = [refs.get(key, b"") for key in numbers]
    return states


def _contradictions(updates: NDArray[Any], expirations: NDArray[np.uint64]) -> I64:
    """Return the rows whose state after the update is not that before the next update of the same ref."""
    one, two = updates[:-1], updates[1:]
    has_expired = np.searchsorted(expirations, two["time"]) > np.searchsorted(expirations, one["time"])
    wrong = one["after"] != two["before"]
    wrong &= ~(one["after"] & ~two["before"] & has_expired)  # an expiration has deleted the ref
    known = (one["left"] != b"") & (two["found"] != b"") & one["after"] & two["before"]
    wrong |= known & (one["left"] != two["found"])
    rows: I64 = np.flatnonzero(wrong & (one["ref"] == two["ref"]))
    return rows
