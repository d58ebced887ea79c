"""The layers of a workspace: a snapshot under layers of changes.

    snapshot    the committed version
    inherited   changes of the session that created this fork, from before the fork
    sealed      own changes that later forks contain
    changes     own changes since the last fork

A later layer hides an earlier layer. The nodes of all layers except the last are joined once. Other modules
read and change nodes and chunks through the views of a `frazil.repository.session.workspace.Workspace`.

Changes of other threads wait while a commit runs. After the commit the workspace refuses changes: otherwise a
change that is too late for the commit would be lost silently.
"""

from __future__ import annotations

from functools import cached_property
from threading import RLock

from frazil.changes.change_set import ChangeSet
from frazil.changes.merge import merge_fork, merge_forks
from frazil.changes.moves import MoveTree
from frazil.changes.prepared_manifests import PreparedManifests
from frazil.errors import ErrorKind, ReadOnlyError, StorageError
from frazil.format.snapshot import NodeTable, Snapshot
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import require_listed
from frazil.repository.session.array_entry import ArrayEntry
from frazil.repository.session.earlier_manifests import EarlierManifests
from frazil.repository.session.read_tracker import ReadTracker


class WorkspaceLayers:
    """A snapshot with layers of changes. Threads may share it."""

    def __init__(
        self,
        context: Context,
        snapshot_id: bytes,
        inherited: ChangeSet | None = None,
        sealed: ChangeSet | None = None,
        changes: ChangeSet | None = None,
        reads: ReadTracker | None = None,
    ) -> None:
        self.context = context
        self.snapshot_id = snapshot_id
        self.inherited = inherited or ChangeSet()
        self.sealed = sealed or ChangeSet()
        self.changes = changes or ChangeSet()
        #: Tracks the reads of the session. None if the session does not track reads.
        self.reads = reads
        self.writer = context.writer()
        self.reader = context.reader(self.writer)
        #: Prepared lookups by the path of the array. A change of the node drops its entry.
        self.array_entries: dict[str, ArrayEntry] = {}
        self.earlier_manifests = EarlierManifests()
        #: The number of discards. A discard also drops the bytes of the changes.
        self.discards = 0
        #: A commit and every change hold this lock. It is always acquired before ``lock``.
        self.commit_lock = RLock()
        #: Reads and changes of the layers hold this lock.
        self.lock = RLock()
        self._is_committed = False
        self._was_changed = False  # stays True if a rebase drops all changes

    # Layers

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot. The first access reads its file.

        Raises ``SessionSnapshotNotFoundError`` if the snapshot was expired and collected. All methods that
        read the snapshot raise this error.
        """
        try:
            return self.context.assets.snapshot(self.snapshot_id)
        except StorageError as error:
            require_listed(self.context, self.snapshot_id, error)
            raise

    @cached_property
    def start(self) -> NodeTable:
        """The nodes that the joined own changes are relative to."""
        nodes = self.snapshot.nodes
        return self.inherited.apply(nodes) if self.inherited else nodes

    @cached_property
    def base(self) -> NodeTable:
        """The nodes that ``changes`` are relative to."""
        return self.sealed.apply(self.start) if self.sealed else self.start

    @cached_property
    def moved_base(self) -> NodeTable:
        """The nodes of ``base`` at the paths where ``changes`` has moved them."""
        return self.changes.moved_nodes(self.base)

    @cached_property
    def tree(self) -> MoveTree:
        """The hierarchy of ``base``, for moves."""
        return MoveTree(self.base, self.changes.moves)

    def layers(self) -> tuple[ChangeSet, ChangeSet, ChangeSet]:
        """Return the layers of changes, newest first."""
        return self.changes, self.sealed, self.inherited

    def array_entry(self, path: str) -> ArrayEntry | None:
        """Return the prepared lookups of the array at ``path``, or None if there is no array."""
        entry = self.array_entries.get(path)
        if entry is None:
            with self.lock:
                node = self.changes.node(self.moved_base, path)
                entry = None if node is None else ArrayEntry.of(node, self.layers())
                if entry is not None:
                    self.array_entries[path] = entry
        return entry

    def invalidate(self, *names: str) -> None:
        """Drop cached properties, and all array entries. The caller holds ``lock``."""
        for name in names:
            self.__dict__.pop(name, None)
        self.array_entries.clear()

    def require_uncommitted(self) -> None:
        """Raise ``ReadOnlyError`` (``read-only-store``) after the commit."""
        if self._is_committed:
            raise ReadOnlyError(
                "this session has committed its changes", ErrorKind.READ_ONLY_STORE
            ).with_remedy("To make more changes, open a session with Repository.writable_session", shell="")

    # Changes as a whole

    @property
    def has_changes(self) -> bool:
        """Whether there are own changes, or were before a rebase dropped them."""
        if self.sealed and self.changes:
            return self._was_changed or bool(self.own_changes())  # sealed changes may have been undone
        return self._was_changed or bool(self.sealed or self.changes)

    @property
    def num_changed_arrays(self) -> int:
        """The number of arrays with own changes of chunks, whose manifests a commit writes."""
        return len(self.sealed.chunks.keys() | self.changes.chunks.keys())

    def own_changes(self) -> ChangeSet:
        """Return all own changes as one change set."""
        with self.lock:
            return merge_forks(self.start, self.sealed, [self.changes]) if self.sealed else self.changes

    def all_changes(self) -> ChangeSet:
        """Return all changes since the snapshot, inherited ones included."""
        own = self.own_changes()
        return merge_forks(self.snapshot.nodes, self.inherited, [own]) if self.inherited else own

    def durable_changes(self) -> ChangeSet:
        """Return a copy of ``own_changes()`` whose chunks are all durable.

        Other threads may write at the same time.
        """
        with self.commit_lock, self.lock:
            self.writer.flush()
            return self.own_changes().copy()

    def seal_changes(self, more: ChangeSet | None = None) -> None:
        """Make the own changes until now, and ``more``, part of the base of later changes."""
        with self.commit_lock, self.lock:
            if more:
                self.require_uncommitted()
            for changes in (self.changes, more or ChangeSet()):
                merge_fork(self.start, self.sealed, changes)
                self.changes = ChangeSet()
                self.invalidate("moved_base", "tree", *(["base"] if changes.nodes or changes.moves else []))

    def adopt_manifests(self, ready: dict[bytes, PreparedManifests]) -> None:
        """Add manifests that workers have prepared, by node id.

        The manifests contain the own edits of their arrays.
        """
        with self.commit_lock, self.lock:
            self.seal_changes()
            self.require_uncommitted()
            for id_ in ready.keys() & self.sealed.chunks.keys():
                del self.sealed.chunks[id_]
            self.sealed.ready.update(ready)
            self.invalidate("base", "moved_base", "tree")

    def merge_changes(self, forks: list[ChangeSet], twins: set[bytes]) -> None:
        """Add the changes of forks. ``check_forks`` has accepted them."""
        # Only deletions and moves need the base. Without them, a merge does not build it.
        needs_base = any(fork.moves or None in fork.nodes.values() for fork in forks)
        self.seal_changes(merge_forks(self.base if needs_base else self.start, ChangeSet(), forks, twins))

    def replace_changes(self, changes: ChangeSet) -> None:
        """Replace the changes since the last fork by ``changes``."""
        with self.commit_lock, self.lock:
            self.require_uncommitted()
            self.changes = changes
            self.discards += 1
            self.invalidate("moved_base", "tree")
            self.writer.forget()

    def discard_changes(self) -> None:
        """Discard all own changes."""
        with self.commit_lock, self.lock:
            self.sealed = ChangeSet()
            self.changes = ChangeSet()
            self.earlier_manifests = EarlierManifests()
            self._was_changed = False
            self.discards += 1
            self.invalidate("base", "moved_base", "tree")
            self.writer.forget()

    # Other snapshots

    def rebase_onto(self, snapshot_id: bytes, changes: ChangeSet) -> None:
        """Continue on another snapshot, with changes that are relative to it."""
        with self.commit_lock, self.lock:
            self._was_changed = self.has_changes
            self.snapshot_id = snapshot_id
            self.sealed = ChangeSet()
            self.changes = changes
            self.invalidate("snapshot", "start", "base", "moved_base", "tree")
