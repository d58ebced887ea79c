"""The search for an attempt of an update that took effect, although its request did not report success.

Each attempt has a backup with a random name, which the new ``repo`` contains. So ``repo``, or an older
backup, shows whether an attempt took effect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from frazil.errors import FormatError, RepositoryNotFoundError, StorageError
from frazil.format.keys import backup_key
from frazil.format.repo_info import OpsEntry, RepoInfo, decode_repo_info
from frazil.repository.catalog.ops_history import ops_start
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.outcome import outcome_unknown
from frazil.repository.retries import RetryPolicy, retried
from frazil.storage.base import Storage, Version


class SentUpdates:
    """The attempts of one update that did not report success."""

    def __init__(self, storage: Storage, policy: RetryPolicy) -> None:
        self._storage = storage
        self._policy = policy
        self._infos: dict[str, RepoInfo] = {}
        self._unanswered: list[Version] = []
        self._since = 0
        self._entry: OpsEntry | None = None

    def add_attempt(self, backup: str, after: RepoInfo, entry: OpsEntry, since: int) -> None:
        """Record an attempt before its request. The newest update before it was at ``since``."""
        self._since = self._since or since
        self._infos[backup] = after
        self._entry = entry

    def has_attempt(self, backup: str) -> bool:
        """Return whether the request of the attempt with this backup may have been made."""
        return backup in self._infos

    def add_unanswered(self, backup: str, version: Version) -> None:
        """Record that the storage answered an attempt with an error, or did not answer.

        Attempts that failed before their request do not count.
        """
        if self.has_attempt(backup):
            self._unanswered.append(version)

    def read[T](self, read: Callable[[], T]) -> T:
        """Call ``read``, with retries. Raises ``OutcomeUnknownError`` if an attempt was made and it fails.

        The result of ``read`` shows whether an attempt took effect.
        """
        if self._entry is None:
            return read()
        try:
            return retried(read, self._policy)
        except (StorageError, FormatError, RepositoryNotFoundError) as error:
            why = f"an answer of the storage was lost, and the repository cannot be read ({error.problem})"
            raise outcome_unknown(self._entry, why) from error

    def applied(self, info: RepoInfo) -> RepoInfo | None:
        """Return the repo info of the attempt that took effect, or None if no attempt did.

        The search reads the current ``info`` and older backups.
        """
        while self._infos:
            for name in (*info.ops.backups.texts(), info.repo_before_updates):
                if name in self._infos:
                    return self._infos[name]
            oldest = int(info.ops.updated_at[-1]) if len(info.ops) else self._since
            if oldest <= self._since:
                break
            if info.repo_before_updates is None:
                if self._entry is not None and ops_start(info) is not None:
                    why = "a garbage collection has removed the part of the ops log that tells"
                    raise outcome_unknown(self._entry, why)
                break
            info = self.read(partial(_read_backup, self._storage, info.repo_before_updates))
        return None

    def settled(self) -> RepoInfo | None:
        """Return the result of ``applied`` after the last attempt.

        Raises ``OutcomeUnknownError`` if the storage may still execute a request.
        """
        if self._entry is None:
            return None
        info, version, _ = self.read(partial(read_repo_info, self._storage))
        applied = self.applied(info)
        if applied is None and version in self._unanswered and not self._storage.is_local:
            why = "the storage did not answer, and may still execute the request"
            raise outcome_unknown(self._entry, why)
        return applied


def _read_backup(storage: Storage, name: str) -> RepoInfo:
    key = backup_key(name)
    return decode_repo_info(storage.get(key), key)
