"""What identifies a job, and what its commit records about it.

A job has an id: one that the user gives, or a hash of its name, its parameters, the digests of its inputs
and its target. The metadata of its commit hold a record under the key `JOB`: id, name, parameters, inputs,
outputs, a digest of the work, and metrics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.metadata_items import MetadataColumn
from frazil.jobs.job import Job
from frazil.jobs.job_result import Metrics
from frazil.jobs.versions import address

#: The key of a job's record in the metadata of its commit.
JOB: Final = "frazil_job"

_PATHS_SHOWN: Final = 3


def derived_id(job: Job, *salt: str) -> str:
    """A hash of all that decides the result of a job."""
    parts = [work_digest(job, inputs=True), address(job.target.repo.storage), job.target.branch, salt]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def work_digest(job: Job, *, inputs: bool = False) -> str:
    """A hash of what the job does, and with ``inputs`` also of what it reads."""
    work = {
        "name": job.name,
        "parameters": job.parameters,
        "group": job.target.group,
        "writes": job.writes,
        "inputs": [(each.repository, each.paths, each.digest) for each in job.inputs] if inputs else [],
    }
    return hashlib.sha256(json.dumps(work, sort_keys=True, default=str).encode()).hexdigest()[:24]


def commit_metadata(job: Job, id_: str, metrics: Metrics) -> dict[str, Any]:
    """The metadata of the job's commit: the user's, and the job's record."""
    record = {
        "id": id_,
        "name": job.name,
        "parameters": dict(job.parameters),
        "inputs": [each.as_json() for each in job.inputs],
        "outputs": list(job.writes),
        "work": work_digest(job),
        "metrics": {name: getattr(metrics, name) for name in type(metrics).__slots__},
    }
    return {**job.metadata, JOB: record}


def require_recordable(job: Job) -> None:
    """Check before the work that the commit can record the job.

    Raises ``InvalidInputError`` (``bad-metadata``).
    """
    record = {"id": job.id, "name": job.name, "parameters": dict(job.parameters)}
    MetadataColumn.of([{**job.metadata, JOB: record}], job.target.repo.spec_version)
    if job.id is not None and not (isinstance(job.id, str) and job.id):
        raise InvalidInputError(f"job_id: expected text, found {job.id!r}", ErrorKind.BAD_METADATA)
    for name in ("name", "message"):
        text = getattr(job, name) or ""
        if not isinstance(text, str) or text.encode(errors="replace").decode() != text:
            raise InvalidInputError(
                f"{name}: expected text that UTF-8 can encode, found {text!r:.80}", ErrorKind.BAD_METADATA
            )


def label(job: Job, id_: str) -> str:
    """A job in a few words, for the user interface of Spark."""
    inputs = list(dict.fromkeys(path for each in job.inputs for path in each.paths))
    arrow = f"{_few(inputs)} -> " if inputs else ""
    return f"frazil {job.name} {arrow}{_few(job.writes)} ({id_})"


def _few(paths: Sequence[str]) -> str:
    more = [f"and {len(paths) - _PATHS_SHOWN} more"] if len(paths) > _PATHS_SHOWN else []
    return " ".join([*paths[:_PATHS_SHOWN], *more])
