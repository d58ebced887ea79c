"""The errors for branches, tags, snapshots and nodes that do not exist, with similar existing names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from frazil.display import some_of, suggest
from frazil.errors import ErrorKind, IcechunkError, NodeNotFoundError, RefNotFoundError
from frazil.format.ids import SHORTEST_ID_START
from frazil.format.nodes import NodeTable
from frazil.format.repo_info import RepoInfo
from frazil.remedies import argument

#: A message for a missing path compares at most this number of nodes.
_MOST_NODES: Final = 10_000


def no_branch(info: RepoInfo, name: str, kind: ErrorKind = ErrorKind.REF_NOT_FOUND) -> RefNotFoundError:
    """Return the error for an unknown branch."""
    if name in info.tags:
        error = RefNotFoundError(f"no branch `{name}`, but a tag `{name}` exists", kind)
        return error.with_remedy("Use {}", argument(tag=name), shell="")
    return RefNotFoundError(_unknown("branch", "branches", name, info.branches), kind)


def no_tag(info: RepoInfo, name: str) -> RefNotFoundError:
    """Return the error for an unknown tag."""
    kind = ErrorKind.REF_NOT_FOUND
    if name in info.branches:
        error = RefNotFoundError(f"no tag `{name}`, but a branch `{name}` exists", kind)
        return error.with_remedy("Use {}", argument(branch=name), shell="")
    if name in info.deleted_tags:
        return RefNotFoundError(f"no tag `{name}`: it was deleted, and its name cannot be used again", kind)
    return RefNotFoundError(_unknown("tag", "tags", name, info.tags), kind)


def no_version(info: RepoInfo, name: str) -> RefNotFoundError:
    """Return the error for a text that is not a branch, a tag or the id of a snapshot."""
    near = suggest(name, [*_names(info.branches), *_names(info.tags)])
    text = (
        f"the version must be a branch, a tag, or the id of a snapshot (or its first {SHORTEST_ID_START} or "
        f"more characters), got `{name}`{near}"
    )
    return RefNotFoundError(text, ErrorKind.REF_NOT_FOUND)


def no_node(path: str, nodes: NodeTable, changed: Collection[str]) -> NodeNotFoundError:
    """Return the error for a path without a node. ``nodes`` and ``changed`` have the existing paths."""
    few = len(nodes) + len(changed) <= _MOST_NODES
    near = suggest(path, [*changed, *nodes.paths_list()]) if few else ""
    return NodeNotFoundError(f"no group or array at `{path}`{near}")


def _unknown(one: str, many: str, name: str, refs: Mapping[str, bytes]) -> str:
    names = _names(refs)
    return f"no {one} `{name}`{suggest(name, names) or f'; {many}: {some_of(sorted(names))}'}"


def _names(refs: Mapping[str, bytes]) -> list[str]:
    """Return the names of refs. Empty if the storage cannot list them."""
    try:
        return list(refs)
    except IcechunkError:
        return []
