"""Functions that create a model and a session together, and that read a session in all its phases."""

from __future__ import annotations

from collections.abc import Generator

from hypothesis import note

from frazil.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.storage.memory import in_memory_storage
from frazil.testing.models import GroupNode, ModelStore
from frazil.testing.trees import moved_paths
from frazil.zarr_store import IcechunkStore


def tree_to_model_and_icechunk(
    tree: GroupNode, add_hypothesis_note: bool = True
) -> tuple[ModelStore, Session, Repository]:
    """Write a hierarchy to a model, and to an uncommitted session of a new repository."""
    if add_hypothesis_note:
        note(f"tree: {tree}")
    model = ModelStore()
    tree.materialize(model)
    repo = Repository.create(in_memory_storage())
    session = repo.writable_session("main")
    tree.materialize(session.store)
    return model, session, repo


def precommit_postcommit_readonly(
    session: Session, repo: Repository, *, allow_empty: bool = False
) -> Generator[tuple[str, IcechunkStore]]:
    """Yield three stores with labels.

    These are the store before the commit, the store after the commit, and the store of a new
    read-only session.
    """
    yield "before the commit", session.store
    session.commit("a commit", allow_empty=allow_empty)
    yield "after the commit", session.store
    yield "read only", repo.readonly_session("main").store


def update_paths_after_move(source: str, dest: str, arrays: set[str], groups: set[str]) -> list[set[str]]:
    """Return the paths of arrays and groups after a node and all nodes below it were moved."""
    return [moved_paths(source, dest, paths) for paths in (arrays, groups)]
