"""The work of functions that remove versions, delete files, write files again, copy and check them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from frazil.errors import FormatError
from frazil.jobs.local_engine import Local
from frazil.pipeline.replication import copy_repository
from frazil.spark.functions.arguments import parse_options
from frazil.spark.functions.upkeep_function import Call, Pin
from frazil.spark.tables import location
from frazil.spark.tables.options import Use

type Rows = Iterator[Mapping[str, Any]]

#: The key of the id of a call in the metadata of its commit.
CALL: Final = "frazil.sql.call"


def expire(call: Call) -> Rows:
    """Remove old versions. A second evaluation has no versions to remove."""
    older_than, dry_run = call.values["older_than"], call.values["dry_run"]
    refs: dict[str, Any] = {
        "delete_expired_branches": call.values["delete_branches"],
        "delete_expired_tags": call.values["delete_tags"],
    }
    try:
        report = call.repo.expire_snapshots(older_than, dry_run=True, **refs)
    except FormatError:
        if dry_run:
            raise
        yield from _expired_v1(call, refs)  # spec version 1 has no report
        return
    removed = {each.id: each for each in report.removed}
    done = set() if dry_run else call.repo.expire_snapshots(older_than, **refs)
    for id_ in removed if dry_run else sorted(done):
        version = removed.get(id_)
        message = None if version is None else version.message
        yield {"kind": "version", "name": id_, "message": message, "removed": not dry_run}
    for kind, names in (("branch", report.deleted_branches), ("tag", report.deleted_tags)):
        for name in names:
            yield {"kind": kind, "name": name, "message": None, "removed": not dry_run}


def _expired_v1(call: Call, refs: Mapping[str, Any]) -> Rows:
    for id_ in sorted(call.repo.expire_snapshots(call.values["older_than"], **refs)):
        yield {"kind": "version", "name": id_, "message": None, "removed": True}


#: The columns of a garbage collection, which are attributes of its summary.
COLLECTED: Final = (
    "bytes_deleted",
    "chunks_deleted",
    "manifests_deleted",
    "snapshots_deleted",
    "attributes_deleted",
    "transaction_logs_deleted",
    "backups_deleted",
    "objects_failed_to_delete",
    "leases_respected",
)


def collect(call: Call) -> Rows:
    """Delete files. A second evaluation has no files to delete."""
    dry_run = call.values["dry_run"]
    summary = call.repo.garbage_collect(call.values["older_than"], dry_run=dry_run)
    yield {"dry_run": dry_run, **{name: getattr(summary, name) for name in COLLECTED}}


def compact(call: Call) -> Rows:
    """Merge chunk files. A second evaluation has no files to merge, and makes no commit."""
    values = call.values
    report = call.repo.upkeep.compact(values["message"], branch=values["branch"], dry_run=values["dry_run"])
    yield {
        "dry_run": values["dry_run"],
        "files": len(report.files),
        "new_files": report.new_files,
        "bytes_moved": report.bytes_moved,
        "bytes_freed": report.bytes_freed,
        "manifests": report.manifests,
        "new_manifests": report.new_manifests,
        "snapshot_id": report.snapshots.get(values["branch"]),
    }


def pin_of_rewrite(call: Call) -> Pin:
    """Return the tip of the branch, and an id of the call for the metadata of its commit."""
    return {"tip": call.repo.lookup_branch(call.values["branch"]), "call": uuid.uuid4().hex}


def rewrite_manifests(call: Call) -> Rows:
    """Rewrite the manifests, unless a commit after the pinned tip has the id of this call."""
    branch = call.values["branch"]
    snapshot_id = _commit_of_call(call, branch)
    done_before = snapshot_id is not None
    if snapshot_id is None:
        metadata = {CALL: call.pin["call"]}
        snapshot_id = call.repo.rewrite_manifests(call.values["message"], branch=branch, metadata=metadata)
    yield {"branch": branch, "snapshot_id": snapshot_id, "done_before": done_before}


def _commit_of_call(call: Call, branch: str) -> str | None:
    for commit in call.repo.ancestry(branch=branch):
        if commit.metadata.get(CALL) == call.pin["call"]:
            return commit.id
        if commit.id == call.pin["tip"]:
            return None
    return None


_TARGET: Final = Use("the target of a copy", location.PLACE_OPTIONS)


def copy(call: Call) -> Rows:
    """Copy the repository. A second evaluation copies the objects that the target lacks."""
    options = parse_options(call.values["target_options"], _TARGET)
    target = location.storage_at(call.profiles.resolve({**options, "path": call.values["target"]}))
    copied = copy_repository(call.repo, target, engine=Local())
    yield {"objects": copied.objects, "bytes": copied.bytes, "existing": copied.existing}


def verify(call: Call) -> Rows:
    """Return the findings of a verification, which changes nothing."""
    for row in call.repo.upkeep.verify(call.values["level"]).rows():
        coordinates = row["coordinates"]
        yield {**row, "coordinates": None if coordinates is None else [int(each) for each in coordinates]}
