"""The metrics of jobs, from the metadata of their commits."""

from __future__ import annotations

from typing import Any

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.job_record import job_record
from frazil.jobs.versions import takes_versions
from frazil.repository.catalog.history import mentioning
from frazil.repository.catalog.job_entry import JOB
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.catalog.snapshot_presentation import snapshot_infos
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository


@takes_versions
def job_metrics(
    repo: Repository, *, branch: str | None = None, snapshot_id: str | None = None
) -> list[dict[str, Any]]:
    """Return the metrics of the jobs in the history of a branch, or of one snapshot.

    Snapshots without the record of a job are left out.

    Args:
        repo: The repository.
        branch: The branch whose history is read. None: ``main``.
        snapshot_id: The id of a single snapshot, instead of a branch.

    Returns:
        A dict for each job, the newest first, with ``id``, ``name``, ``snapshot_id``, ``written_at`` and the
        fields of `Metrics`.

    Raises:
        InvalidInputError: ``conflicting-arguments`` for both ``branch`` and ``snapshot_id``.
        RefNotFoundError: If there is no such branch.
        FormatError: If a record is damaged.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import job_metrics
        >>> job_metrics(frazil.Repository.create(frazil.in_memory_storage()))
        []
    """
    if branch is not None and snapshot_id is not None:
        raise InvalidInputError("give branch or snapshot_id, not both", ErrorKind.CONFLICTING_ARGUMENTS)
    if snapshot_id is None:
        info = context_of(repo).catalog.repo_info()
        infos = snapshot_infos(list(mentioning(info, branch_tip(info, branch or "main"), JOB)))
    else:
        infos = [repo.lookup_snapshot(snapshot_id)]
    jobs = [(info, record) for info in infos if (record := job_record(info.metadata, info.id))]
    return [
        {
            "id": record.id,
            "name": record.name,
            "snapshot_id": info.id,
            "written_at": info.written_at,
            **(record.metrics or {}),
        }
        for info, record in jobs
    ]
