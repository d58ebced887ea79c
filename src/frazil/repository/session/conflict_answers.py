"""The conflicts of a rebase, and the answers of a solver to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from frazil.changes.chunk_changes import Coords, table_of
from frazil.changes.conflicts import ConflictType, NodeConflict, find_conflicts
from frazil.changes.node_alignment import ChangeKind, NodeAlignment
from frazil.changes.node_changes import rows_of
from frazil.changes.rebase import Resolution, ours_can_stand
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import NODE_ID_BYTES, id_matrix
from frazil.format.manifest import ChunkRef
from frazil.format.snapshot import NodeTable
from frazil.repository.session.conflicts import Conflict, OpenSession, Side, Sides, VersionSelection
from frazil.repository.session.workspace import Workspace


def require_solver(solver: Any) -> None:
    """Raise ``TypeError`` for an object without a method ``solve``."""
    if not callable(getattr(solver, "solve", None)):
        raise TypeError(
            f"the solver must be a ConflictSolver, an object with a method `solve`, got {solver!r}"
        )


def solve(
    at: NodeAlignment, workspace: Workspace, theirs: Workspace, solver: Any, open_session: OpenSession
) -> tuple[list[Conflict], list[tuple[NodeConflict, Resolution]]]:
    """Return all conflicts, and the conflicts that the solver decides with their resolutions."""
    clashes = find_conflicts(at)
    if not clashes:
        return [], []
    base = Workspace(workspace.context, workspace.snapshot_id)
    conflicts = [
        Conflict.of(clash, _sides(at, clash, workspace, theirs, base, open_session)) for clash in clashes
    ]
    answers = list(solver.solve(conflicts))
    if len(answers) != len(conflicts):
        raise InvalidInputError(
            f"the solver must return an answer for each of {len(conflicts)} conflicts, got {len(answers)}",
            ErrorKind.INVALID_COMMIT_CONFIGURATION,
        )
    choices = [_choice(at, clash, answer, workspace) for clash, answer in zip(clashes, answers, strict=True)]
    return conflicts, [(clash, choice) for clash, choice in zip(clashes, choices, strict=True) if choice]


def _sides(
    at: NodeAlignment,
    clash: NodeConflict,
    ours: Workspace,
    theirs: Workspace,
    base: Workspace,
    open_session: OpenSession,
) -> Callable[[], Sides]:
    id_ = clash.node_id

    def side(workspace: Workspace, path: str | None) -> Side:
        exists = path is not None and workspace.node(path) is not None
        return Side(workspace, id_, path if exists else None, open_session)

    def sides() -> Sides:
        new = clash.ours is ChangeKind.CREATED
        their_path = at.tip_path(at.ours.created[id_]) if new else _path(theirs.snapshot.nodes, id_)
        mine = at.ours.created.get(id_, clash.path)
        is_deleted = clash.ours is ChangeKind.DELETED
        return Sides(
            side(ours, None if is_deleted else mine),
            side(theirs, their_path),
            side(base, _path(base.snapshot.nodes, id_)),
        )

    return sides


def _path(nodes: NodeTable, id_: bytes) -> str | None:
    row = int(rows_of(nodes, id_matrix([id_], NODE_ID_BYTES))[0])
    return None if row < 0 else nodes.paths.text(row)


def _choice(at: NodeAlignment, clash: NodeConflict, answer: Any, workspace: Workspace) -> Resolution | None:
    """Return the resolution of an answer, or None if the conflict stays undecided."""
    if answer is None or answer is VersionSelection.Fail:
        return None
    if answer is VersionSelection.UseTheirs:
        return Resolution(False)
    if answer is VersionSelection.UseOurs:
        return Resolution(True) if ours_can_stand(at, clash) else None
    if clash.type is ConflictType.ZarrMetadataDoubleUpdate and isinstance(answer, bytes):
        return Resolution(True, document=answer)
    if clash.type is ConflictType.ChunkDoubleUpdate and isinstance(answer, Sequence | np.ndarray):
        return _choice_of_chunks(clash, list(answer), workspace)
    raise _bad_answer(clash, answer)


def _choice_of_chunks(clash: NodeConflict, answers: list[Any], workspace: Workspace) -> Resolution | None:
    assert clash.chunks is not None
    if len(answers) != len(clash.chunks):
        raise InvalidInputError(
            f"the answer to ChunkDoubleUpdate at `{clash.path}` must have an item for each of "
            f"{len(clash.chunks)} chunks, got {len(answers)}",
            ErrorKind.INVALID_COMMIT_CONFIGURATION,
        )
    selections = {VersionSelection.UseOurs: True, VersionSelection.UseTheirs: False}
    data = {
        row: answer
        for row, answer in enumerate(answers)
        if isinstance(answer, bytes | bytearray | memoryview) or callable(answer)
    }
    kinds = [True if row in data else selections.get(answer, answer) for row, answer in enumerate(answers)]
    if any(kind is None or kind is VersionSelection.Fail for kind in kinds):
        return None
    if not all(isinstance(kind, bool | np.bool_) for kind in kinds):
        raise _bad_answer(clash, answers)
    ours = np.array(kinds, bool)
    if not data:
        return Resolution(ours)
    at: list[Coords] = list(map(tuple, clash.chunks[list(data)].tolist()))
    contents = (answer() if callable(answer) else answer for answer in data.values())
    refs: dict[Coords, ChunkRef | None] = dict(zip(at, map(workspace.store_bytes, contents), strict=True))
    return Resolution(ours, table_of(refs, clash.chunks.shape[1]))


def _bad_answer(clash: NodeConflict, answer: Any) -> InvalidInputError:
    return InvalidInputError(
        f"the answer to {clash.type.name} at `{clash.path}` must be a VersionSelection, bytes for metadata, "
        f"or a sequence for chunks, got {answer!r}",
        ErrorKind.INVALID_COMMIT_CONFIGURATION,
    )
