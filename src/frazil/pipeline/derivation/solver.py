"""The solver for branches whose derived arrays were refreshed on both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast, override

from frazil.format.ids import id_to_text
from frazil.pipeline.derivation.refresh import ResultCall, all_calls
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


def _paths_of(call: ResultCall, session: Session) -> set[str]:
    """Return the arrays that a call writes: results with their coordinates, states, and the tables of all."""
    nodes, results = session.workspace.node_table(), call.outputs.values()
    ids = (bytes(nodes.ids[nodes.find_node(path)]) for path in results)
    tables = {f"{TABLES}/{id_to_text(id_)}" for id_ in ids}
    sources = {each.path_in(session) or "" for each in call.definition.sources}
    groups = {path.rpartition("/")[0] for path in sources}  # a result in the group of a source has its labels
    own = set[str]()
    for arrays in (results, own):  # coordinates, and then their bounds
        labels = coordinate_paths(
            [array_info(session, path) for path in arrays if nodes.find_node(path) >= 0]
        )
        own |= {path for path in labels if path.rpartition("/")[0] not in groups}
    return {*results, *own, *tables, *call.states, *call.states.values()}


class DerivedSolver(RepeatingSolver):
    """A solver for `Repository.merge` where both sides have computed the same derived arrays.

    A result that both sides changed is that of *theirs*, the branch that receives the changes, with all
    arrays of its call. It is behind where the sources of *ours* reach it, so call `refresh` after the merge.

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
        tables = {each.path: each for each in conflicts if each.path.startswith(f"{TABLES}/")}
        for side in (getattr(each, name) for each in [*tables.values()][:1] for name in ("theirs", "ours")):
            session = cast("Session", side.session)
            for call in all_calls(session)[0]:
                paths = _paths_of(call, session)
                if not paths.isdisjoint(tables):
                    self._paths |= paths
        is_derived = [each.path in self._paths for each in conflicts]
        rest = [each for each, derived in zip(conflicts, is_derived, strict=True) if not derived]
        answers = iter(self._others.solve(rest))
        return [VersionSelection.UseTheirs if derived else next(answers) for derived in is_derived]

    @override
    def repeat(self, workspace: Workspace) -> None:
        own = workspace.own_changes()  # without results of ours, also where theirs has not changed them
        for path in self._paths:
            own = own.without_below(workspace.start, path)
        workspace.rebase_onto(workspace.snapshot_id, own)
        self._paths.clear()
