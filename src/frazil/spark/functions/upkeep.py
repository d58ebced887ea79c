"""The functions of SQL that change or check a repository.

Those that delete make a dry run, unless the caller sets ``dry_run => false``.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Final

from frazil.errors import AlreadyExistsError, ConflictError, ErrorKind, FormatError
from frazil.format.ids import id_from_text
from frazil.jobs.engine import Local
from frazil.pipeline.publishing import publish as publish_branch
from frazil.pipeline.publishing.branches import create_tag_once, rollback_target
from frazil.pipeline.replication import copy_repository
from frazil.repository.catalog.ancestry import is_in_history
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.handle.repository import Repository, context_of
from frazil.spark.functions.declaration import Call, Rows, UpkeepFunction, parse_options
from frazil.spark.tables.options import PLACE_OPTIONS, Use, snapshot_named, storage_at
from frazil.spark.tables.snapshot_tables import columns

#: The key of the id of a call in the metadata of its commit.
CALL: Final = "frazil.sql.call"
_TARGET: Final = Use("the target of a copy", PLACE_OPTIONS)


def expire(
    call: Call,
    older_than: datetime,
    dry_run: bool = True,
    delete_branches: bool = False,
    delete_tags: bool = False,
) -> Rows:
    """Remove old versions. A second evaluation has no versions to remove."""
    refs: dict[str, Any] = {
        "delete_expired_branches": delete_branches,
        "delete_expired_tags": delete_tags,
    }
    plan = call.repo.upkeep.expire(older_than, **refs)
    try:
        report = plan.report
    except FormatError:
        if dry_run:
            raise
        for id_ in sorted(plan.apply()):  # spec version 1 has no report
            yield {"kind": "version", "name": id_, "message": None, "removed": True}
        return
    messages = {each.id: each.message for each in report.removed}
    names = messages if dry_run else sorted(plan.apply())
    rows = [("version", id_, messages.get(id_)) for id_ in names]
    rows += [("branch", name, None) for name in report.deleted_branches]
    rows += [("tag", name, None) for name in report.deleted_tags]
    for kind, name, message in rows:
        yield {"kind": kind, "name": name, "message": message, "removed": not dry_run}


#: The columns of a garbage collection, which are attributes of its summary.
_COLLECTED: Final = (
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


def collect(call: Call, older_than: datetime, dry_run: bool = True) -> Rows:
    """Delete files. A second evaluation has no files to delete."""
    plan = call.repo.upkeep.collect(older_than)
    summary = plan.report if dry_run else plan.apply()
    yield {"dry_run": dry_run, **{name: getattr(summary, name) for name in _COLLECTED}}


_MERGED: Final = ("new_files", "bytes_moved", "bytes_freed", "manifests", "new_manifests")


def compact(
    call: Call, branch: str = "main", dry_run: bool = False, message: str = "Merge chunk files"
) -> Rows:
    """Merge chunk files. A second evaluation has no files to merge, and makes no commit."""
    plan = call.repo.upkeep.compact(message, branch=branch)
    report = plan.report if dry_run else plan.apply()
    numbers = {name: getattr(report, name) for name in _MERGED}
    files = len(report.files)
    yield {"dry_run": dry_run, "files": files, **numbers, "snapshot_id": report.snapshots.get(branch)}


def rewrite_manifests(call: Call, branch: str = "main", message: str = "Rewrite the manifests") -> Rows:
    """Rewrite the manifests, unless a commit after the pinned tip has the id of this call."""
    snapshot_id = _commit_of_call(call, branch)
    done_before = snapshot_id is not None
    if snapshot_id is None:
        metadata = {CALL: call.pin["call"]}
        snapshot_id = call.repo.rewrite_manifests(message, branch=branch, metadata=metadata)
    yield {"branch": branch, "snapshot_id": snapshot_id, "done_before": done_before}


def _commit_of_call(call: Call, branch: str) -> str | None:
    for commit in call.repo.ancestry(branch=branch):
        if commit.metadata.get(CALL) == call.pin["call"]:
            return commit.id
        if commit.id == call.pin["tip"]:
            return None
    return None


def copy(call: Call, target: str, target_options: str = "") -> Rows:
    """Copy the repository. A second evaluation copies the objects that the target lacks."""
    options = parse_options(target_options, _TARGET)
    storage = storage_at(call.profiles.resolve({**options, "path": target}))
    copied = copy_repository(call.repo, storage, engine=Local())
    yield {"objects": copied.objects, "bytes": copied.bytes, "existing": copied.existing}


def verify(call: Call, level: str = "metadata") -> Rows:
    """Return the findings of a verification, which changes nothing."""
    for row in call.repo.upkeep.verify(level).rows():  # type: ignore[arg-type]  # the method checks the level
        coordinates = row["coordinates"]
        yield {**row, "coordinates": None if coordinates is None else [int(each) for each in coordinates]}


def tag(call: Call, name: str, version: str = "main") -> Rows:
    """Create the tag, or find it at the pinned snapshot."""
    snapshot_id = call.pin["snapshot_id"]
    done_before = False
    try:
        call.repo.create_tag(name, snapshot_id)
    except AlreadyExistsError:
        if name not in call.repo.list_tags() or call.repo.lookup_tag(name) != snapshot_id:
            raise
        done_before = True
    yield {"tag": name, "snapshot_id": snapshot_id, "done_before": done_before}


def reset(call: Call, branch: str, to: str) -> Rows:
    """Move the branch from the pinned tip, unless it has moved already."""
    tip, target = call.pin["tip"], call.pin["snapshot_id"]
    is_moved = not _has(call.repo, branch, tip) and _has(call.repo, branch, target)
    done_before = tip == target or is_moved  # even if others have committed since
    if not done_before:
        call.repo.reset_branch(branch, target, from_snapshot_id=tip)
    yield {
        "branch": branch,
        "previous_snapshot_id": tip,
        "snapshot_id": target,
        "done_before": done_before,
    }


def publish(call: Call, branch: str, onto: str = "main", tag: str | None = None) -> Rows:
    """Publish the pinned tip, unless the other branch has it already."""
    repo, snapshot_id = call.repo, call.pin["snapshot_id"]
    done_before = _has(repo, onto, snapshot_id)
    if not done_before and repo.lookup_branch(branch) != snapshot_id:
        raise ConflictError(
            snapshot_id,
            repo.lookup_branch(branch),
            f"`{branch}` must have the tip that it had when Spark analyzed the statement ({snapshot_id}), "
            f"got {repo.lookup_branch(branch)}. Run the statement again to publish the new commits",
            ErrorKind.BRANCH_UPDATE_CONFLICT,
        )
    if not done_before:
        publish_branch(repo, branch, onto, tag=tag)
    create_tag_once(repo, tag, snapshot_id)
    yield {"branch": onto, "snapshot_id": snapshot_id, "tag": tag, "done_before": done_before}


def _has(repo: Repository, branch: str, snapshot_id: str) -> bool:
    info = context_of(repo).catalog.repo_info()
    return is_in_history(info, id_from_text(snapshot_id), branch_tip(info, branch))


_NUMBERS: Final = ", ".join(f"{name} number" for name in _COLLECTED)
_MERGED_NUMBERS: Final = ", ".join(f"{name} number" for name in ("files", *_MERGED))
_FINDING: Final = (
    "severity, check, key, path, coordinates numbers, detail, action, arrays texts, branches texts, "
    "tags texts, snapshots number"
)
UPKEEP: Final[tuple[UpkeepFunction, ...]] = (
    UpkeepFunction(expire, columns("kind, name, message, removed flag")),
    UpkeepFunction(collect, columns(f"dry_run flag, {_NUMBERS}")),
    UpkeepFunction(compact, columns(f"dry_run flag, {_MERGED_NUMBERS}, snapshot_id")),
    UpkeepFunction(
        rewrite_manifests,
        columns("branch, snapshot_id, done_before flag"),
        lambda repo, *, branch, **others: {"tip": repo.lookup_branch(branch), "call": uuid.uuid4().hex},
    ),
    UpkeepFunction(
        reset,
        columns("branch, previous_snapshot_id, snapshot_id, done_before flag"),
        lambda repo, *, branch, to: {
            "tip": repo.lookup_branch(branch),
            "snapshot_id": rollback_target(repo, branch, to),
        },
    ),
    UpkeepFunction(
        tag,
        columns("tag, snapshot_id, done_before flag"),
        lambda repo, *, version, **others: {"snapshot_id": snapshot_named(repo, version)},
    ),
    UpkeepFunction(
        publish,
        columns("branch, snapshot_id, tag, done_before flag"),
        lambda repo, *, branch, **others: {"snapshot_id": repo.lookup_branch(branch)},
    ),
    UpkeepFunction(copy, columns("objects number, bytes number, existing number")),
    UpkeepFunction(verify, columns(_FINDING)),
)
