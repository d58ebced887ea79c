"""Retries, and turns: what writers do that lose races against each other, or get no answer.

After an error of the storage, pauses grow up to the limit of the settings. After a lost race, they grow only
until the writers are spread, and then become shorter with each loss, so that old losers have better chances.

Commits with many files take turns. A writer puts a small object, a **ticket**, under ``turns/BRANCH/``, and
commits when no older ticket of its first listing is left. The name of a ticket begins with the time of its
writer. Turns only save work: safety is in the conditional write of ``repo``. Waiting writers renew their
tickets, so a ticket that is much older than the newest one is dead, by the storage's own clock. If the holder
of the turn keeps it for ``_LONGEST_TURN_S``, the next writer deletes its ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import Final

from frazil import host
from frazil.errors import ErrorKind, OutcomeUnknownError, StorageError
from frazil.format.ids import REPO, id_to_text
from frazil.format.repo_info import OpsEntry, UpdateKind
from frazil.remedies import call
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.ids import new_object_id
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
        except OutcomeUnknownError as error:
            raise _unknown(storage, what, error.problem) from error
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
                raise _unknown(
                    storage, what, f"an answer of the storage was lost ({error.problem})"
                ) from error
    if storage.is_local:  # no request is still in progress
        raise not_applied(failure) from failure
    raise _unknown(storage, what, f"an answer of the storage was lost ({failure.problem})") from failure


def _unknown(storage: Storage, what: str, why: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"{what} may or may not have taken effect: {why}").with_remedy(
        "Look for the result in {} with `{}` before you repeat it", storage.label(), call("exists")
    )


TURNS: Final = "turns"

#: How long a writer may keep its turn while others wait, in seconds.
_LONGEST_TURN_S: Final = 30.0
#: A waiting writer renews its ticket after this time, in seconds.
_RENEWAL_S: Final = 20.0
#: A ticket that was not renewed for this time is ignored.
_DEAD_AFTER: Final = timedelta(seconds=60)
#: About how many requests a commit makes one after the other.
_REQUESTS: Final = 8


@contextmanager
def commit_queue(storage: Storage, branch: str, longest_s: float | None = None) -> Iterator[bool]:
    """Wait until no other writer has an older ticket for ``branch``, and hold the turn during the block.

    Yields whether other writers were first. After ``longest_s`` seconds, or an error of the storage, the
    commit is tried without a turn.
    """
    folder = f"{TURNS}/{blake2b(branch.encode(), digest_size=8).hexdigest()}"
    ticket = f"{folder}/{now_us() // 1000:014d}-{id_to_text(new_object_id())}"
    try:
        has_waited = False
        with suppress(StorageError):
            has_waited = _wait(storage, folder, ticket, longest_s)
        yield has_waited
    finally:
        with suppress(StorageError):  # the next writer deletes it
            storage.delete([ticket])


def turn_of(storage: Storage, branch: str) -> AbstractContextManager[object]:
    """Return a context that waits for the other writers of a branch, and holds the turn during its block."""
    return storage.local_queue(REPO) if storage.is_local else commit_queue(storage, branch)


def delete_dead(storage: Storage, now: int) -> None:
    """Delete the tickets of writers that died long before ``now``, a time of the storage's clock."""
    if not storage.is_local:
        limit = to_datetime(now) - _DEAD_AFTER
        storage.delete([each.key for each in storage.list(TURNS) if each.modified < limit])


def _wait(storage: Storage, folder: str, ticket: str, longest_s: float | None) -> bool:
    """Return when no older ticket is left, or after ``longest_s`` seconds. True if there was one."""
    begin = renewed = oldest_since = host.monotonic_seconds()
    end = None if longest_s is None else begin + longest_s
    queue: frozenset[str] | None = None  # the older tickets in the first listing
    oldest, most, has_waited = "", 0, False
    storage.put(ticket, b"{}")
    while True:
        start = host.monotonic_seconds()
        tickets = {each.key: each.modified for each in storage.list(folder)}
        newest = max(tickets.values(), default=None)
        dead = [key for key, time in tickets.items() if newest is not None and newest - time > _DEAD_AFTER]
        if queue is None:
            queue = frozenset(key for key in tickets if key < ticket)
        ahead = sorted((queue & tickets.keys()).difference(dead))
        now = host.monotonic_seconds()
        if not ahead or ahead[0] != oldest:
            oldest, oldest_since = (ahead or [""])[0], now
        elif len(ahead) == 1 and now - oldest_since > _LONGEST_TURN_S:
            dead += ahead
            ahead = []
        if dead:
            storage.delete([key for key in dead if key != ticket])
        if not ahead or (end is not None and now >= end):
            return has_waited
        has_waited = True
        most = max(most, len(ahead))
        passed = most - len(ahead)
        # A turn takes as long as the turns that have passed, or some requests if none has passed yet.
        turn_s = (now - begin) / passed if passed else (now - start) * _REQUESTS
        longest = max(2 * (now - start), turn_s / 10, (len(ahead) - 1) * turn_s)
        pause = host.random_between(0.5, 1.0) * min(longest, _LONGEST_TURN_S / 3)
        host.pause(pause if end is None else min(pause, max(0.0, end - now)))
        if host.monotonic_seconds() - renewed > _RENEWAL_S:
            storage.put(ticket, b"{}")
            renewed = host.monotonic_seconds()
