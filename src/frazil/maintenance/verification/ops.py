"""The ops log against the branches and tags: each update says how a ref was before and after it.

All updates of one ref are compared in pairs: what one update leaves is what the next one finds. What the last
one leaves is the present state of the ref. An expiration deletes refs without an update for each. A migration
writes entries that are not exact, so older entries are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8
from frazil.format.ids import INITIAL_SNAPSHOT_ID, OBJECT_ID_BYTES, id_keys, id_matrix
from frazil.format.keys import REPO
from frazil.format.ops_log import OpsLog, UpdateKind
from frazil.format.repo_info import RepoInfo
from frazil.maintenance.verification.findings import Finding

_BRANCH: Final = "branch"
_TAG: Final = "tag"
#: The state of a ref: absent, on a snapshot that is not known, or on a snapshot that the update names.
_ABSENT, _PRESENT, _PREVIOUS, _NEW = range(4)


@dataclass(frozen=True, slots=True)
class _Effect:
    """What an update says about its ref: the state before and after it."""

    ref: str
    before: int
    after: int


_EFFECTS: Final = {
    UpdateKind.TAG_CREATED: _Effect(_TAG, _ABSENT, _PRESENT),
    UpdateKind.TAG_DELETED: _Effect(_TAG, _PREVIOUS, _ABSENT),
    UpdateKind.BRANCH_CREATED: _Effect(_BRANCH, _ABSENT, _PRESENT),
    UpdateKind.BRANCH_DELETED: _Effect(_BRANCH, _PREVIOUS, _ABSENT),
    UpdateKind.BRANCH_RESET: _Effect(_BRANCH, _PREVIOUS, _PRESENT),
    UpdateKind.NEW_COMMIT: _Effect(_BRANCH, _PRESENT, _NEW),
    UpdateKind.COMMIT_AMENDED: _Effect(_BRANCH, _PREVIOUS, _NEW),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """States of refs, sorted by ref and time.

    refs      int64 (n,), the number of the ref
    times     uint64 (n,)
    present   bool (n, 2), whether the ref exists before and after
    ids       uint8 (n, 2, 12), its snapshot before and after, zeros if it is not known
    """

    refs: I64
    times: NDArray[np.uint64]
    present: NDArray[np.bool_]
    ids: U8


def ops_findings(info: RepoInfo, logs: Sequence[OpsLog], *, is_complete: bool) -> Iterator[Finding]:
    """Yield refs that the ops log does not explain. ``logs`` are the parts of the log, the newest first.

    ``is_complete`` says that the parts reach back to the first update.
    """
    names: list[tuple[str, str]] = []
    parts: list[_Steps] = []
    numbers: dict[tuple[str, str], int] = {}
    expirations: list[NDArray[np.uint64]] = []
    for log in logs:
        exact = _exact(log)
        is_complete &= len(exact) == len(log)
        parts.append(_steps_of(exact, numbers))
        expirations.append(exact.updated_at[exact.kinds == UpdateKind.EXPIRATION_RAN])
        if len(exact) < len(log):
            break
    parts.append(_present(info, numbers))
    if is_complete:
        parts.append(_beginning(numbers))
    names = list(numbers)
    steps = _sorted(parts)
    wrong = _contradictions(steps, np.sort(np.concatenate([np.zeros(0, np.uint64), *expirations])))
    for row in wrong.tolist():
        kind, name = names[int(steps.refs[row])]
        detail = f"the ops log does not explain the {kind} `{name}` before {int(steps.times[row + 1])} us"
        if steps.times[row + 1] == np.iinfo(np.uint64).max:
            detail = f"the ops log does not explain the present state of the {kind} `{name}`"
        yield Finding("ops-refs", REPO, detail=detail)


def _exact(log: OpsLog) -> OpsLog:
    """Return the updates after the last migration."""
    rows = np.flatnonzero(log.kinds == UpdateKind.REPO_MIGRATED)
    return log.newest(int(rows[0])) if len(rows) else log


def _numbers_of(kind: str, names: Sequence[str], numbers: dict[tuple[str, str], int]) -> I64:
    keys = [(kind, name) for name in names]
    for key in dict.fromkeys(keys):
        numbers.setdefault(key, len(numbers))
    return np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))


def _steps_of(log: OpsLog, numbers: dict[tuple[str, str], int]) -> _Steps:
    parts = []
    for kind, effect in _EFFECTS.items():
        rows = np.flatnonzero(log.kinds == kind)
        refs = _numbers_of(effect.ref, log.names.take(rows).texts(), numbers)
        nothing = np.zeros((len(rows), OBJECT_ID_BYTES), np.uint8)
        ids = {_ABSENT: nothing, _PRESENT: nothing, _PREVIOUS: log.previous[rows], _NEW: log.new[rows]}
        present = np.tile([effect.before != _ABSENT, effect.after != _ABSENT], (len(rows), 1))
        both = np.stack([ids[effect.before], ids[effect.after]], axis=1)
        parts.append(_Steps(refs, log.updated_at[rows], present, both))
    return _joined(parts)


def _present(info: RepoInfo, numbers: dict[tuple[str, str], int]) -> _Steps:
    """Return the present state of all refs, as the last step of each."""
    refs = {(_BRANCH, name): id_ for name, id_ in info.branches.items()}
    refs |= {(_TAG, name): id_ for name, id_ in info.tags.items()}
    for key in refs:
        numbers.setdefault(key, len(numbers))
    zero = bytes(OBJECT_ID_BYTES)
    ids = id_matrix([refs.get(key, zero) for key in numbers])
    present = np.array([key in refs for key in numbers], bool)
    times = np.full(len(numbers), np.iinfo(np.uint64).max)
    return _Steps(
        np.arange(len(numbers)), times, np.stack([present, present], axis=1), np.stack([ids, ids], axis=1)
    )


def _beginning(numbers: dict[tuple[str, str], int]) -> _Steps:
    """Return the state of all refs in a new repository, as the first step of each."""
    main = np.array([key == (_BRANCH, "main") for key in numbers], bool)
    ids = np.where(main[:, None], np.frombuffer(INITIAL_SNAPSHOT_ID, np.uint8), 0).astype(np.uint8)
    times = np.zeros(len(numbers), np.uint64)
    return _Steps(
        np.arange(len(numbers)), times, np.stack([main, main], axis=1), np.stack([ids, ids], axis=1)
    )


def _joined(parts: Sequence[_Steps]) -> _Steps:
    columns: list[Any] = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("refs", "times", "present", "ids")
    ]
    return _Steps(*columns)


def _sorted(parts: Sequence[_Steps]) -> _Steps:
    whole = _joined(parts)
    order = np.lexsort((whole.times, whole.refs))
    return _Steps(whole.refs[order], whole.times[order], whole.present[order], whole.ids[order])


def _contradictions(steps: _Steps, expirations: NDArray[np.uint64]) -> I64:
    """Return the rows whose state after the step is not that before the next step of the same ref."""
    same = steps.refs[:-1] == steps.refs[1:]
    left, next_ = steps.present[:-1, 1], steps.present[1:, 0]
    between = np.searchsorted(expirations, steps.times[1:]) > np.searchsorted(expirations, steps.times[:-1])
    wrong = left != next_
    wrong &= ~(left & ~next_ & between)  # an expiration has deleted the ref
    after = id_keys(steps.ids[:-1, 1].reshape(-1, OBJECT_ID_BYTES))
    before = id_keys(steps.ids[1:, 0].reshape(-1, OBJECT_ID_BYTES))
    zero = np.zeros(1, after.dtype)[0]
    both = (after != zero) & (before != zero) & left & next_
    rows: I64 = np.flatnonzero(same & (wrong | (both & (after != before))))
    return rows


__all__ = ["ops_findings"]
