"""The solver for branches whose derived arrays were refreshed on both."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, cast, override

from frazil.format.ids import id_to_text
from frazil.pipeline.derivation.refresh import all_calls
from frazil.pipeline.transform.arrays import TABLES, array_info, coordinate_paths
from frazil.repository.session.conflicts import (
    Conflict,
    ConflictDetector,
    ConflictSolver,
    RepeatingSolver,
    VersionSelection,
)
from frazil.repository.session.session import Session
from frazil.repository.session.workspace import Workspace


def _paths_of(session: Session, tables: Set[str]) -> set[str]:
    """Return the results of the calls with one of the tables, their coordinates, states and tables."""
    nodes, paths = session.workspace.node_table(), set[str]()
    for call in all_calls(session)[0]:
        results = call.outputs.values()
        ids = (bytes(nodes.ids[nodes.find_node(path)]) for path in results)
        own = {*(f"{TABLES}/{id_to_text(id_)}" for id_ in ids), *call.states.values()}
        if own.isdisjoint(tables):
            continue
        paths |= {*results, *own, *call.states}
        # A result in the group of a source has its coordinates, which stay as they are.
        groups = {(each.path_in(session) or "").rpartition("/")[0] for each in call.definition.sources}
        labels = set[str]()
        for arrays in (results, labels):  # coordinates, and then their bounds
            names = coordinate_paths(
                [array_info(session, path) for path in arrays if nodes.find_node(path) >= 0]
            )
            labels |= {path for path in names if path.rpartition("/")[0] not in groups}
        paths |= labels
    return paths


class DerivedSolver(RepeatingSolver):
    """A solver for `Repository.merge` where both sides have computed the same derived arrays.

    A result that both sides changed is that of *theirs*, the branch that receives the changes, with all
    arrays of its call. It is behind where the sources of *ours* reach it, so call `refresh` after the merge.
    Each merge needs a solver of its own.

    Args:
        others: Decides all other conflicts. Default: they stay undecided.

    Examples:
        >>> import numpy as np
        >>> from frazil.pipeline import DerivedSolver, Target, reduce, refresh
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="data") as store:
        ...     values = np.arange(8.0).reshape(4, 2)
        ...     dims = ["a", "b"]
        ...     array = zarr.create_array(store, name="t", data=values, chunks=(1, 2), dimension_names=dims)
        >>> _ = reduce(repo, "t", "a", to=Target(repo, group="mean"), engine="inline")
        >>> repo.create_branch("dev", repo.lookup_branch("main"))
        >>> for branch, row in [("main", 0), ("dev", 3)]:
        ...     with repo.transaction(branch, message="a correction") as store:
        ...         zarr.open_array(store, path="t")[row] = 10
        ...     _ = refresh(repo, branch=branch, engine="inline").apply()
        >>> merged = repo.merge("dev", solver=DerivedSolver())
        >>> _ = refresh(repo, engine="inline").apply()
        >>> frazil.read(repo.readonly_session("main"), "mean/t").tolist()
        [6.5, 7.0]
    """

    def __init__(self, others: ConflictSolver | None = None) -> None:
        self._others, self._paths = others or ConflictDetector(), set[str]()

    @override
    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        tables = {each.path: each for each in conflicts if each.is_derived}
        self._paths = set()
        for each in [*tables.values()][:1]:  # the sides are those of all conflicts
            for session in (each.theirs.session, each.ours.session):
                self._paths |= _paths_of(cast("Session", session), tables.keys())
        is_derived = [each.path in self._paths for each in conflicts]
        rest = [each for each, derived in zip(conflicts, is_derived, strict=True) if not derived]
        answers = iter(self._others.solve(rest))
        return [VersionSelection.UseTheirs if derived else next(answers) for derived in is_derived]

    @override
    def repeat(self, workspace: Workspace) -> None:
        # Without results of ours, also where theirs has not changed them.
        own = workspace.own_changes().without_below(workspace.start, self._paths)
        workspace.rebase_onto(workspace.snapshot_id, own)
        self._paths.clear()
