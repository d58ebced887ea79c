"""Checks that the inputs of a job have not changed when it commits.

A job reads versions, and runs for some time. If another session changes its inputs meanwhile, the result does
not fit the tip of the branch. So inputs are checked before each commit of a job:

    on the branch that the job writes to    checked: a change raises ``StaleReadError``, for every URL of the
                                            repository, and in copies of it
    on another branch, at a tag or a        fixed: the commit records the version, and later versions do not
    snapshot, in another repository         matter

The check reads only transaction logs, and none if no other session has committed. Inputs are the nodes that
the job names, and all nodes below them: a new array in an input group is a change.
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
    """Return the inputs that are on the branch of the target.

    The address of a storage is not enough to find them: one storage has several addresses (other credentials,
    a symbolic link, another endpoint), and all repositories in memory have the same address. But a snapshot
    is only in one repository and its copies.
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
    """Return whether a repository has a snapshot, except the empty first snapshot, which all have."""
    if not is_id_text(name.upper()):
        return False  # the input is not a version of a repository
    id_ = id_from_text(name)
    return id_ != INITIAL_SNAPSHOT_ID and snapshots.find_snapshot(id_) >= 0


def reads_of(inputs: Sequence[Input]) -> ReadSet:
    """Return the inputs as a set of reads, for the check."""
    return ReadSet(trees=frozenset(absolute(path) for each in inputs for path in each.paths))


def require_current(name: str, inputs: Sequence[Input], session: Session) -> None:
    """Raise ``StaleReadError`` if inputs of the job ``name`` differ from the snapshot of the session."""
    workspace = session.workspace
    for each in inputs:
        start = id_from_text(each.snapshot)
        try:
            require_unchanged(workspace.context, reads_of([each]), start, workspace.snapshot_id)
        except StaleReadError as error:
            raise of_job(name, error) from error


def of_job(name: str, error: StaleReadError) -> StaleReadError:
    """Return the error with a message for the user of the job ``name``."""
    details = "; ".join(map(str, error.reads))
    return StaleReadError(
        error.snapshot,
        error.reads,
        f"another session changed inputs that the job `{name}` has read, first in snapshot {error.snapshot}: "
        f"{details}. Nothing was committed",
    ).with_remedy(
        "Run the job again with the new version. To read an older version on purpose, name it by its id: "
        "`Version.of(repo, snapshot_id=...)`",
        shell="Run the command again",
    )


def run_again_if_stale[R](run: Callable[[], R], attempts: int = _ATTEMPTS) -> R:
    """Call a function, and call it again while it raises ``StaleReadError``.

    Args:
        run: A function without arguments that calls an operation, or makes a job and runs it. Each call reads
            the present version of its inputs.
        attempts: The largest number of calls. Default: 3.

    Returns:
        The result of ``run``.

    Raises:
        InvalidInputError: ``invalid-argument`` if ``attempts`` is less than 1.
        StaleReadError: If the last call raises it.

    Examples:
        >>> import frazil, numpy, zarr
        >>> from frazil.pipeline import mean, run_again_if_stale
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="data") as store:
        ...     t = zarr.create_array(store, name="t", data=numpy.arange(4.0), dimension_names=["x"])
        >>> result = run_again_if_stale(lambda: mean(repo, "t", "x", engine="inline"))
        >>> float(zarr.open_array(result.version.session().store, path="mean/t")[()])
        1.5
    """
    if attempts < 1:
        raise InvalidInputError(f"attempts must be at least 1, got {attempts}", ErrorKind.INVALID_ARGUMENT)
    for _ in range(attempts - 1):
        try:
            return run()
        except StaleReadError:
            continue
    return run()
