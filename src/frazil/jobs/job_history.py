"""Jobs in the history of a branch: their ids, their records, and whether a job is done.

A job with a derived id, a hash, is done if the nodes that its commit wrote have not changed since. Otherwise
the job runs again, with a suffix of its id. If the commit has left the history, a record in the metadata of
the repository names a version with its changes. Any writer can put any value under the key `JOB`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from frazil.arguments import conflicting
from frazil.errors import ConflictError, ErrorKind, FormatError, InvalidInputError, SessionStateError
from frazil.format.flexbuffer import MetadataColumn
from frazil.format.ids import NODE_ID_BYTES, id_from_text, id_matrix, id_to_text, ids_among
from frazil.format.repo_info import RepoInfo
from frazil.format.transaction_log import ID_LISTS
from frazil.handle.repository import Repository, context_of
from frazil.jobs.job import Input, Job, Metrics, Target, digest, takes_versions, without_folders
from frazil.repository.catalog.ancestry import BranchHistory, mentioning
from frazil.repository.catalog.history_records import (
    JOB,
    JobEntry,
    entries_of,
    with_entries,
    with_replacements,
)
from frazil.repository.catalog.presentation import snapshot_infos
from frazil.repository.catalog.repo_changes import branch_tip, require_snapshot
from frazil.repository.paths import absolute
from frazil.repository.session.differences import CommitLogs, read_logs
from frazil.repository.session.session import Session
from frazil.storage.base import storage_label

_PATHS_SHOWN: Final = 3


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
            raise InvalidInputError(f"{name} must be text in UTF-8, got {text!r:.80}", ErrorKind.BAD_METADATA)


def label(job: Job, id_: str) -> str:
    """Return a short description of a job, for the user interface of Spark."""
    texts = []
    for paths in (list(dict.fromkeys(path for each in job.inputs for path in each.paths)), job.writes):
        more = [f"and {len(paths) - _PATHS_SHOWN} more"] if len(paths) > _PATHS_SHOWN else []
        texts += [" ".join([*paths[:_PATHS_SHOWN], *more])] if paths else []
    return f"frazil {job.name} {' -> '.join(texts)} ({id_})"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a commit records about its job. ``metrics`` has only the fields of `Metrics`."""

    name: str | None
    id: str | None
    parameters: dict[str, Any] | None
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    metrics: dict[str, Any] | None


def job_record(metadata: Mapping[str, Any], snapshot_id: str) -> JobRecord | None:
    """Return the record of the job that made a commit; None if no job made it."""
    record = metadata.get(JOB)
    if not isinstance(record, dict):
        return None
    fields: dict[str, Any] = {name: record.get(name) for name in _FIELDS}
    fields["outputs"] = record.get("outputs", [])
    fields["inputs"] = [] if fields["inputs"] is None else fields["inputs"]
    for name, value in fields.items():
        if not _FIELDS[name](value):
            raise FormatError(
                f"snapshot {snapshot_id}: the record of a job must have the field {name} as Frazil "
                f"writes it, got {str(value)[:80]}. Another program wrote it. Amend the commit with other "
                "metadata"
            )
    metrics = fields["metrics"]
    return JobRecord(
        fields["name"],
        fields["id"],
        fields["parameters"],
        tuple(
            Input(
                each["repository"], each.get("branch"), each["snapshot"], tuple(each["paths"]), each["digest"]
            )
            for each in fields["inputs"]
        ),
        tuple(fields["outputs"]),
        None if metrics is None else {key: metrics[key] for key in Metrics.__slots__ if key in metrics},
    )


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _is_input(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("branch"), str | None):
        return False
    return _are_texts(value.get("paths")) and _are_texts(
        [value.get(name) for name in ("repository", "snapshot", "digest")]
    )


#: The fields of a record that are read, each with a check of its value.
_FIELDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("name", "id"), lambda value: isinstance(value, str | None)),
    **dict.fromkeys(("parameters", "metrics"), lambda value: isinstance(value, dict | None)),
    "inputs": lambda value: isinstance(value, list) and all(map(_is_input, value)),
    "outputs": _are_texts,
}


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
        raise conflicting("give branch or snapshot_id, not both")
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


def is_unchanged_since(commit: bytes, after: Session, paths: Sequence[str]) -> bool:
    """Return whether nodes are the same in a version and in a commit that a squash or expiration removed.

    Only the transaction logs of the removed commits tell. If they cannot decide, the nodes count as changed.
    """
    context = after.workspace.context
    end = id_from_text(after.snapshot_id)
    if commit == end:
        return True
    table = context.catalog.repo_info().snapshots
    row = table.find_snapshot(end)
    ids = table.entry(row).logs if row >= 0 else ()
    if commit not in ids:
        return False
    later = CommitLogs(end, ids[ids.index(commit) + 1 :])
    try:
        logs = read_logs(context.assets, [later])
    except SessionStateError:
        return False
    nodes = after.workspace.snapshot.nodes
    named = nodes.find_nodes([absolute(path) for path in paths])
    below = (nodes.ids[nodes.below(absolute(path))] for path in paths)
    those = np.concatenate([nodes.ids[named[named >= 0]], *below])
    for log in logs:
        if log.moves or len(log.deleted_arrays) or len(log.deleted_groups):
            return False
        chunks = id_matrix(list(log.updated_chunks), NODE_ID_BYTES)
        if ids_among(np.concatenate([*(getattr(log, name) for name in ID_LISTS), chunks]), those).any():
            return False
    return True


@dataclass(frozen=True, slots=True)
class JobStart:
    """The state of a branch when a driver starts: its tip, and the snapshots of all records of jobs."""

    tip: str
    recorded: frozenset[bytes] = field(default_factory=frozenset)

    @staticmethod
    def of(target: Target) -> JobStart:
        """Return the present state. The records are read first, so none of them is newer than the tip."""
        info = context_of(target.repo).catalog.repo_info()
        recorded = frozenset(each.snapshot for each in entries_of(info))
        return JobStart(target.repo.lookup_branch(target.branch), recorded)


@dataclass(frozen=True, slots=True)
class _Commit:
    """The commit of a job: its snapshot, and its record. ``removed`` is its id if it left the history."""

    snapshot_id: str
    record: dict[str, Any]
    removed: bytes | None = None


def job_state(job: Job, tip: str) -> tuple[str, str | None]:
    """Return the id of a job, and the snapshot of its commit, if the history of ``tip`` has its changes."""
    repo, digested = job.target.repo, work_digest(job)
    parts = [work_digest(job, inputs=True), storage_label(repo.storage), job.target.branch, ()]
    id_ = job.id or hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]

    def is_match(value: Any) -> bool:
        return bool(value == id_ if job.id else str(value).partition("-")[0] == id_)

    commit = _find_commit(job.target, tip, id_, is_match)
    if commit is None:
        commit = next(iter(_removed_commits(job.target, tip, is_match)), None)
    if commit is None:
        return id_, None
    if job.id:
        if commit.record.get("work", digested) != digested:
            raise conflicting(
                f"the job `{id_}` was committed as {commit.snapshot_id}, with "
                f"{_difference(job, commit.record)}. Give this job another id"
            )
        return id_, commit.snapshot_id
    current = digest(repo.readonly_session(snapshot_id=tip), job.writes)
    after = repo.readonly_session(snapshot_id=commit.snapshot_id)
    is_same = current == digest(after, job.writes)
    if is_same and (commit.removed is None or is_unchanged_since(commit.removed, after, job.writes)):
        return commit.record["id"], commit.snapshot_id
    return f"{id_}-{current[:8]}", None


def _difference(job: Job, record: dict[str, Any]) -> str:
    """Return the first difference between a job and the record of a commit with the same id."""
    if "name" not in record:  # the record of a commit that has left the history
        return "another name or other parameters"
    if record["name"] != job.name:
        return f"the operation {record.get('name')!r} instead of {job.name!r}"
    before, now = record.get("parameters") or {}, json.loads(json.dumps(dict(job.parameters), default=str))
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return f"other {' and '.join(names) or 'targets'}"


def find_job(target: Target, id_: str, start: JobStart, tip: str | None = None) -> str | None:
    """Return the snapshot of the commit of a job that another driver has made since this one started."""
    tip = tip or target.repo.lookup_branch(target.branch)
    commit = _find_commit(target, tip, id_, lambda value: bool(value == id_), start.tip)
    if commit is not None:
        return commit.snapshot_id
    info = context_of(target.repo).catalog.repo_info()
    other = other_commit(info, id_from_text(tip), (id_, target.branch), start.recorded)
    return None if other is None else id_to_text(other)


def _find_commit(
    target: Target, tip: str, text: str, is_match: Callable[[Any], bool], until: str | None = None
) -> _Commit | None:
    """Return the newest commit whose job record contains ``text`` and has a wanted id; None without one.

    With ``until``, only commits after this snapshot are searched. Only metadata with this text are decoded,
    because the history of a job that runs each hour is long.
    """
    info, end = context_of(target.repo).catalog.repo_info(), None if until is None else id_from_text(until)
    for entry in mentioning(info, id_from_text(tip), JOB, text, until=end):
        record = entry.metadata.get(JOB)
        if isinstance(record, dict) and is_match(record.get("id")):
            return _Commit(id_to_text(entry.id), record)
    return None


def _removed_commits(target: Target, tip: str, is_match: Callable[[Any], bool]) -> list[_Commit]:
    """Return versions with the changes of removed commits, for records with a wanted id, newest first."""
    info = context_of(target.repo).catalog.repo_info()
    entries = [entry for entry in entries_of(info) if is_match(entry.id)]
    return [
        _Commit(
            id_to_text(each.snapshot),
            {"id": each.id, "work": each.work} if each.work else {"id": each.id},
            each.commit,
        )
        for each in entries_in_line(info, id_from_text(tip), entries)
    ]


def first_driver_note(
    id_: str, work: str, target: Target, start: JobStart
) -> Callable[[RepoInfo, bytes], dict[str, Any]]:
    """Return the change of the metadata of the repository in the commit of a job.

    It adds the record of the job. It raises ``ConflictError`` (``commit-conflict``) if another driver has
    committed the job, even if a reset or a squash has removed this commit from the branch since.
    """

    def note(info: RepoInfo, snapshot: bytes) -> dict[str, Any]:
        other = other_commit(info, snapshot, (id_, target.branch), start.recorded)
        if other is not None:
            raise ConflictError(start.tip, id_to_text(other), kind=ErrorKind.COMMIT_CONFLICT)
        return with_entries(info, [JobEntry(id_, snapshot, target.branch, work)])

    return note


def entries_in_line(info: RepoInfo, tip: bytes, entries: Iterable[JobEntry]) -> list[JobEntry]:
    """Return those of some records whose commits are in the history of a snapshot, with listed snapshots."""
    every = list(with_replacements(info, entries))
    if not every:
        return []
    line = BranchHistory(info, info.snapshots.chain(require_snapshot(info, tip)))
    contained = line.contains([each.snapshot for each in every]).tolist()
    return [
        entry.in_version(line.holder(entry.snapshot))
        for entry, is_in in zip(every, contained, strict=True)
        if is_in
    ]


def other_commit(
    info: RepoInfo, tip: bytes, job: tuple[str, str], earlier: Collection[bytes]
) -> bytes | None:
    """Return the commit of another driver of a job, or the version that has its changes; None if none has."""
    id_, branch = job
    entries = [each for each in entries_of(info) if each.id == id_ and each.snapshot not in earlier]
    contained = entries_in_line(info, tip, entries)
    reset = [each for each in entries if each.branch == branch]
    return next((each.snapshot for each in (*contained, *reset)), None)
