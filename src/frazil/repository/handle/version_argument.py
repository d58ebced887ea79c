"""The version that a caller names by a branch, a tag or a snapshot id."""

from __future__ import annotations

from frazil.format.repo_info import RepoInfo
from frazil.repository.catalog import repo_requirements
from frazil.repository.catalog.version_names import snapshot_id as resolve_id


def snapshot_of_version(
    info: RepoInfo, branch: str | None, tag: str | None, snapshot_id: str | None
) -> bytes:
    """Return the id of the snapshot that exactly one of the three arguments names."""
    names = [name for name in (branch, tag, snapshot_id) if name is not None]
    if len(names) != 1:
        raise ValueError(
            f"expected exactly one of branch, tag and snapshot_id, got {len(names)}: "
            f"{', '.join(map(repr, names)) or 'pass branch="main"'}"
        )
    if branch is not None:
        return repo_requirements.branch_tip(info, branch)
    if tag is not None:
        return repo_requirements.tag_target(info, tag)
    id_ = resolve_id(snapshot_id or "", lambda: info)
    repo_requirements.require_snapshot(info, id_)
    return id_
