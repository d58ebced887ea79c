"""Whether what a job has read is still there when it commits.

A job reads versions, and takes time. If others change its inputs meanwhile, its result belongs to a version
that the branch does not have any more. So inputs are compared before each commit of a job:

    on the branch that the job writes to    compared: a change is a ``StaleReadError``; however the
                                            repository is addressed, and in copies of it
    on another branch, at a tag or a        fixed: the version that was read is in the commit, and what comes
    snapshot, in another repository         after it does not matter

Only transaction logs are read, and none if nobody else has committed. Inputs are what a job names: of groups
all that is below, so that a new array in a group that is an input is a change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from frazil.changes.reads import ReadSet
from frazil.errors import ErrorKind, InvalidInputError, StaleReadError
from frazil.format.ids import INITIAL_SNAPSHOT_ID, id_from_text, is_id_text
from frazil.format.snapshot_table import Snapshots
from frazil.jobs.versions import Input, Target, address
from frazil.repository.handle.interior import context_of
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.repository.session.stale_reads import require_unchanged

_ATTEMPTS: Final = 3


def live_inputs(inputs: Sequence[Input], target: Target) -> list[Input]:
    """The inputs that are on the branch to which the target leads.

    The address of a storage is not enough to find them: one place has several (other credentials, a symbolic
    link, another endpoint), and all repositories in the memory of a process have the same. The snapshot is:
    only one repository, and copies of it, have it.
    """
    named = [each for each in inputs if each.branch == target.branch]
    place = address(target.repo.storage)
    if not named or (place != "in-memory" and all(each.repository == place for each in named)):
        return named
    snapshots = context_of(target.repo).catalog.repo_info().snapshots
    return [
        each for each in named if each.repository == place != "in-memory" or _has(snapshots, each.snapshot)
    ]


def _has(snapshots: Snapshots, name: str) -> bool:
    """Whether a repository has a snapshot; the first one, which is empty, all repositories have."""
    if not is_id_text(name.upper()):
        return False  # an input that is no version of a repository
    id_ = id_from_text(name)
    return id_ != INITIAL_SNAPSHOT_ID and snapshots.find_snapshot(id_) >= 0


def reads_of(inputs: Sequence[Input]) -> ReadSet:
    """What was read, to be compared."""
    return ReadSet(trees=frozenset(absolute(path) for each in inputs for path in each.paths))


def require_current(name: str, inputs: Sequence[Input], session: Session) -> None:
    """Raises ``StaleReadError`` if inputs of the job ``name`` are not those of the session's snapshot."""
    workspace = session.workspace
    for each in inputs:
        start = id_from_text(each.snapshot)
        try:
            require_unchanged(workspace.context, reads_of([each]), start, workspace.snapshot_id)
        except StaleReadError as error:
            raise of_job(name, error) from error


def of_job(name: str, error: StaleReadError) -> StaleReadError:
    """The error, for whoever runs a job."""
    details = "; ".join(map(str, error.reads))
    return StaleReadError(
        error.snapshot,
        error.reads,
        f"others changed what the job `{name}` has read, first in snapshot {error.snapshot}: {details}. "
        "Nothing was committed: run it again with the new version. To read an older version on purpose, name "
        "it by its id: `Version.of(repo, snapshot_id=...)`",
    )


def run_again_if_stale[R](run: Callable[[], R], attempts: int = _ATTEMPTS) -> R:
    """Call ``run``, and again while it raises ``StaleReadError``; at most ``attempts`` times.

    ``run`` calls an operation, or makes a job and runs it: each time with the version that is there then.
    Raises ``InvalidInputError`` for less than one attempt.

    >>> import frazil, zarr
    >>> from frazil.spark import Inline, mean, run_again_if_stale
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="data") as store:
    ...     t = zarr.create_array(store, name="t", shape=(4,), chunks=(2,), dtype="f8", dimension_names=["x"])
    >>> result = run_again_if_stale(lambda: mean(repo, "t", "x", engine=Inline()))
    """
    if attempts < 1:
        raise InvalidInputError(
            f"attempts: expected at least 1, found {attempts}", ErrorKind.INVALID_ARGUMENT
        )
    for _ in range(attempts - 1):
        try:
            return run()
        except StaleReadError:
            continue
    return run()
