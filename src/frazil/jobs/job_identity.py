"""The id of a job, and its record in the metadata of its commit.

The id is given by the user, or is a hash of the name, the parameters, the digests of the inputs and the
target. The record under the key `JOB` has the id, name, parameters, inputs, outputs, a digest of the work,
and metrics.
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
from frazil.jobs.versions import address, without_folders
from frazil.repository.catalog.job_entry import JOB

_PATHS_SHOWN: Final = 3


def derived_id(job: Job, *salt: str) -> str:
    """Return a hash of everything that decides the result of a job, and of ``salt``."""
    parts = [work_digest(job, inputs=True), address(job.target.repo.storage), job.target.branch, salt]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def work_digest(job: Job, *, inputs: bool = False) -> str:
    """Return a hash of the operation and its parameters, and with ``inputs`` also of the inputs."""
    work = {
        "name": job.name,
        "parameters": job.parameters,
        "group": job.target.group,
        "writes": job.writes,
        "inputs": [(each.repository, each.paths, each.digest) for each in job.inputs] if inputs else [],
    }
    return hashlib.sha256(json.dumps(work, sort_keys=True, default=str).encode()).hexdigest()[:24]


def commit_metadata(job: Job, id_: str, metrics: Metrics) -> dict[str, Any]:
    """Return the metadata of the commit of a job: the metadata of the user, and the record of the job."""
    record = {
        "id": id_,
        "name": job.name,
        "parameters": dict(job.parameters),
        "inputs": [{**each.as_json(), "repository": without_folders(each.repository)} for each in job.inputs],
        "outputs": list(job.writes),
        "work": work_digest(job),
        "metrics": {name: getattr(metrics, name) for name in type(metrics).__slots__},
    }
    return {**job.metadata, JOB: record}


def require_recordable(job: Job) -> None:
    """Check before the work that the metadata of a commit can hold the record of the job."""
    record = {"id": job.id, "name": job.name, "parameters": dict(job.parameters)}
    MetadataColumn.of([{**job.metadata, JOB: record}], job.target.repo.spec_version)
    if job.id is not None and not (isinstance(job.id, str) and job.id):
        raise InvalidInputError(f"job_id must be non-empty text, got {job.id!r}", ErrorKind.BAD_METADATA)
    for name in ("name", "message"):
        text = getattr(job, name) or ""
        if not isinstance(text, str) or text.encode(errors="replace").decode() != text:
            raise InvalidInputError(
                f"{name} must be text that UTF-8 can encode, got {text!r:.80}", ErrorKind.BAD_METADATA
            )


def label(job: Job, id_: str) -> str:
    """Return a short description of a job, for the user interface of Spark."""
    inputs = list(dict.fromkeys(path for each in job.inputs for path in each.paths))
    arrow = f"{_few(inputs)} -> " if inputs else ""
    return f"frazil {job.name} {arrow}{_few(job.writes)} ({id_})"


def _few(paths: Sequence[str]) -> str:
    more = [f"and {len(paths) - _PATHS_SHOWN} more"] if len(paths) > _PATHS_SHOWN else []
    return " ".join([*paths[:_PATHS_SHOWN], *more])
