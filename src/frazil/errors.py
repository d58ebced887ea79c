"""The errors that Frazil raises on purpose, as one tree of classes below ``IcechunkError``.

The class tells a handler what to do next. The ``kind`` names the exact cause. Kinds never change their
meaning, and are never removed. The ``remedy`` is what to do, if Frazil knows it. This module imports only
``frazil.error_kinds`` and ``frazil.remedies``, so that all modules can import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self, cast

from frazil.error_kinds import ErrorKind as ErrorKind
from frazil.remedies import Remedy

_TEXTS: Final = frozenset(ErrorKind)


class IcechunkError(Exception):
    """The base class of all errors of Frazil.

    Attributes:
        message: The text of the error: the problem and the remedy.
        problem: The text without the remedy.
        kind: The exact cause, an ``ErrorKind``, which is also a text.
        remedy: What to do, as a ``frazil.remedies.Remedy``; None if the message has no such part.

    Examples:
        >>> try:
        ...     raise NotFoundError("branch `dev` not found", ErrorKind.BRANCH_NOT_FOUND)
        ... except IcechunkError as error:
        ...     print(error.kind)
        branch-not-found
    """

    default_kind = ErrorKind.UNKNOWN
    remedy: Remedy | None = None

    def __init__(self, message: str, kind: str | None = None) -> None:
        self.problem = message
        # A kind that other code made up stays a text.
        member = ErrorKind(kind) if kind in _TEXTS else cast("ErrorKind", kind)
        self.kind: ErrorKind = self.default_kind if kind is None else member
        super().__init__(message, self.kind)

    @property
    def message(self) -> str:
        """The text of the error, with the remedy as calls of Python."""
        return self._with("" if self.remedy is None else str(self.remedy))

    def with_remedy(self, text: str, *parts: object, shell: str | None = None) -> Self:
        """Add a remedy to this error."""
        self.remedy = Remedy(text, parts, shell)
        return self

    def for_shell(self, location: str = "LOCATION") -> str:
        """Return the text of the error with commands and options instead of calls."""
        return self._with("" if self.remedy is None else self.remedy.for_shell(location))

    def _with(self, remedy: str) -> str:
        if not remedy:
            return self.problem
        if "\n" in self.problem:
            return f"{self.problem}\n  {remedy}"
        return f"{self.problem}{'' if self.problem.endswith(('.', '?')) else '.'} {remedy}"

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"frazil.{type(self).__name__}({self._shown()})"

    def _shown(self) -> str:
        return f'message="{self.message}", kind="{self.kind}"'

    def __reduce__(self) -> tuple[Any, ...]:
        _, arguments, state = cast("tuple[Any, ...]", super().__reduce__())
        return type(self), ("",), {**state, "args": arguments}  # the state replaces all that "" sets


class ConflictError(IcechunkError):
    """Another writer moved the branch first. The branch is unchanged by the failed call.

    Attributes:
        expected_parent: The id of the snapshot that the session started from, or None.
        actual_parent: The id of the snapshot that the branch points to now, or None.
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
            f"another writer updated the branch: expected parent {expected_parent}, found {actual_parent}"
        )
        super().__init__(text, kind)
        self.args: tuple[Any, ...] = (expected_parent, actual_parent)
        self.expected_parent = expected_parent
        self.actual_parent = actual_parent

    def _shown(self) -> str:
        return f"expected_parent={self.expected_parent}, actual_parent={self.actual_parent}"


#: The message of a failed rebase names this number of conflicts, and this number of chunks of each.
_CONFLICTS_NAMED: Final = 3
_ADVICE: Final = "Rebase with a solver that decides them, or make the changes again in a new session"
_DERIVED_ADVICE: Final = (
    "Both sides have computed the same derived arrays: use frazil.pipeline.DerivedSolver() as the solver, "
    "and refresh them afterwards"
)


def _conflict(conflict: Any) -> str:
    """Return a short text for a conflict. This module cannot import its class."""
    kind = getattr(conflict, "conflict_type", None)
    chunks = getattr(conflict, "chunks", None)
    reason = getattr(conflict, "reason", None)
    text = f"{getattr(kind, 'name', conflict)} at {getattr(conflict, 'path', '?')}"
    end = f" ({reason})" if reason else ""
    if chunks is None or not len(chunks):
        return f"{text}{end}"
    first = [str([int(i) for i in chunk]) for chunk in chunks[:_CONFLICTS_NAMED]]
    more = ["..."] if len(chunks) > _CONFLICTS_NAMED else []
    return f"{text}, chunks {', '.join(first + more)}{end}"


class RebaseFailedError(ConflictError):
    """A rebase stopped because the solver left conflicts undecided.

    Attributes:
        snapshot: The id of the first snapshot that conflicts with the session.
        conflicts: All conflicts with this snapshot, as ``Conflict``.
        of_derived: Whether both sides have computed the same derived arrays:
            ``frazil.pipeline.DerivedSolver`` decides these conflicts.
    """

    default_kind = ErrorKind.REBASE_FAILED

    def __init__(self, snapshot: str, conflicts: Sequence[Any] = (), advice: str = "") -> None:
        self.snapshot = snapshot
        self.conflicts: Final = list(conflicts)
        super().__init__(message=f"rebase failed on snapshot {snapshot}: {self._listing()}")
        self.of_derived = any(getattr(each, "is_derived", False) for each in self.conflicts)
        advice = advice or (_DERIVED_ADVICE if self.of_derived else _ADVICE)
        self.with_remedy("{}", advice, shell="Run the command again")
        self.args: tuple[Any, ...] = (snapshot, self.conflicts)

    def _listing(self) -> str:
        """Return the number of conflicts, and the first of them."""
        count = len(self.conflicts)
        first = "; ".join(map(_conflict, self.conflicts[:_CONFLICTS_NAMED]))
        more = f"; and {count - _CONFLICTS_NAMED} more" if count > _CONFLICTS_NAMED else ""
        return f"{count} conflict{'' if count == 1 else 's'}{': ' if first else ''}{first}{more}"

    def _shown(self) -> str:
        return f'snapshot="{self.snapshot}", conflicts={self.conflicts}'


class MergeConflictError(RebaseFailedError):
    """Two versions that ``Repository.merge_snapshots`` should combine changed the same data. Nothing changed.

    Attributes:
        snapshot: The id of a detached snapshot.
        other: The id of the version that it conflicts with: another detached snapshot, or the tip of the
            branch.
        conflicts: The conflicts between the two, as ``Conflict``.
    """

    default_kind = ErrorKind.MERGE_FAILED

    def __init__(
        self, snapshot: str, other: str = "", conflicts: Sequence[Any] = (), reason: str = ""
    ) -> None:
        super().__init__(snapshot, conflicts)
        self.other = other
        self.problem: str = f"cannot merge snapshot {snapshot} with {other}: {reason or self._listing()}"
        self.with_remedy("Nothing was merged. Merge without one of them, and write its data again", shell="")
        self.args: tuple[Any, ...] = (snapshot, other, self.conflicts)

    def _shown(self) -> str:
        return f'snapshot="{self.snapshot}", other="{self.other}", conflicts={self.conflicts}'


class StaleReadError(RebaseFailedError):
    """Another writer changed data that a session or a job has read, so its results may be wrong.

    No solver can decide this, and another attempt to commit fails in the same way. Read and write again in a
    new session.

    Attributes:
        snapshot: The id of the first snapshot that changed the data.
        reads: The stale reads and how they changed, as ``frazil.conflicts.StaleRead``.
        conflicts: Empty.
    """

    default_kind = ErrorKind.STALE_READ

    def __init__(self, snapshot: str, reads: Sequence[Any] = (), message: str | None = None) -> None:
        super().__init__(snapshot)
        self.problem: str = message or (
            f"snapshot {snapshot} changed data that was read: {'; '.join(map(str, reads))}"
        )
        self.remedy: Remedy | None = None
        self.args: tuple[Any, ...] = (snapshot, list(reads))
        self.reads: Final = list(reads)

    def _shown(self) -> str:
        return f'snapshot="{self.snapshot}", reads={self.reads}'


class NotFoundError(IcechunkError, KeyError):
    """There is no object with the given name."""

    default_kind = ErrorKind.KEY_NOT_FOUND


class NodeNotFoundError(NotFoundError):
    """There is no group or array at this path."""

    default_kind = ErrorKind.NODE_NOT_FOUND


class SnapshotNotFoundError(NotFoundError):
    """There is no snapshot with this id or at this time."""

    default_kind = ErrorKind.SNAPSHOT_NOT_FOUND


class RefNotFoundError(NotFoundError):
    """There is no branch or tag with this name."""

    default_kind = ErrorKind.REF_NOT_FOUND


class RepositoryNotFoundError(NotFoundError):
    """There is no repository in this storage."""

    default_kind = ErrorKind.REPOSITORY_NOT_FOUND


class KeyNotFoundError(NotFoundError, FileNotFoundError):
    """The store has no value with this key. Zarr expects a ``FileNotFoundError``."""


class AlreadyExistsError(IcechunkError):
    """An object with this name exists already."""

    default_kind = ErrorKind.NODE_ALREADY_EXISTS


class ReadOnlyError(IcechunkError):
    """A write to a read-only session, store, storage or repository."""

    default_kind = ErrorKind.READ_ONLY_SESSION


class ReadOnlyStoreError(ReadOnlyError, ValueError):
    """A write to a store that was opened read-only. Zarr expects a ``ValueError``."""

    default_kind = ErrorKind.READ_ONLY_STORE


class InvalidInputError(IcechunkError, ValueError):
    """An argument is wrong. The message has the expected value and the value that it got."""

    default_kind = ErrorKind.INVALID_ARGUMENT


class InvalidIndexError(InvalidInputError, IndexError):
    """An index does not select elements of an array. The message has the dimension and its length."""


class InvalidMetadataError(InvalidInputError, TypeError):
    """Metadata of a commit or of the repository that JSON cannot hold."""

    default_kind = ErrorKind.BAD_METADATA


class SessionStateError(IcechunkError):
    """The state of the session or repository does not allow the call."""

    default_kind = ErrorKind.NOT_ALLOWED


class SessionSnapshotNotFoundError(SessionStateError):
    """The snapshot that a session reads is not in the repository any more.

    This is not a ``KeyError``, because zarr would then report that the array does not exist.
    """

    default_kind = ErrorKind.SNAPSHOT_NOT_FOUND


class StorageError(IcechunkError):
    """The storage failed. It is possible that the call took effect."""

    default_kind = ErrorKind.OBJECT_STORE


class OutcomeUnknownError(StorageError):
    """The answer to a change was lost, and Frazil cannot read whether the change took effect.

    The message says where to look.

    Attributes:
        snapshot: The id of the new snapshot. None if the change creates no snapshot.
    """

    default_kind = ErrorKind.OUTCOME_UNKNOWN

    def __init__(self, message: str, snapshot: str | None = None, kind: str | None = None) -> None:
        super().__init__(message, kind)
        self.snapshot = snapshot


class ValidationFailedError(IcechunkError):
    """The data break validation rules.

    Attributes:
        report: The broken rules, with the places in the data.
    """

    default_kind = ErrorKind.VALIDATION_FAILED

    def __init__(self, message: str, report: Any = None, kind: str | None = None) -> None:
        super().__init__(message, kind)
        self.report = report


class TaskFailedError(IcechunkError):
    """A task of a job failed for good.

    ``__cause__`` is the error of the task. If that error cannot be sent to the driver, ``__cause__`` is a
    ``RemoteError`` with its text.

    Attributes:
        kind: The kind of the task's error if it is an ``IcechunkError``; ``worker-lost`` if the process of
            the task died; otherwise ``task-failed``.
        task: The number of the task, from 1. None if Spark does not report it.
        tasks: The number of tasks of the job.
        attempts: The number of attempts of the task, the last one included.
        traceback: The traceback in the task, as text, without the frames of Frazil and Spark.
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


class RemoteError(Exception):
    """The text of a task's error that cannot be pickled: the ``__cause__`` of a ``TaskFailedError``."""


class FormatError(IcechunkError):
    """The bytes of a file do not follow the specification. The message names the file.

    Attributes:
        check: The name of the rule that the file breaks, as in ``Repository.list_checks``. Empty if no rule
            describes the damage.
    """

    default_kind = ErrorKind.DESERIALIZATION

    def __init__(self, message: str, kind: str | None = None, check: str = "") -> None:
        super().__init__(message, kind)
        self.check = check


class MissingExtraError(IcechunkError, ModuleNotFoundError):
    """An optional part of Frazil needs a package that is not installed.

    The message names the extra that installs the package.

    Attributes:
        name: The name of the package.
        extra: The name of the extra.
    """

    default_kind = ErrorKind.MISSING_EXTRA

    def __init__(
        self, message: str, name: str | None = None, kind: str | None = None, extra: str | None = None
    ) -> None:
        super().__init__(message, kind)
        self.name = name
        self.extra = extra


class InternalError(IcechunkError):
    """A defect in Frazil. Please report it."""


class ChangedFileWarning(UserWarning):
    """A file of virtual chunks has changed since its references were written, and its container allows it."""


class MisalignedGroupWarning(UserWarning):
    """A job writes a group whose dimensions differ from the dimensions of a group above it.

    ``xarray.open_datatree`` refuses such a repository: it gives a group the coordinates of the groups above
    it.
    """


class UnreadableArrayWarning(UserWarning):
    """An array is left out of a group, because no installed package reads its data type or a codec."""


class UncommittedChangesWarning(UserWarning):
    """A writable session was dropped with changes that it has not committed. The changes are lost.

    ``Session.commit`` saves changes, and ``Session.discard_changes`` says that they are not needed. There is
    no warning after an attempt to commit, because its error says that the changes are not saved, and none for
    forks.
    """


class UnreachableError(OSError):
    """A web server gave no usable answer. The storages convert it to a ``StorageError``."""


class JobRestartError(RuntimeError):
    """A job must start again: ``run_job`` catches it. It is not an ``IcechunkError``."""


class ServerFailedError(RuntimeError):
    """A program of a test of ``frazil.testing`` did not start in time. The message ends with its log."""
