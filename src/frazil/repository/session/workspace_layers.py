"""The layers of a workspace: a snapshot under layers of changes.

    snapshot    the version that was committed
    inherited   what the session that this one was forked from had changed
    sealed      own changes that forks have seen
    changes     own changes since the last fork

A later layer hides an earlier one. Nodes of all layers but the last are joined once. Other modules read and
change nodes and chunks through the views of a `frazil.repository.session.workspace.Workspace`.

A commit makes all changes wait until it is done. After it the workspace refuses changes: a change that comes
too late to be part of the commit would be lost silently.
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
    """See the module. Threads may share it."""

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
        #: Tracks what the session reads; None if it does not track reads.
        self.reads = reads
        self.writer = context.writer()
        self.reader = context.reader(self.writer)
        #: Arrays that were looked up since their nodes changed last, by path.
        self.array_entries: dict[str, ArrayEntry] = {}
        self.earlier_manifests = EarlierManifests()
        #: Counts the times when changes were discarded, and their bytes dropped.
        self.discards = 0
        #: Held while the changes are committed, and for every change. Always acquired before ``lock``.
        self.commit_lock = RLock()
        #: Held while the layers are read or changed.
        self.lock = RLock()
        self._is_committed = False
        self._was_changed = False  # also if a rebase dropped all changes

    # Layers

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot, read when it is asked for. ``SessionSnapshotNotFoundError`` if it was expired and
        collected; all methods that read raise this.
        """
        try:
            return self.context.assets.snapshot(self.snapshot_id)
        except StorageError as error:
            require_listed(self.context, self.snapshot_id, error)
            raise

    @cached_property
    def start(self) -> NodeTable:
        """The nodes that all own changes together are relative to."""
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
        """The layers of changes, newest first."""
        return self.changes, self.sealed, self.inherited

    def array_entry(self, path: str) -> ArrayEntry | None:
        """The array at ``path``; None if there is none."""
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
        """``ReadOnlyError`` (``read-only-store``) after the commit."""
        if self._is_committed:
            raise ReadOnlyError(
                "this session has committed its changes: open a new one with Repository.writable_session "
                "to change more",
                ErrorKind.READ_ONLY_STORE,
            )

    # Changes as a whole

    @property
    def has_changes(self) -> bool:
        if self.sealed and self.changes:
            return self._was_changed or bool(self.own_changes())  # sealed changes may have been undone
        return self._was_changed or bool(self.sealed or self.changes)

    def own_changes(self) -> ChangeSet:
        """All own changes as one change set."""
        with self.lock:
            return merge_forks(self.start, self.sealed, [self.changes]) if self.sealed else self.changes

    def all_changes(self) -> ChangeSet:
        """All changes since the snapshot, inherited ones included."""
        own = self.own_changes()
        return merge_forks(self.snapshot.nodes, self.inherited, [own]) if self.inherited else own

    def durable_changes(self) -> ChangeSet:
        """A copy of ``own_changes()`` whose chunks are all durable. Other threads may write at the same
        time.
        """
        with self.commit_lock, self.lock:
            self.writer.flush()
            return self.own_changes().copy()

    def seal_changes(self, more: ChangeSet | None = None) -> None:
        """Make the own changes until now, and ``more``, the base of later changes."""
        with self.commit_lock, self.lock:
            if more:
                self.require_uncommitted()
            for changes in (self.changes, more or ChangeSet()):
                merge_fork(self.start, self.sealed, changes)
                self.changes = ChangeSet()
                self.invalidate("moved_base", "tree", *(["base"] if changes.nodes or changes.moves else []))

    def adopt_manifests(self, ready: dict[bytes, PreparedManifests]) -> None:
        """Add manifests that workers have prepared, by node id. They contain the own edits of their
        arrays.
        """
        with self.commit_lock, self.lock:
            self.seal_changes()
            self.require_uncommitted()
            for id_ in ready.keys() & self.sealed.chunks.keys():
                del self.sealed.chunks[id_]
            self.sealed.ready.update(ready)
            self.invalidate("base", "moved_base", "tree")

    def merge_changes(self, forks: list[ChangeSet], twins: set[bytes]) -> None:
        """Add the changes of forks, which ``check_forks`` has accepted."""
        # Only deletions and moves need the base: without them it is not built for each merge.
        needs_base = any(fork.moves or None in fork.nodes.values() for fork in forks)
        self.seal_changes(merge_forks(self.base if needs_base else self.start, ChangeSet(), forks, twins))

    def replace_changes(self, changes: ChangeSet) -> None:
        """Replace the changes since the last fork by others."""
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
