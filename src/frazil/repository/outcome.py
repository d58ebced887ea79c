"""Errors for changes whose outcome is unknown.

An answer of the storage is lost, and the objects that would show the outcome cannot be read. An error that
reports a failure would be a guess, and a caller who repeats the change may make it twice.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from frazil.errors import ErrorKind, OutcomeUnknownError, StorageError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import OpsEntry, UpdateKind
from frazil.repository.retries import RetryPolicy, retried
from frazil.storage.base import Condition, IfVersion, Refused, Storage

_COMMITTED: Final = "snapshot `{snapshot}` in `Repository.ancestry(branch={name!r})`"
_BRANCH: Final = "where the branch `{name}` is: `Repository.lookup_branch`"
_LOOK: Final = {
    UpdateKind.NEW_COMMIT: _COMMITTED,
    UpdateKind.COMMIT_AMENDED: _COMMITTED,
    UpdateKind.NEW_DETACHED_SNAPSHOT: "snapshot `{snapshot}` with `Repository.lookup_snapshot`",
    UpdateKind.BRANCH_CREATED: _BRANCH,
    UpdateKind.BRANCH_RESET: _BRANCH,
    UpdateKind.BRANCH_DELETED: "the branch `{name}` in `Repository.list_branches`",
    UpdateKind.TAG_CREATED: "the tag `{name}` in `Repository.list_tags`",
    UpdateKind.TAG_DELETED: "the tag `{name}` in `Repository.list_tags`",
    UpdateKind.CONFIG_CHANGED: "the configuration that `Repository.fetch_config` returns",
    UpdateKind.METADATA_CHANGED: "the metadata that `Repository.get_metadata` returns",
    UpdateKind.FEATURE_FLAG_CHANGED: "the setting in `Repository.feature_flags`",
    UpdateKind.REPO_STATUS_CHANGED: "the status that `Repository.get_status` returns",
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
_LOG: Final = "the newest entries of `Repository.ops_log`"


def outcome_unknown(entry: OpsEntry, why: str) -> OutcomeUnknownError:
    """Return the error for the update that ``entry`` describes. ``why`` is the reason in a few words."""
    snapshot = None if entry.new_snapshot is None else id_to_text(entry.new_snapshot)
    look = _LOOK.get(entry.kind, _LOG).format(snapshot=snapshot, name=entry.name)
    return OutcomeUnknownError(
        f"the update of the repository may or may not have taken effect: {why}. Look for {look} before you "
        "repeat it",
        snapshot,
    )


def not_applied(error: StorageError) -> StorageError:
    """Return the error for an update that certainly had no effect."""
    return StorageError(f"{error.message}. The update had no effect and can be repeated", error.kind)


def write_once(
    storage: Storage, key: str, data: bytes, policy: RetryPolicy, condition: Condition, what: str
) -> bool:
    """Write the object whose existence makes a storage a repository.

    ``data`` must differ from the data of every other writer. ``what`` describes the write in errors.

    Returns:
        True if the object was written, False if another writer was first.

    Raises:
        StorageError: If the storage refuses the write.
        OutcomeUnknownError: ``outcome-unknown`` if it is not known whether the write took effect.
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
        f"{what} may or may not have taken effect: an answer of the storage was lost ({error.message}). Look "
        f"for the result in {storage.label()} with `Repository.exists` and `Repository.open` before you "
        "repeat it"
    )
