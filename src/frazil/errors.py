"""Every error that Frazil raises on purpose, drawn as one tree.

    IcechunkError                 message, kind
    ├── ConflictError             somebody else was first: look again, then retry or rebase
    │   └── RebaseFailedError     the conflicts that no solver took
    │       └── StaleReadError    others changed what was read: read and write again
    ├── NotFoundError             (also KeyError)
    │   ├── NodeNotFoundError
    │   ├── SnapshotNotFoundError
    │   ├── RefNotFoundError
    │   ├── RepositoryNotFoundError
    │   └── KeyNotFoundError      (also FileNotFoundError): as zarr expects of a store
    ├── AlreadyExistsError
    ├── ReadOnlyError
    │   └── ReadOnlyStoreError    (also ValueError): as zarr expects of a store
    ├── InvalidInputError         (also ValueError): the caller's arguments
    │   └── InvalidMetadataError  (also TypeError)
    ├── SessionStateError         right call, wrong moment
    │   └── SessionSnapshotNotFoundError
    ├── StorageError              the storage answered with an error, or not at all
    │   └── OutcomeUnknownError   nobody knows whether the change took effect: look before repeating it
    ├── ValidationFailedError     data are not what the rules of their owner say
    ├── TaskFailedError           a task of a job failed for good; its kind is that of what the task raised
    ├── FormatError               bytes in storage are not what the specification says
    ├── MissingExtraError         (also ModuleNotFoundError): an optional package is not installed
    └── InternalError             a defect in Frazil

Classes say what a handler would do next; ``kind`` says exactly what happened. Kinds are stable and
only ever appended. This module imports nothing of Frazil, so that every room may raise from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, cast


class ErrorKind(StrEnum):
    """Stable code of an error. The names are those of the reference, plus a few of Frazil's own."""

    # conflicts
    COMMIT_CONFLICT = "commit-conflict"
    BRANCH_UPDATE_CONFLICT = "branch-update-conflict"
    REBASE_FAILED = "rebase-failed"
    CONFIG_UPDATED = "config-updated"
    REPO_INFO_UPDATED = "repo-info-updated"
    UPDATE_ATTEMPTS_EXHAUSTED = "update-attempts-exhausted"
    GC_DELETES_FAILING = "gc-deletes-failing"

    # not found
    NODE_NOT_FOUND = "node-not-found"
    ANCESTOR_NODE_NOT_FOUND = "ancestor-node-not-found"
    CHUNK_NOT_FOUND = "chunk-not-found"
    KEY_NOT_FOUND = "key-not-found"
    SNAPSHOT_NOT_FOUND = "snapshot-not-found"
    NO_SNAPSHOT_AT_TIME = "no-snapshot-at-time"
    REF_NOT_FOUND = "ref-not-found"
    BRANCH_NOT_FOUND = "branch-not-found"
    TAG_NOT_FOUND = "tag-not-found"
    REPOSITORY_NOT_FOUND = "repository-not-found"
    MANIFEST_INFO_NOT_FOUND = "manifest-info-not-found"

    # already exists
    NODE_ALREADY_EXISTS = "node-already-exists"
    BRANCH_ALREADY_EXISTS = "branch-already-exists"
    TAG_ALREADY_EXISTS = "tag-already-exists"
    TAG_PREVIOUSLY_DELETED = "tag-previously-deleted"
    MOVE_WONT_OVERWRITE = "move-wont-overwrite"

    # read only
    READ_ONLY_SESSION = "read-only-session"
    READ_ONLY_STORE = "read-only-store"
    READ_ONLY_STORAGE = "read-only-storage"
    READ_ONLY_REPOSITORY = "read-only-repository"

    # invalid input
    INVALID_KEY = "invalid-key"
    INVALID_CHUNK_INDEX = "invalid-chunk-index"
    ZERO_LENGTH_CHUNK = "zero-length-chunk"
    INVALID_MANIFEST_SPLIT_INDEX = "invalid-manifest-split-index"
    INVALID_REF_TYPE = "invalid-ref-type"
    INVALID_REF_NAME = "invalid-ref-name"
    INVALID_SNAPSHOT_ID = "invalid-snapshot-id"
    INVALID_PATH = "invalid-path"
    BAD_KEY_PREFIX = "bad-key-prefix"
    BAD_METADATA = "bad-metadata"
    BAD_PREFIX = "bad-prefix"
    NOT_AN_ARRAY = "not-an-array"
    NOT_A_GROUP = "not-a-group"
    INVALID_BYTE_RANGE = "invalid-byte-range"
    INVALID_COMMIT_CONFIGURATION = "invalid-commit-configuration"
    INVALID_ARRAY_METADATA = "invalid-array-metadata"
    INVALID_FEATURE_FLAG = "invalid-feature-flag"
    INVALID_VIRTUAL_REF = "invalid-virtual-ref"
    INVALID_CREDENTIALS = "invalid-credentials"
    NO_CONTAINER_FOR_VIRTUAL_CHUNK = "no-container-for-virtual-chunk"
    UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER = "unauthorized-virtual-chunk-container"
    EMPTY_PREFIX_CREATION = "empty-prefix-creation"
    PARENT_DIRECTORY_NOT_CLEAN = "parent-directory-not-clean"
    BAD_SNAPSHOT_CHAIN_FOR_DIFF = "bad-snapshot-chain-for-diff"
    BAD_SOURCE = "bad-source"  # Frazil only
    INVALID_ARGUMENT = "invalid-argument"  # Frazil only
    UNKNOWN_CHOICE = "unknown-choice"  # Frazil only
    UNSUPPORTED_ARRAY = "unsupported-array"  # Frazil only
    CONFLICTING_ARGUMENTS = "conflicting-arguments"  # Frazil only

    # session and repository state
    COMMIT_NOT_ALLOWED = "commit-not-allowed"
    MERGE_NOT_ALLOWED = "merge-not-allowed"
    CANNOT_FORK_READ_ONLY_SESSION = "cannot-fork-read-only-session"
    REARRANGE_SESSION_ONLY = "rearrange-session-only"
    NON_REARRANGE_SESSION = "non-rearrange-session"
    MOVE_INTO_SELF_OR_DESCENDANT = "move-into-self-or-descendant"
    MOVE_DESTINATION_PARENT_MISSING = "move-destination-parent-missing"
    MOVE_DESTINATION_PARENT_NOT_GROUP = "move-destination-parent-not-group"
    NO_CHANGES_TO_COMMIT = "no-changes-to-commit"
    NO_AMEND_FOR_INITIAL_COMMIT = "no-amend-for-initial-commit"
    NOT_ON_BRANCH = "not-on-branch"
    NO_SNAPSHOT = "no-snapshot"
    CANNOT_DELETE_MAIN = "cannot-delete-main"
    UNCOMMITTED_CHANGES = "uncommitted-changes"
    MERGE_FAILED = "merge-failed"
    NOT_ALLOWED = "not-allowed"
    UNIMPLEMENTED = "unimplemented"
    REBASE_TX_LOG_PRUNED = "rebase-tx-log-pruned"
    FEATURE_FLAG_DISABLED = "feature-flag-disabled"
    TAG_ERROR = "tag-error"
    INVALID_REPOSITORY_MIGRATION = "invalid-repository-migration"
    SESSION_EXPIRED = "session-expired"  # Frazil only
    GARBAGE_COLLECTED = "garbage-collected"  # Frazil only
    GARBAGE_COLLECTION_RUNNING = "garbage-collection-running"  # Frazil only

    # storage and environment
    OBJECT_NOT_FOUND = "object-not-found"
    OBJECT_STORE = "object-store"
    IO = "io"
    STORAGE_CONFIG = "storage-config"
    CANNOT_PARSE_URL = "cannot-parse-url"
    BAD_REDIRECT = "bad-redirect"
    SEMAPHORE_ACQUIRE = "semaphore-acquire"
    THROTTLED = "throttled"
    STORAGE_OTHER = "storage-other"
    VIRTUAL_CHUNK_FETCH = "virtual-chunk-fetch"
    VIRTUAL_CHUNK_MODIFIED = "virtual-chunk-modified"
    INVALID_OBJECT_SIZE = "invalid-object-size"
    CONDITIONS_NOT_SUPPORTED = "conditions-not-supported"  # Frazil only
    FORKED_PROCESS = "forked-process"  # Frazil only
    CREDENTIALS_MISSING = "credentials-missing"  # Frazil only
    CREDENTIALS_REFUSED = "credentials-refused"  # Frazil only
    STORAGE_PERMISSION = "storage-permission"  # Frazil only
    BUCKET_NOT_FOUND = "bucket-not-found"  # Frazil only
    STORAGE_UNREACHABLE = "storage-unreachable"  # Frazil only
    STORAGE_TIMEOUT = "storage-timeout"  # Frazil only
    STORAGE_FULL = "storage-full"  # Frazil only
    OUTCOME_UNKNOWN = "outcome-unknown"  # Frazil only

    # format
    SERIALIZATION = "serialization"
    DESERIALIZATION = "deserialization"
    CONFIG_DESERIALIZATION = "config-deserialization"
    INVALID_FILE_FORMAT = "invalid-file-format"
    UNSUPPORTED_SPEC_VERSION = "unsupported-spec-version"
    UNSUPPORTED_OPERATION_FOR_VERSION = "unsupported-operation-for-version"
    SNAPSHOT_TIMESTAMP = "snapshot-timestamp"
    DUPLICATE_SNAPSHOT_ID = "duplicate-snapshot-id"

    # internal
    CONCURRENCY = "concurrency"
    FLUSH = "flush"
    PARTIAL_VALUES_PANIC = "partial-values-panic"
    CONFLICTING_PATH_NOT_FOUND = "conflicting-path-not-found"
    INCONSISTENT_MANIFESTS = "inconsistent-manifests"
    POISON_LOCK = "poison-lock"
    PICKLE = "pickle"
    UNKNOWN = "unknown"

    # data
    VALIDATION_FAILED = "validation-failed"  # Frazil only
    DATA_MISMATCH = "data-mismatch"  # Frazil only

    # trust
    UNTRUSTED_VIRTUAL_CHUNK_CONTAINER = "untrusted-virtual-chunk-container"  # Frazil only
    SECRET_IN_CONFIG = "secret-in-config"  # Frazil only
    LINK_OUTSIDE = "link-outside"  # Frazil only
    REDIRECT_REFUSED = "redirect-refused"  # Frazil only

    # reads
    STALE_READ = "stale-read"  # Frazil only

    # installation
    MISSING_EXTRA = "missing-extra"  # Frazil only

    # tasks
    TASK_FAILED = "task-failed"  # Frazil only
    WORKER_LOST = "worker-lost"  # Frazil only

    # chunks
    UNDECODABLE_CHUNK = "undecodable-chunk"  # Frazil only


def _member(kind: str) -> ErrorKind:
    """The kind with this text. Frazil has no others; what other code makes up stays the text that it is."""
    return ErrorKind(kind) if kind in _TEXTS else cast("ErrorKind", kind)


_TEXTS: Final = frozenset(ErrorKind)


class IcechunkError(Exception):
    """Base of all errors. ``kind`` is an ``ErrorKind``, which is text.

    >>> try:
    ...     raise NotFoundError("branch `dev` not found", ErrorKind.BRANCH_NOT_FOUND)
    ... except IcechunkError as error:
    ...     print(error.kind)
    branch-not-found
    """

    default_kind = ErrorKind.UNKNOWN

    def __init__(self, message: str, kind: str | None = None) -> None:
        self.message = message
        self.kind: ErrorKind = self.default_kind if kind is None else _member(kind)
        super().__init__(message, self.kind)

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"frazil.{type(self).__name__}({self._shown()})"

    def _shown(self) -> str:
        return f'message="{self.message}", kind="{self.kind}"'

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.kind))


class ConflictError(IcechunkError):
    """Another writer moved the branch first. Nothing was written to it.

    ``expected_parent`` is the snapshot this session started from, ``actual_parent`` the one the
    branch points to now; either may be None when there is none.
    """

    default_kind = ErrorKind.COMMIT_CONFLICT

    def __init__(
        self,
        expected_parent: str | None = None,
        actual_parent: str | None = None,
        message: str | None = None,
        kind: str | None = None,
    ) -> None:
        text = message or (
            f"the branch was updated by another writer: expected parent {expected_parent}, found "
            f"{actual_parent}"
        )
        super().__init__(text, kind)
        self.args = (expected_parent, actual_parent)
        self.expected_parent = expected_parent
        self.actual_parent = actual_parent

    def _shown(self) -> str:
        return f"expected_parent={self.expected_parent}, actual_parent={self.actual_parent}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.expected_parent, self.actual_parent, self.message, self.kind))


#: Conflicts that the message of a failed rebase names, and chunks of each.
_CONFLICTS_NAMED: Final = 3
_ADVICE: Final = "Rebase with a solver that decides them, or make the changes again in a new session"


def _conflict(conflict: Any) -> str:
    """Return a conflict in a few words; of any class, for this module imports none."""
    kind = getattr(conflict, "conflict_type", None)
    chunks = getattr(conflict, "chunks", None)
    text = f"{getattr(kind, 'name', conflict)} at {getattr(conflict, 'path', '?')}"
    if chunks is None or not len(chunks):
        return text
    first = [str([int(i) for i in chunk]) for chunk in chunks[:_CONFLICTS_NAMED]]
    more = ["..."] if len(chunks) > _CONFLICTS_NAMED else []
    return f"{text}, chunks {', '.join(first + more)}"


class RebaseFailedError(ConflictError):
    """A rebase stopped at ``snapshot`` with ``conflicts`` that the solver did not resolve.

    ``advice`` is a sentence for the end of the message.
    """

    default_kind = ErrorKind.REBASE_FAILED

    def __init__(self, snapshot: str, conflicts: Sequence[Any] = (), advice: str = "") -> None:
        self.snapshot = snapshot
        self.conflicts = list(conflicts)
        self.advice = advice
        count = len(self.conflicts)
        first = "; ".join(map(_conflict, self.conflicts[:_CONFLICTS_NAMED]))
        more = f"; and {count - _CONFLICTS_NAMED} more" if count > _CONFLICTS_NAMED else ""
        super().__init__(
            message=f"rebase failed on snapshot {snapshot}: {count} conflict{'' if count == 1 else 's'}"
            f"{': ' if first else ''}{first}{more}. {advice or _ADVICE}"
        )
        self.args = (snapshot, self.conflicts)

    def _shown(self) -> str:
        return f'snapshot="{self.snapshot}", conflicts={self.conflicts}'

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.snapshot, self.conflicts, self.advice))


class StaleReadError(RebaseFailedError):
    """Others changed what a session or a job has read, so what it wrote may be wrong.

    ``snapshot`` is the first one that changed it, ``reads`` say what was read and how it changed (see
    ``frazil.conflicts.StaleRead``). ``conflicts`` is empty: there is nothing that a solver could decide, and
    another attempt to commit fails in the same way. Read and write again in a new session.
    """

    default_kind = ErrorKind.STALE_READ

    def __init__(self, snapshot: str, reads: Sequence[Any] = (), message: str | None = None) -> None:
        super().__init__(snapshot)
        self.message = message or f"snapshot {snapshot} changed what was read: {'; '.join(map(str, reads))}"
        self.args = (snapshot, list(reads))
        self.reads = list(reads)

    def _shown(self) -> str:
        return f'snapshot="{self.snapshot}", reads={self.reads}'

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.snapshot, self.reads, self.message))


class NotFoundError(IcechunkError, KeyError):
    """Something that was asked for by name is not there."""

    default_kind = ErrorKind.KEY_NOT_FOUND


class NodeNotFoundError(NotFoundError):
    """No group or array at this path."""

    default_kind = ErrorKind.NODE_NOT_FOUND


class SnapshotNotFoundError(NotFoundError):
    """No snapshot with this id, or none at this time."""

    default_kind = ErrorKind.SNAPSHOT_NOT_FOUND


class RefNotFoundError(NotFoundError):
    """No branch or tag with this name."""

    default_kind = ErrorKind.REF_NOT_FOUND


class RepositoryNotFoundError(NotFoundError):
    """There is no repository in this storage."""

    default_kind = ErrorKind.REPOSITORY_NOT_FOUND


class KeyNotFoundError(NotFoundError, FileNotFoundError):
    """No value has this key in a store: a ``FileNotFoundError`` for zarr."""

    default_kind = ErrorKind.KEY_NOT_FOUND


class AlreadyExistsError(IcechunkError):
    """Something with this name is there already."""

    default_kind = ErrorKind.NODE_ALREADY_EXISTS


class ReadOnlyError(IcechunkError):
    """A write to a session, store, storage or repository that only reads."""

    default_kind = ErrorKind.READ_ONLY_SESSION


class ReadOnlyStoreError(ReadOnlyError, ValueError):
    """A write to a store that was opened read-only: a ``ValueError`` for zarr."""

    default_kind = ErrorKind.READ_ONLY_STORE


class InvalidInputError(IcechunkError, ValueError):
    """An argument is not what it has to be; the message says what was expected and found."""

    default_kind = ErrorKind.INVALID_KEY


class InvalidMetadataError(InvalidInputError, TypeError):
    """Metadata of a commit or of the repository that JSON cannot hold."""

    default_kind = ErrorKind.BAD_METADATA


class SessionStateError(IcechunkError):
    """The call does not fit the state of the session or repository."""

    default_kind = ErrorKind.NOT_ALLOWED


class SessionSnapshotNotFoundError(SessionStateError):
    """The snapshot that a session reads is not in the repository any more.

    No ``KeyError``: zarr would take that for an array that does not exist.
    """

    default_kind = ErrorKind.SNAPSHOT_NOT_FOUND


class StorageError(IcechunkError):
    """The storage failed; whether the call took effect may be unknown."""

    default_kind = ErrorKind.OBJECT_STORE


class OutcomeUnknownError(StorageError):
    """The answer to a change was lost, and what would tell whether it took effect cannot be read.

    The message says where to look. ``snapshot`` is the id of the new snapshot, None if the change has none.
    """

    default_kind = ErrorKind.OUTCOME_UNKNOWN

    def __init__(self, message: str, snapshot: str | None = None, kind: str | None = None) -> None:
        super().__init__(message, kind)
        self.snapshot = snapshot

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.snapshot, self.kind))


class ValidationFailedError(IcechunkError):
    """Data break rules that they were checked against; ``report`` says which, and where."""

    default_kind = ErrorKind.VALIDATION_FAILED

    def __init__(self, message: str, report: Any = None, kind: str | None = None) -> None:
        super().__init__(message, kind)
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.report, self.kind))


class TaskFailedError(IcechunkError):
    """A task of a job failed for good.

    ``kind`` is that of the task's error if that is an ``IcechunkError``, ``worker-lost`` if the process of
    the task died, and else ``task-failed``. ``task`` is the number of the task, from 1, of ``tasks``;
    None where Spark does not say which one it was. ``attempts`` counts its attempts, with the last one.
    ``traceback`` is the traceback in the task as text, without the frames of Frazil and Spark.
    ``__cause__`` is the error of the task where it can be sent to the driver, else one with its text.
    """

    default_kind = ErrorKind.TASK_FAILED

    def __init__(
        self,
        message: str,
        kind: str | None = None,
        *,
        task: int | None = None,
        tasks: int = 0,
        attempts: int = 1,
        traceback: str = "",
    ) -> None:
        super().__init__(message, kind)
        self.task = task
        self.tasks = tasks
        self.attempts = attempts
        self.traceback = traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.kind), vars(self))


class RemoteError(Exception):
    """The text of an error that cannot be sent from its process to the driver.

    It is the ``__cause__`` of a ``TaskFailedError``, where the error of the task cannot be pickled. It is no
    ``IcechunkError``: the task may have raised any error.
    """


class FormatError(IcechunkError):
    """Bytes are not what the specification says. The message names the file."""

    default_kind = ErrorKind.DESERIALIZATION


class MissingExtraError(IcechunkError, ModuleNotFoundError):
    """A package is not installed that an optional part of Frazil needs; ``name`` is the package.

    The message names the extra that installs it.
    """

    default_kind = ErrorKind.MISSING_EXTRA

    def __init__(self, message: str, name: str | None = None, kind: str | None = None) -> None:
        super().__init__(message, kind)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message, self.name, self.kind))


class InternalError(IcechunkError):
    """A defect in Frazil itself: please report it."""

    default_kind = ErrorKind.UNKNOWN


class MisalignedGroupWarning(UserWarning):
    """A job writes a group whose dimensions are not those of a group above it.

    ``xarray.open_datatree`` gives a group the coordinates of the groups above, and refuses such a repository.
    """


class UnreachableError(OSError):
    """No answer came from a web server, or none that can be used.

    The storages of web servers raise a ``StorageError`` in its place: users do not see it.
    """


class ServerFailedError(RuntimeError):
    """A program that a test started did not start in time; the message ends with its log.

    Tools of ``frazil.testing`` raise it: it is no ``IcechunkError``.
    """
