"""The public classes of conflicts, the solvers that decide them, and the answers of a solver.

*Ours* is the session that is rebased. *Theirs* is what other writers have committed since. *Base* is the
version that both sides started from. ``ConflictSolver.solve`` describes the answers of a solver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import Any, Final, Protocol, override

import numpy as np
from numpy.typing import ArrayLike

from frazil.arguments import checks_arguments
from frazil.changes.change_set import Coords, table_of
from frazil.changes.conflicts import ChangeKind, ConflictType, NodeAlignment, NodeConflict, find_conflicts
from frazil.changes.diff import row_of
from frazil.changes.rebase import Resolution, ours_can_stand
from frazil.display import Record, Shown
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import U32
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkRef
from frazil.format.snapshot import NodeTable
from frazil.repository.catalog.version_info import ChunkType
from frazil.repository.paths import DERIVED
from frazil.repository.session.workspace import Workspace


class VersionSelection(Enum):
    """The answer of a solver: which side of a conflict to keep, or ``Fail`` for neither."""

    Fail = 0
    UseOurs = 1
    UseTheirs = 2

    def __int__(self) -> int:
        return self.value

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__


class SideSession(Protocol):
    """The methods of a ``Session`` that read, for solvers."""

    @property
    def snapshot_id(self) -> str:
        """The id of the snapshot that the session reads."""

    @property
    def store(self) -> Any:
        """The ``IcechunkStore`` of the session."""

    def get_node_id(self, path: str) -> str:
        """See ``Session.get_node_id``."""

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType:
        """See ``Session.chunk_type``."""

    def chunk_coordinates(self, array_path: str, batch_size: int = 1000) -> AsyncIterator[tuple[int, ...]]:
        """See ``Session.chunk_coordinates``."""

    def all_virtual_chunk_locations(self) -> list[str]:
        """See ``Session.all_virtual_chunk_locations``."""


#: Opens a read-only session of a workspace.
type OpenSession = Callable[[Workspace], SideSession]


class Side:
    """The node of a conflict on one side: ours, theirs or base. Its methods read the node."""

    def __init__(
        self, workspace: Workspace, node_id: bytes, path: str | None, open_session: OpenSession
    ) -> None:
        self._workspace = workspace
        self._open_session = open_session
        self.node_id: Final = id_to_text(node_id)
        #: The path of the node on this side; None if this side does not have the node.
        self.path = path

    def __repr__(self) -> str:
        return f"<frazil.conflicts.Side of {self.path} in {id_to_text(self._workspace.snapshot_id)}>"

    @property
    def metadata(self) -> bytes | None:
        """The ``zarr.json`` document of the node. None if this side does not have the node."""
        node = None if self.path is None else self._workspace.node(self.path)
        return None if node is None else node.user_data

    def read(self, chunks: ArrayLike) -> list[bytes | None]:
        r"""Return the stored bytes of some chunks of the array.

        Args:
            chunks: Chunk coordinates, integers of shape (k, ndim), such as ``conflict.chunks``.

        Returns:
            The encoded bytes of each chunk, in the order of ``chunks``. None for a missing chunk, and for all
            chunks if this side does not have the node.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="an array") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="u1", compressors=None)
            >>> one, two = repo.writable_session("main"), repo.writable_session("main")
            >>> zarr.open_array(one.store, path="t")[:] = 1
            >>> zarr.open_array(two.store, path="t")[:] = 2
            >>> snapshot = one.commit("one")
            >>> class Show(frazil.ConflictSolver):
            ...     def solve(self, conflicts):
            ...         for conflict in conflicts:
            ...             print(conflict.ours.read(conflict.chunks), conflict.theirs.read(conflict.chunks))
            ...         return [frazil.VersionSelection.UseOurs] * len(conflicts)
            >>> two.rebase(Show())
            [b'\x02\x02'] [b'\x01\x01']
        """
        if self.path is None:
            return [None] * len(np.asarray(chunks))
        workspace, path = self._workspace, self.path
        stored = (workspace.read_chunk(path, tuple(at)) for at in np.asarray(chunks, np.uint32).tolist())
        return [None if data is None else bytes(data) for data in stored]

    @property
    def session(self) -> SideSession:
        """A read-only ``Session`` of this side.

        Open the array with ``zarr.open_array(side.session.store, path=side.path)``.
        """
        return self._open_session(self._workspace)


@dataclass(frozen=True, slots=True)
class BothVersions:
    """The node of a conflict on all three sides."""

    ours: Side
    theirs: Side
    base: Side


class Conflict(Record, shown_as="conflicts.Conflict"):
    """Two changes of one node or of the same chunks that cannot be combined.

    A rebase creates conflicts and passes them to the solver. ``ours``, ``theirs`` and ``base`` read the
    sides. A conflict that was unpickled, or created with the constructor, has only the type, the path, the
    chunks and the reason.

    Args:
        conflict_type: The kind of the two changes.
        path: The path of the node.
        conflicted_chunks: The indices of the chunks. None for a conflict about the whole node.
        reason: See the attribute. Default: none.

    Attributes:
        reason: Why a solver leaves the conflict undecided. None if the solver gives no reason.

    Examples:
        >>> print(Conflict(ConflictType.ChunkDoubleUpdate, "/t", [[0, 1]]))
        <frazil.conflicts.Conflict>
        conflict_type: ChunkDoubleUpdate
        path: /t
        conflicted_chunks: [[0, 1]]
        <BLANKLINE>
    """

    def __init__(
        self,
        conflict_type: ConflictType,
        path: str,
        conflicted_chunks: Sequence[Sequence[int]] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        if not isinstance(conflict_type, ConflictType):
            raise TypeError(f"conflict_type must be ConflictType, got {type(conflict_type).__name__}")
        #: The kind of the two changes.
        self.conflict_type = conflict_type
        #: The path of the node in the session. For ``NewNodeInInvalidGroup``, the path of the group.
        self.path = path
        indices = conflicted_chunks
        #: The indices of the chunks, uint32 of shape (k, ndim). None for a conflict about the whole node.
        self.chunks: U32 | None = None
        if indices is not None:
            self.chunks = np.array(indices, np.uint32).reshape(len(indices), -1)
        self.reason = reason
        self._clash: NodeConflict | None = None
        self._sides: Callable[[], BothVersions] | None = None

    @classmethod
    def of(cls, clash: NodeConflict, sides: Callable[[], BothVersions]) -> Conflict:
        """Return the public conflict for one that a rebase found. For other modules of Frazil.

        Args:
            clash: The conflict that the rebase found.
            sides: Returns the sides. It is called when one of them is read.

        Returns:
            A conflict whose sides can be read.

        Examples:
            >>> import frazil
            >>> from frazil.changes.conflicts import NodeConflict
            >>> from frazil.conflicts import ChangeKind
            >>> type_, sides = ConflictType.DeleteOfUpdatedArray, (ChangeKind.DELETED, ChangeKind.WROTE)
            >>> clash = NodeConflict(type_, "/t", bytes(8), *sides)
            >>> [did.name for did in Conflict.of(clash, lambda: None).did]
            ['DELETED', 'WROTE']
        """
        conflict = cls(clash.type, clash.path)
        conflict.chunks = clash.chunks
        conflict._clash = clash
        conflict._sides = sides
        return conflict

    @property
    def conflicted_chunks(self) -> list[list[int]] | None:
        """The indices of the chunks, as lists. None for a conflict about the whole node."""
        return None if self.chunks is None else self.chunks.tolist()

    @property
    def is_derived(self) -> bool:
        """Whether the node is a table of a derived array."""
        return self.path.startswith(f"{DERIVED}/")

    @property
    def node_id(self) -> str | None:
        """The id of the node that the session changed. None if the sides cannot be read."""
        return None if self._clash is None else id_to_text(self._clash.node_id)

    @property
    def did(self) -> tuple[ChangeKind, ChangeKind] | None:
        """The change of ours and the change of theirs. None if the sides cannot be read."""
        return None if self._clash is None else (self._clash.ours, self._clash.theirs)

    @cached_property
    def _read(self) -> BothVersions:
        if self._sides is None:
            raise ValueError(
                "the sides of this conflict cannot be read, because it was unpickled or created with the "
                "constructor. Read them in the process of the rebase"
            )
        return self._sides()

    @property
    def ours(self) -> Side:
        """The node in the session."""
        return self._read.ours

    @property
    def theirs(self) -> Side:
        """The node at the tip of the branch, or at the commit that the rebase compares."""
        return self._read.theirs

    @property
    def base(self) -> Side:
        """The node in the version that both sides started from."""
        return self._read.base

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "conflict_type", self.conflict_type.name
        yield "path", self.path
        yield "conflicted_chunks", str(self.conflicted_chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conflict):
            return NotImplemented
        mine, yours = self.conflicted_chunks, other.conflicted_chunks
        return (self.conflict_type, self.path, mine) == (other.conflict_type, other.path, yours)

    def __hash__(self) -> int:
        return hash((self.conflict_type, self.path))

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.conflict_type, self.path, self.conflicted_chunks)
        return (partial(Conflict, reason=self.reason), arguments)


class ConflictSolver(ABC):
    """An optional base class for solvers. Any object with a method ``solve`` is a solver.

    Examples:
        >>> class KeepLonger(ConflictSolver):
        ...     def solve(self, conflicts):
        ...         return [self.longer(conflict) for conflict in conflicts]
        ...
        ...     def longer(self, conflict):
        ...         if conflict.conflict_type is not ConflictType.ChunkDoubleUpdate:
        ...             return VersionSelection.Fail
        ...         pairs = zip(conflict.ours.read(conflict.chunks), conflict.theirs.read(conflict.chunks))
        ...         return [len(ours or b"") >= len(theirs or b"") for ours, theirs in pairs]
        >>> KeepLonger().solve([Conflict(ConflictType.DeleteOfUpdatedGroup, "/data")])
        [VersionSelection.Fail]
    """

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        # Any object with the method is a ConflictSolver. Subclasses are checked as usual.
        return callable(getattr(other, "solve", None)) if cls is ConflictSolver else NotImplemented

    @abstractmethod
    def solve(self, conflicts: Sequence[Conflict]) -> Iterable[Any]:
        """Return an answer for each conflict of a rebase.

        Args:
            conflicts: All conflicts of the rebase, or of one commit of it.

        Returns:
            One answer for each conflict, in the same order: a ``VersionSelection``; None, as ``Fail``; bytes
            for ``ZarrMetadataDoubleUpdate``, a metadata document that replaces both; a sequence for
            ``ChunkDoubleUpdate``, with an answer for each row of ``conflict.chunks``: a ``VersionSelection``,
            True for ours, False for theirs, or bytes that replace both (or a function without arguments that
            returns the bytes, so that the bytes of one chunk at a time are in memory).

        Examples:
            >>> conflict = Conflict(ConflictType.ChunkDoubleUpdate, "/t", [[0]])
            >>> ConflictDetector().solve([conflict])
            [VersionSelection.Fail]
        """


class RepeatingSolver(ConflictSolver):
    """A solver that makes some changes of ours again on the tip, instead of a choice between the sides."""

    @abstractmethod
    def repeat(self, workspace: Workspace) -> None:
        """Make the changes again.

        Args:
            workspace: All other changes, on the tip or on the next commit.

        Examples:
            >>> class KeepTheirs(RepeatingSolver):
            ...     def solve(self, conflicts):
            ...         return [VersionSelection.UseTheirs] * len(conflicts)
            ...
            ...     def repeat(self, workspace):
            ...         pass
            >>> KeepTheirs().solve([Conflict(ConflictType.ZarrMetadataDoubleUpdate, "/t")])
            [VersionSelection.UseTheirs]
        """


class ConflictDetector(ConflictSolver):
    """A solver that decides no conflict. A rebase with it succeeds only if there are no conflicts."""

    @override
    def solve(self, conflicts: Sequence[Conflict]) -> list[VersionSelection]:
        return [VersionSelection.Fail] * len(conflicts)


@checks_arguments
class BasicConflictSolver(ConflictSolver):
    """A solver that keeps the whole chunk of one side, and drops all values of the other side in this chunk.

    icechunk's solver of this name does the same. ``ElementSolver`` keeps the changes of both sides where they
    changed different elements of a chunk.

    This solver decides about chunks that both sides wrote, and about deletions of nodes that others changed.
    All other conflicts stay undecided: the rebase then fails, and reports all conflicts.

    Args:
        on_chunk_conflict: The chunk to keep where both sides wrote it. ``UseOurs``, the default, also accepts
            a smaller shape of the session that drops chunks which others wrote outside of it.
        fail_on_delete_of_updated_array: Whether the rebase fails if the session deleted an array that others
            changed. By default, the array is deleted.
        fail_on_delete_of_updated_group: Whether the rebase fails if the session deleted a group that others
            changed. By default, the group is deleted, with new nodes in it.

    Examples:
        >>> solver = BasicConflictSolver(on_chunk_conflict=VersionSelection.UseTheirs)
        >>> solver.solve([Conflict(ConflictType.ZarrMetadataDoubleUpdate, "/t")])
        [VersionSelection.Fail]
    """

    def __init__(
        self,
        *,
        on_chunk_conflict: VersionSelection = VersionSelection.UseOurs,
        fail_on_delete_of_updated_array: bool = False,
        fail_on_delete_of_updated_group: bool = False,
    ) -> None:
        ours, fail = VersionSelection.UseOurs, VersionSelection.Fail
        fails = (fail_on_delete_of_updated_array, fail_on_delete_of_updated_group)
        array, group = (fail if each else ours for each in fails)
        self._answers: dict[tuple[ConflictType, ChangeKind | None], VersionSelection] = {
            (ConflictType.ChunkDoubleUpdate, ChangeKind.WROTE): on_chunk_conflict,
            (ConflictType.ChunksUpdatedInUpdatedArray, ChangeKind.UPDATED): (
                ours if on_chunk_conflict is ours else fail
            ),
            (ConflictType.DeleteOfUpdatedArray, ChangeKind.DELETED): array,
            (ConflictType.DeleteOfUpdatedGroup, ChangeKind.DELETED): group,
        }

    @override
    def solve(self, conflicts: Sequence[Conflict]) -> list[VersionSelection]:
        kinds = ((each.conflict_type, each.did[0] if each.did else None) for each in conflicts)
        return [self._answers.get(kind, VersionSelection.Fail) for kind in kinds]


def require_solver(solver: Any) -> None:
    """Raise ``TypeError`` for an object without a method ``solve``."""
    if not callable(getattr(solver, "solve", None)):
        raise TypeError(
            f"the solver must be a ConflictSolver, an object with a method `solve`, got {solver!r}"
        )


def solve(
    at: NodeAlignment,
    workspace: Workspace,
    theirs: Workspace,
    solver: Any,
    open_session: OpenSession,
    ours: Workspace | None = None,
) -> tuple[list[Conflict], list[tuple[NodeConflict, Resolution]]]:
    """Return all conflicts, and the conflicts that the solver decides with their resolutions.

    The solver reads the version ``ours``, if the ``workspace`` lacks changes that both sides made.
    """
    clashes = find_conflicts(at)
    if not clashes:
        return [], []
    base = Workspace(workspace.context, workspace.snapshot_id)
    conflicts = [
        Conflict.of(clash, _sides(at, clash, ours or workspace, theirs, base, open_session))
        for clash in clashes
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
) -> Callable[[], BothVersions]:
    id_ = clash.node_id

    def side(workspace: Workspace, path: str | None) -> Side:
        exists = path is not None and workspace.node(path) is not None
        return Side(workspace, id_, path if exists else None, open_session)

    def sides() -> BothVersions:
        new = clash.ours is ChangeKind.CREATED
        their_path = at.tip_path(at.ours.created[id_]) if new else _path(theirs.snapshot.nodes, id_)
        mine = at.ours.created.get(id_, clash.path)
        is_deleted = clash.ours is ChangeKind.DELETED
        return BothVersions(
            side(ours, None if is_deleted else mine),
            side(theirs, their_path),
            side(base, _path(base.snapshot.nodes, id_)),
        )

    return sides


def _path(nodes: NodeTable, id_: bytes) -> str | None:
    row = row_of(nodes, id_)
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
