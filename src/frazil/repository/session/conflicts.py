"""Conflicts as users see them, and solvers, which decide them.

A *solver* is any object with a method ``solve`` that gets all conflicts of a rebase at once and answers each,
in the same order, with one of

    VersionSelection.UseOurs     what the session did stands
    VersionSelection.UseTheirs   what was committed meanwhile stands
    VersionSelection.Fail, None  neither: the rebase fails, and nothing is lost
    bytes                        for ``ZarrMetadataDoubleUpdate``: the document that stands instead
    a sequence                   for ``ChunkDoubleUpdate``: an answer for each row of ``conflict.chunks``;
                                 ``UseOurs`` or True, ``UseTheirs`` or False, or the bytes that stand instead

If any is left unanswered, the rebase stops before the first commit that it cannot go beyond, and raises
``RebaseFailedError``. Both sides can be read while the solver decides: ``conflict.ours``, ``conflict.theirs``
and ``conflict.base``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from frazil.arguments import checks_arguments
from frazil.changes.conflicts import ConflictType, NodeConflict
from frazil.changes.node_alignment import Did
from frazil.display import Record, Shown
from frazil.format.columns import U32
from frazil.format.ids import id_to_text
from frazil.repository.catalog.version_info import ChunkType
from frazil.repository.session.workspace import Workspace


class VersionSelection(Enum):
    """Which side of a conflict stands."""

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
    def snapshot_id(self) -> str: ...

    @property
    def store(self) -> Any:
        """The ``IcechunkStore`` of the session."""

    def get_node_id(self, path: str) -> str: ...

    def chunk_type(self, array_path: str, chunk_coordinates: Sequence[int]) -> ChunkType: ...

    def chunk_coordinates(
        self, array_path: str, batch_size: int = 1000
    ) -> AsyncIterator[tuple[int, ...]]: ...

    def all_virtual_chunk_locations(self) -> list[str]: ...


#: Opens a session that reads a workspace.
type OpenSession = Callable[[Workspace], SideSession]


class Side:
    """A node as one side of a conflict has it; read when asked for."""

    def __init__(
        self, workspace: Workspace, node_id: bytes, path: str | None, open_session: OpenSession
    ) -> None:
        self._workspace = workspace
        self._open_session = open_session
        self.node_id = id_to_text(node_id)
        #: Where the node is on this side; None if it is not there.
        self.path = path

    def __repr__(self) -> str:
        return f"<frazil.conflicts.Side of {self.path} in {id_to_text(self._workspace.snapshot_id)}>"

    @property
    def metadata(self) -> bytes | None:
        """The node's ``zarr.json``; None if the node is not there."""
        node = None if self.path is None else self._workspace.nodes.node(self.path)
        return None if node is None else node.user_data

    def read(self, chunks: ArrayLike) -> list[bytes | None]:
        """The stored bytes of chunks, by coordinates of shape (k, ndim); None for one that is not there."""
        if self.path is None:
            return [None] * len(np.asarray(chunks))
        workspace, path = self._workspace, self.path
        stored = (workspace.chunks.read(path, tuple(at)) for at in np.asarray(chunks, np.uint32).tolist())
        return [None if data is None else bytes(data) for data in stored]

    @property
    def session(self) -> SideSession:
        """A ``Session`` that reads this side: ``zarr.open_array(side.session.store, path=side.path)``."""
        return self._open_session(self._workspace)


@dataclass(frozen=True, slots=True)
class Sides:
    """Where a conflict's sides are read."""

    ours: Side
    theirs: Side
    base: Side


class Conflict(Record):
    """Two changes that do not go together.

    ``path`` is the node's as the session has it (of ``NewNodeInInvalidGroup`` that of the group), ``chunks``
    the coordinates that it is about, uint32 (k, ndim), None if it is about the whole node. ``ours`` and
    ``theirs`` say what was done. One that was unpickled, or made by its constructor, has only type, path
    and chunks.

    >>> print(Conflict(ConflictType.ChunkDoubleUpdate, "/t", [[0, 1]]))
    <frazil.conflicts.Conflict>
    conflict_type: ChunkDoubleUpdate
    path: /t
    conflicted_chunks: [[0, 1]]
    <BLANKLINE>
    """

    shown_as: ClassVar[str] = "conflicts.Conflict"

    def __init__(
        self, conflict_type: ConflictType, path: str, conflicted_chunks: Sequence[Sequence[int]] | None = None
    ) -> None:
        if not isinstance(conflict_type, ConflictType):
            raise TypeError(f"conflict_type: expected a ConflictType, found {type(conflict_type).__name__}")
        self._type = conflict_type
        self._path = path
        given = conflicted_chunks
        self._chunks = None if given is None else np.array(given, np.uint32).reshape(len(given), -1)
        self._clash: NodeConflict | None = None
        self._sides: Callable[[], Sides] | None = None

    @classmethod
    def of(cls, clash: NodeConflict, sides: Callable[[], Sides]) -> Conflict:
        """The conflict behind one that a rebase found."""
        conflict = cls(clash.type, clash.path)
        conflict._chunks = clash.chunks
        conflict._clash = clash
        conflict._sides = sides
        return conflict

    @property
    def conflict_type(self) -> ConflictType:
        return self._type

    @property
    def path(self) -> str:
        return self._path

    @property
    def conflicted_chunks(self) -> list[list[int]] | None:
        """Chunk indices; None if the conflict is not about chunks."""
        return None if self._chunks is None else self._chunks.tolist()

    @property
    def chunks(self) -> U32 | None:
        """Chunk coordinates of shape (k, ndim); None if the conflict is not about chunks."""
        return self._chunks

    @property
    def node_id(self) -> str | None:
        """The id of the node that the session changed."""
        return None if self._clash is None else id_to_text(self._clash.node_id)

    @property
    def did(self) -> tuple[Did, Did] | None:
        """What ours did, and what theirs did."""
        return None if self._clash is None else (self._clash.ours, self._clash.theirs)

    @cached_property
    def _read(self) -> Sides:
        if self._sides is None:
            raise ValueError(
                "the sides of this conflict cannot be read: it was unpickled or made by hand. Read them in "
                "the process of the rebase"
            )
        return self._sides()

    @property
    def ours(self) -> Side:
        """The node as the session has it."""
        return self._read.ours

    @property
    def theirs(self) -> Side:
        """The node as the branch has it."""
        return self._read.theirs

    @property
    def base(self) -> Side:
        """The node as it was before both."""
        return self._read.base

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "conflict_type", self._type.name
        yield "path", self._path
        yield "conflicted_chunks", str(self.conflicted_chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conflict):
            return NotImplemented
        mine, yours = self.conflicted_chunks, other.conflicted_chunks
        return (self._type, self._path, mine) == (other._type, other._path, yours)

    def __hash__(self) -> int:
        return hash((self._type, self._path))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Conflict, (self._type, self._path, self.conflicted_chunks))


class ConflictSolver(ABC):
    """Decides conflicts. A base for solvers of one's own, which need no base: see the module.

    >>> class KeepLonger(ConflictSolver):
    ...     def solve(self, conflicts):
    ...         return [self.longer(conflict) for conflict in conflicts]
    ...
    ...     def longer(self, conflict):
    ...         if conflict.conflict_type is not ConflictType.ChunkDoubleUpdate:
    ...             return VersionSelection.Fail
    ...         pairs = zip(conflict.ours.read(conflict.chunks), conflict.theirs.read(conflict.chunks))
    ...         return [len(ours or b"") >= len(theirs or b"") for ours, theirs in pairs]
    """

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        # Any object with the method is one; who asks for ConflictDetector means that class.
        return callable(getattr(other, "solve", None)) if cls is ConflictSolver else NotImplemented

    @abstractmethod
    def solve(self, conflicts: Sequence[Conflict]) -> Iterable[Any]:
        """An answer for each conflict, in the same order."""


class ConflictDetector(ConflictSolver):
    """Solves nothing: a rebase with it succeeds if there is no conflict, and otherwise says which."""

    def solve(self, conflicts: Sequence[Conflict]) -> list[VersionSelection]:
        return [VersionSelection.Fail] * len(conflicts)


@checks_arguments
class BasicConflictSolver(ConflictSolver):
    """Solves conflicts between chunks that both wrote, and deletions of what others changed.

    on_chunk_conflict               which chunk stands where both sides wrote it. ``UseOurs`` also lets a
                                    session's smaller shape drop chunks that others wrote outside of it
    fail_on_delete_of_updated_array  whether the deletion of an array that others changed fails, or stands
    fail_on_delete_of_updated_group  the same for groups; a new node in a deleted group goes with it

    All other conflicts fail, and then all are reported.
    """

    def __init__(
        self,
        *,
        on_chunk_conflict: VersionSelection = VersionSelection.UseOurs,
        fail_on_delete_of_updated_array: bool = False,
        fail_on_delete_of_updated_group: bool = False,
    ) -> None:
        if not isinstance(on_chunk_conflict, VersionSelection):
            raise TypeError(
                f"on_chunk_conflict: expected a VersionSelection, found {type(on_chunk_conflict).__name__}"
            )
        ours, fail = VersionSelection.UseOurs, VersionSelection.Fail
        self._answers = {
            (ConflictType.ChunkDoubleUpdate, Did.WROTE): on_chunk_conflict,
            (ConflictType.ChunksUpdatedInUpdatedArray, Did.UPDATED): (
                ours if on_chunk_conflict is ours else fail
            ),
            (ConflictType.DeleteOfUpdatedArray, Did.DELETED): fail
            if fail_on_delete_of_updated_array
            else ours,
            (ConflictType.DeleteOfUpdatedGroup, Did.DELETED): fail
            if fail_on_delete_of_updated_group
            else ours,
        }

    def solve(self, conflicts: Sequence[Conflict]) -> list[VersionSelection]:
        return [
            self._answers.get((conflict.conflict_type, conflict.did[0]), VersionSelection.Fail)
            if conflict.did
            else VersionSelection.Fail
            for conflict in conflicts
        ]
