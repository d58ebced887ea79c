"""Where the arrays of an operation are written: which targets are allowed, and the nodes of the results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import zarr

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.versions import Target, Version, digest, same_storage
from frazil.pipeline.transform.array_info import ArrayInfo, Json
from frazil.repository.session.session import Session


def target_or_source(source: Version, to: Target | None) -> Target:
    """Return the target ``to``; without one, the branch and the paths of the source."""
    return to or Target(source.repo, source.branch or "main")


def same_repository(source: Version, target: Target) -> bool:
    """Return whether a reference to a chunk of the source is valid in the target too."""
    return target.repo is source.repo or target.repo.storage is source.repo.storage


def is_in_place(source: Version, target: Target) -> bool:
    """Return whether a job writes to the branch that it reads, at the same paths."""
    same_branch = source.branch in (None, target.branch)
    return same_repository(source, target) and same_branch and target.group.strip("/") == ""


def require_newest(source: Session, target: Session, arrays: Sequence[ArrayInfo]) -> None:
    """Raise ``InvalidInputError`` if a job in place would replace an array by one of an older version."""
    for array in arrays:
        if digest(source, [array.path]) != digest(target, [array.path]):
            raise InvalidInputError(
                f"source must have the newest version of `{array.path}` to replace it, got "
                f"{source.snapshot_id}, and the array changed since. Read the tip of the branch, or pass "
                "another target as `to`",
                ErrorKind.NOT_ALLOWED,
            )


def refuse_overwriting(
    source: Version, target: Target, old: Sequence[ArrayInfo], new: Sequence[ArrayInfo]
) -> None:
    """Raise ``InvalidInputError`` if a result replaces an array that the job reads, or two have one path.

    ``old`` are the arrays that the job reads, ``new`` the results.
    """
    if not new:
        raise InvalidInputError("paths must name at least one array, got none", ErrorKind.INVALID_ARGUMENT)
    require_distinct_paths(new)
    if not same_storage(source, target) or target.branch != (source.branch or target.branch):
        return
    both = sorted({each.path for each in old} & {each.path for each in new})
    if both:
        raise InvalidInputError(
            f"to must not contain arrays that the job reads, got `{both[0]}` in both. "
            "Pass another group, `to=Target(repo, group=...)`, or another branch",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )


def require_distinct_paths(new: Sequence[ArrayInfo]) -> None:
    """Raise ``InvalidInputError`` if two results have one path."""
    repeated = [path for path, count in Counter(each.path for each in new).items() if count > 1]
    if repeated:
        raise InvalidInputError(
            f"Each result must have its own path, got `{repeated[0]}` twice", ErrorKind.CONFLICTING_ARGUMENTS
        )


def create_array(session: Session, source: Session, old: ArrayInfo, new: ArrayInfo) -> None:
    """Create the node of ``new``, in place of an existing array, and the groups above it.

    Groups that do not exist get the attributes of the source's groups. Raises ``InvalidInputError``:
    ``not-an-array`` where the target has a group, ``invalid-array-metadata`` for metadata that zarr refuses.
    """
    if new.document != old.document:
        try:
            new.array  # noqa: B018  # zarr refuses wrong metadata
        except (TypeError, ValueError, zarr.errors.BaseZarrError) as error:
            raise InvalidInputError(
                f"zarr cannot read the new metadata of `{new.path}`: {error}",
                ErrorKind.INVALID_ARRAY_METADATA,
            ) from error
    workspace = session.workspace
    create_groups(session, source, old.group, new.group)
    if workspace.node(new.path) is not None:
        workspace.require_array(new.path)
        workspace.delete_node(new.path)
    workspace.set_node(new.path, new.encoded())


def create_groups(session: Session, source: Session, old: str, new: str) -> None:
    """Create the group ``new`` and those above it, with the attributes of ``old`` and those above it.

    Raises ``InvalidInputError`` (``not-a-group``) where the target has an array.
    """
    workspace, names = session.workspace, [name for name in new.split("/") if name]
    for depth in range(len(names) + 1):
        path = "/" + "/".join(names[:depth])
        existing = workspace.node(path)
        if existing is not None and existing.array is not None:
            raise InvalidInputError(
                f"`{path}` must be a group to hold the results, got an array", ErrorKind.NOT_A_GROUP
            )
        if existing is not None:
            continue
        attributes = _attributes_above(source, old, len(names) - depth)
        document: Json = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
        workspace.set_node(path, json.dumps(document).encode())


def _attributes_above(source: Session, group: str, levels: int) -> Json:
    """Return the attributes of the group that is ``levels`` above a group of the source."""
    parts = [name for name in group.split("/") if name]
    if levels > len(parts):
        return {}
    node = source.workspace.node("/" + "/".join(parts[: len(parts) - levels]))
    if node is None or node.array is not None:
        return {}
    return json.loads(node.user_data).get("attributes") or {}


def add_group_attributes(session: Session, source: Session, path: str, attributes: Json) -> None:
    """Add attributes to a group, which is created if it does not exist."""
    workspace = session.workspace
    create_groups(session, source, "/", path)
    document = json.loads(workspace.require_node(path).user_data)
    document["attributes"] = {**(document.get("attributes") or {}), **attributes}
    workspace.set_node(path, json.dumps(document).encode())
