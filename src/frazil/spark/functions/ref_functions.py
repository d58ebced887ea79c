"""The work of functions that move branches and create tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from frazil.errors import AlreadyExistsError, ConflictError, ErrorKind
from frazil.format.ids import id_from_text
from frazil.pipeline.publishing import publish
from frazil.pipeline.publishing.branches import create_tag_once, rollback_target
from frazil.repository.catalog.history import is_in_history
from frazil.repository.catalog.repo_requirements import branch_tip
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.spark.functions.upkeep_function import Call, Pin
from frazil.spark.tables.location import snapshot_named

type Rows = Iterator[Mapping[str, Any]]


def pin_of_tag(call: Call) -> Pin:
    """Return the snapshot of the version that gets the tag."""
    return {"snapshot_id": snapshot_named(call.repo, call.values["version"])}


def tag(call: Call) -> Rows:
    """Create the tag, or find it at the pinned snapshot."""
    name, snapshot_id = call.values["name"], call.pin["snapshot_id"]
    done_before = False
    try:
        call.repo.create_tag(name, snapshot_id)
    except AlreadyExistsError:
        if name not in call.repo.list_tags() or call.repo.lookup_tag(name) != snapshot_id:
            raise
        done_before = True
    yield {"tag": name, "snapshot_id": snapshot_id, "done_before": done_before}


def pin_of_rollback(call: Call) -> Pin:
    """Return the tip of the branch, and the snapshot that the branch moves to."""
    branch = call.values["branch"]
    tip = call.repo.lookup_branch(branch)
    return {"tip": tip, "snapshot_id": rollback_target(call.repo, branch, call.values["to"])}


def rollback(call: Call) -> Rows:
    """Move the branch from the pinned tip, unless it has moved already."""
    branch, tip, target = call.values["branch"], call.pin["tip"], call.pin["snapshot_id"]
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


def pin_of_publish(call: Call) -> Pin:
    """Return the tip of the branch with the new commits."""
    return {"snapshot_id": call.repo.lookup_branch(call.values["branch"])}


def publish_branch(call: Call) -> Rows:
    """Publish the pinned tip, unless the other branch has it already."""
    repo, snapshot_id = call.repo, call.pin["snapshot_id"]
    branch, onto, name = (call.values[each] for each in ("branch", "onto", "tag"))
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
        publish(repo, branch, onto, tag=name)
    create_tag_once(repo, name, snapshot_id)
    yield {"branch": onto, "snapshot_id": snapshot_id, "tag": name, "done_before": done_before}


def _has(repo: Repository, branch: str, snapshot_id: str) -> bool:
    info = context_of(repo).catalog.repo_info()
    return is_in_history(info, id_from_text(snapshot_id), branch_tip(info, branch))
