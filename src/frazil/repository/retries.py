"""Retries: how often, and after what pause. Errors about updates whose outcome is unknown.

After an error of the storage, pauses grow up to the limit of the settings. After a lost race, they grow only
until the writers are spread, and then become shorter with each loss, so that old losers have better chances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from frazil import host
from frazil.errors import ErrorKind, OutcomeUnknownError, StorageError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import OpsEntry, UpdateKind
from frazil.remedies import call
from frazil.storage.base import Condition, IfVersion, Refused, Storage

#: The longest pause after a lost race, in milliseconds.
_LONGEST_MS: Final = 5_000.0
#: The number of losses after which the longest pause becomes shorter, by a factor for each, down to a limit.
_SPREAD: Final = 12
_DECAY: Final = 0.9
_SHORTEST_MS: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after what pause, an update is retried when another writer was first."""

    tries: int = 100
    initial_backoff_ms: int = 50
    max_backoff_ms: int = 30_000
    #: How many attempts are made without a pause.
    eager: int = 5
    #: After how many errors of the storage the last one is raised.
    errors: int = 5

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after an attempt that failed, with jitter so that clients spread."""
        if attempt < self.eager:
            return host.random_between(0, 0.002 * (attempt + 1))
        return host.random_between(0.5, 1.0) * min(self._backoff(attempt), self.max_backoff_ms) / 1000

    def pause_after_loss(self, attempt: int) -> float:
        """Return the seconds to wait after an attempt in which another writer was first."""
        if attempt < self.eager:
            return self.pause(attempt)
        longest = max(_LONGEST_MS * _DECAY ** max(0, attempt - _SPREAD), _SHORTEST_MS)
        return host.random_between(0, min(self._backoff(attempt), longest, self.max_backoff_ms)) / 1000

    def _backoff(self, attempt: int) -> float:
        return self.initial_backoff_ms * 2.0 ** min(attempt - self.eager, 30)


def retried[T](read: Callable[[], T], policy: RetryPolicy) -> T:
    """Return the result of ``read``, and retry it after errors of the storage."""
    for failures in range(1, max(policy.errors, 1)):
        try:
            return read()
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                raise
        host.pause(policy.pause(policy.eager + failures - 1))
    return read()


_COMMITTED: Final = ("snapshot `{snapshot}`", "ancestry")
_BRANCH: Final = ("the place of the branch `{name}`", "lookup_branch")
#: What to look for, and the operation that shows it.
_LOOK: Final = {
    UpdateKind.NEW_COMMIT: _COMMITTED,
    UpdateKind.COMMIT_AMENDED: _COMMITTED,
    UpdateKind.NEW_DETACHED_SNAPSHOT: ("snapshot `{snapshot}`", "lookup_snapshot"),
    UpdateKind.BRANCH_CREATED: _BRANCH,
    UpdateKind.BRANCH_RESET: _BRANCH,
    UpdateKind.BRANCH_DELETED: ("the branch `{name}`", "list_branches"),
    UpdateKind.TAG_CREATED: ("the tag `{name}`", "list_tags"),
    UpdateKind.TAG_DELETED: ("the tag `{name}`", "list_tags"),
    UpdateKind.CONFIG_CHANGED: ("the configuration", "fetch_config"),
    UpdateKind.METADATA_CHANGED: ("the metadata", "get_metadata"),
    UpdateKind.FEATURE_FLAG_CHANGED: ("the setting", "feature_flags"),
    UpdateKind.REPO_STATUS_CHANGED: ("the status", "get_status"),
}
#: Errors of a storage that has not carried out the request, and would refuse it again.
_NOT_CARRIED_OUT: Final = frozenset(
    {
        ErrorKind.BUCKET_NOT_FOUND,
        ErrorKind.CREDENTIALS_MISSING,
        ErrorKind.CREDENTIALS_REFUSED,
        ErrorKind.INVALID_CREDENTIALS,
        ErrorKind.STORAGE_CONFIG,
        ErrorKind.STORAGE_FULL,
        ErrorKind.STORAGE_PERMISSION,
    }
)
_LOG: Final = ("the newest updates", "ops_log")


def outcome_unknown(entry: OpsEntry, why: str) -> OutcomeUnknownError:
    """Return the error for the update that ``entry`` describes. ``why`` is the reason in a few words."""
    snapshot = None if entry.new_snapshot is None else id_to_text(entry.new_snapshot)
    look, operation = _LOOK.get(entry.kind, _LOG)
    return OutcomeUnknownError(
        f"the update of the repository may or may not have taken effect: {why}", snapshot
    ).with_remedy(
        "Look for {} with `{}` before you repeat it",
        look.format(snapshot=snapshot, name=entry.name),
        call(operation),
    )


def not_applied(error: StorageError) -> StorageError:
    """Return the error for an update that certainly had no effect."""
    refused = StorageError(f"{error.problem}. The update had no effect and can be repeated", error.kind)
    refused.remedy = error.remedy
    return refused


def write_once(
    storage: Storage, key: str, data: bytes, policy: RetryPolicy, condition: Condition, what: str
) -> bool:
    """Write the object whose existence makes a storage a repository.

    ``data`` must differ from the data of every other writer. ``what`` describes the write in errors.
    """
    failure = StorageError(f"the storage refuses to write `{key}`, although no other writer has changed it")
    for attempt in range(policy.errors):
        try:
            if not isinstance(storage.put(key, data, condition), Refused):
                return True
        except StorageError as error:
            if error.kind in _NOT_CARRIED_OUT and not attempt:
                raise  # the first answer, so no earlier write is still in progress
            failure = error
        try:
            stored, version = retried(partial(storage.get_versioned, key), policy)
            if bytes(stored) == data:
                return True
            if condition != IfVersion(version):
                return False
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise _unknown(storage, what, error) from error
    if storage.is_local:  # no request is still in progress
        raise not_applied(failure) from failure
    raise _unknown(storage, what, failure) from failure


def _unknown(storage: Storage, what: str, error: StorageError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{what} may or may not have taken effect: an answer of the storage was lost ({error.problem})"
    ).with_remedy("Look for the result in {} with `{}` before you repeat it", storage.label(), call("exists"))
