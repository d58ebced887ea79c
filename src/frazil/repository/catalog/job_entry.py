"""One record in the metadata of a repository: the commit of a job, or of a publication. See ``job_records``.

A publication (``frazil.pipeline.write_audit_publish``) ends with a commit that has the report of its check.
Its record has the id of the publication after a prefix, because a job may have the same id.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from frazil.format.repo_info import SnapshotEntry
from frazil.repository.catalog.protection import AUDIT

#: The key of the record of a job in the metadata of its commit.
JOB: Final = "frazil_job"
_PUBLICATION: Final = f"{AUDIT}:"


@dataclass(frozen=True, slots=True)
class JobEntry:
    """The commit of a job on a branch; without a branch, a version that has the changes of this commit."""

    id: str
    snapshot: bytes
    branch: str = ""
    work: str = ""
    commit: bytes = b""

    def in_version(self, snapshot: bytes) -> JobEntry:
        """Return the record for a version that has the changes of the commit."""
        return replace(self, snapshot=snapshot, branch="", commit=self.commit or self.snapshot)

    @property
    def is_publication(self) -> bool:
        """Whether the commit is that of a publication."""
        return self.id.startswith(_PUBLICATION)


def publication_id(id_: str) -> str:
    """Return the id of the records of a publication."""
    return _PUBLICATION + id_


def entries_of_commit(commit: SnapshotEntry) -> list[JobEntry]:
    """Return the records of a commit, from its own metadata."""
    job, audit = commit.metadata.get(JOB), commit.metadata.get(AUDIT)
    entries = []
    if isinstance(job, dict) and "id" in job:
        entries.append(JobEntry(str(job["id"]), commit.id, work=str(job.get("work", ""))))
    if isinstance(audit, dict) and isinstance(audit.get("id"), str):
        entries.append(JobEntry(publication_id(audit["id"]), commit.id))
    return entries
