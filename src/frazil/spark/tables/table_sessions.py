"""The session, and the arrays of it, that a table about a repository reads."""

from __future__ import annotations

from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session


def session_of(repo: Repository, branch: str | None, tag: str | None, snapshot_id: str | None) -> Session:
    """Return a session that reads a version: the tip of ``main`` if none is named."""
    if branch is None and tag is None and snapshot_id is None:
        branch = "main"
    return repo.readonly_session(branch, tag=tag, snapshot_id=snapshot_id)


def array_paths(session: Session, array: str | None) -> list[str]:
    """Return the path of one array, or those of all arrays if ``array`` is None."""
    if array is not None:
        path = "/" + array.strip("/")
        session.workspace.require_array(path)
        return [path]
    nodes = session.workspace.snapshot.nodes
    return nodes.select_nodes(nodes.is_array).paths_list()
